"""The made-up project of `--demo`: every surface shows the same cards, and verbs say that it is the demo (SPEC 9.8)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawpy_console.cli.demo import add_organisation, find_broken_test, learn_now, make_project, run_recurring_sessions
from clawpy_console.cli.main import main, render_document
from engine import Engine, Home, open_engine
from engine.api.operations import dispatch
from engine.model import Tier
from tests.support.helpers import assert_contains

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine on the project and the organisation of the demo, whose broken test was found; it has learned."""
    folder = tmp_path_factory.mktemp("demo")
    project = str(make_project(folder / "shop", datetime.now(UTC)))
    with closing(open_engine(Home.locate(folder / "home"), workspaces=[project], start_schedule=False)) as engine:
        add_organisation(engine)
        run_recurring_sessions(engine, project)
        engine.checks.run(requested=True)
        find_broken_test(engine, project)
        learn_now(engine)
        yield engine


def test_its_cards_begin_with_the_broken_test_and_end_with_upkeep(engine: Engine):
    stack = engine.cards.list_pending()
    assert {card.tier for card in stack} == {Tier.BLOCKS, Tier.CHECK, Tier.UPKEEP}
    assert stack[0].tier is Tier.BLOCKS  # a guess where to start: nobody saw v1.2 pass
    assert "test_a_discount_is_rounded" in stack[0].assignment.prompt
    assert stack[-1].tier is Tier.UPKEEP
    assert dispatch(engine, "status", {})["phase"]["decisions"] == 0, "nobody has pressed a key yet"


PRINTED = (
    ("guidance", {"id": "backend_builder"}, "backend_builder → backend_lead → cto → ceo → owner\n"),
    ("guidance", {"id": "dreamer", "reportsTo": "cto"}, "  chain     - cino → ceo → owner\n", "+ cto → ceo → owner\n"),
    ("profile", {"id": "cto", "text": "## Domain\n\ntechnology\n"}, "Not saved. Add `--yes` to save it."),
    ("bubbles", {}, "✗ 2 confidence: 0.50 of 0.75"),
    ("bubbles flush", {}, "backend_lead ← bub_"),
    ("learnings", {}, "project shop, how things are done here, confidence 0.75, from 3 sessions\n"),
    ("learnings scopes", {}, "project shop  2 how things are done, 0 about work, 0 about you\n"),
    ("learnings show", {"id": "{learning}"}, "  came from   lrn_", "  lesson      les_"),
    ("candidates", {}, "guidance in prompts, for every agent, all runs in shop; evidence for: "),
    (
        "candidates show",
        {"id": "{candidate}"},
        "  ✓ detect  ",
        "  + - Decision: ",
        "\ndrafted from\n  human approval: 65 of",
    ),
    ("candidates reject", {"id": "{candidate}"}, "✗ rejected", "It is proposed again only if new evidence"),
    (
        "metrics",
        {},
        "  phase     0: the Twin starts after 30",
        "\n  Test that broke              1       0        –",
    ),
    ("train", {}, "no Twin model is set\n50 more pairs"),
    (
        "work",
        {},
        "  problem found  shop → koji-core",
        "  finished  shop → chronicle-hub",
        "  4 commits, 4 files changed",
    ),
    ("learnings retract", {"id": "{learning}"}, "Retracted  {learning}\n"),
    ("learnings keep", {"id": "{learning}"}, "It is valid.  {learning}  Decision: "),
    ("forget", {"what": "whole cents from the cart"}, "would be forgotten\n"),
)
"""Verbs with an action and arguments, and parts of what they print. A name in braces stands for an id."""


def test_verbs_print_what_the_demo_has_learned(engine: Engine):
    ids = {
        "learning": dispatch(engine, "learnings", {})["learnings"][0]["id"],
        "candidate": dispatch(engine, "candidates", {})["candidates"][0]["id"],
    }
    for words, arguments, *parts in PRINTED:
        verb, _, action = words.partition(" ")
        filled = {name: value.format(**ids) for name, value in arguments.items()}
        document = dispatch(engine, verb, filled | ({"action": action} if action else {}))
        assert_contains(render_document(verb, document, action), *(part.format(**ids) for part in parts))


DEMO_UNTIL_KILLED = """
import sys
from clawpy_console.cli.demo import temporary_home
with temporary_home() as (home, _):
    print(home.parent, flush=True)
    sys.stdin.read()
"""
SIMULATION_UNTIL_KILLED = """
import sys
from engine.simulation import simulate
def open_world(folder, seed):
    print(folder, flush=True)
    sys.stdin.read()
simulate.open_world = open_world
simulate.simulate()
"""
USE_TEMPORARY_FILES = "from engine.git.environment import get_temporary_folder; get_temporary_folder()"


@pytest.mark.parametrize("code", [DEMO_UNTIL_KILLED, SIMULATION_UNTIL_KILLED], ids=["demo", "simulation"])
def test_the_folder_of_a_process_that_was_killed_is_removed_by_the_next_one(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        folder = Path(process.stdout.readline().decode().strip())
        process.kill()
    assert folder.is_dir()
    subprocess.run([sys.executable, "-c", USE_TEMPORARY_FILES], check=True)
    assert not folder.exists()


def test_a_verb_in_the_demo_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["--demo", "doctor", "--json"]) == 0
    assert capsys.readouterr().err.startswith("demo: a made-up project and organisation in ")

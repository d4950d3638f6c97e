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
from engine import Engine, Home
from engine.api.operations import dispatch
from engine.model import Tier
from tests.support import read_table
from tests.support.checks import assert_contains
from tests.support.engines import open_idle_engine

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine on the project and the organisation of the demo, whose broken test was found; it has learned."""
    folder = tmp_path_factory.mktemp("demo")
    project = str(make_project(folder / "shop", datetime.now(UTC)))
    with closing(open_idle_engine(Home.locate(folder / "home"), project)) as engine:
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


def test_verbs_print_what_the_demo_has_learned(engine: Engine):
    ids = {
        "learning": dispatch(engine, "learnings", {})["learnings"][0]["id"],
        "candidate": dispatch(engine, "candidates", {})["candidates"][0]["id"],
    }
    for row in read_table(__file__)["verb"]:
        verb, _, action = row["words"].partition(" ")
        arguments = {name: value.format(**ids) for name, value in row.get("arguments", {}).items()}
        document = dispatch(engine, verb, arguments | ({"action": action} if action else {}))
        assert_contains(render_document(verb, document, action), *(part.format(**ids) for part in row["parts"]))


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

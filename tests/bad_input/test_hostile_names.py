"""Names of files and branches that try to be options, commands, escape sequences or markup (SPEC 3.5, 11.2)."""

import json
import os
from collections.abc import Iterator

import pytest

from engine import Engine
from engine.home import Home
from engine.model import SessionState
from tests.bad_input.results import list_cards
from tests.cli.calls import Clawpy
from tests.support.checks import refused
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

FILES = (
    "-x.py", "--help", "new\nline.py", "esc\x1b[31mred.py", "tab\t.py", "[b]bold.py", 'quo"te.py', "ü 😀.py",
    "$(touch pwned).py", ";touch pwned;.py", "[", "[ [b]up[",
    ":(glob)x.py", "bell\x07.py", "rtl\u202egnp.py", "{a,b}.py", "%s%n.py",
)  # fmt: skip
"""Names of files, of which a shell, git, a terminal or the console's markup could make something else."""

BRANCHES = ("x--help", "b]up", "ü/😀", "a;touch-pwned", "$(touch_pwned)", "refs", "HEAD/x", "`id`")
"""Names that git accepts for a branch."""

OPTIONS = ("-x", "--upload-pack=touch pwned", "--exec=touch pwned")
"""Values that git would take for options."""


def is_printable(text: str) -> bool:
    """Whether a text has no controls besides line ends, and nothing that turns the direction of writing."""
    return not any((ord(sign) < 32 and sign != "\n") or sign in "\x7f\u202e" for sign in text)


@pytest.fixture
def hostile_repository(repository: Repository) -> Repository:
    """A repository with all of these names, and with work in progress on a branch."""
    files = dict.fromkeys(FILES, "x = 1\n") | {"CHANGELOG.md": "# Changelog\n"}
    repository.commit("first \x1b]0;title\x07 [b]bold $(touch pwned)", files)
    repository.git("tag", "v1.0")
    for branch in BRANCHES:
        repository.git("branch", branch)
    head = repository.git("rev-parse", "HEAD")
    for option in ("-x", "--force"):
        repository.git("update-ref", f"refs/heads/{option}", head)
    repository.commit("Release 1.1 \x1b]0;title\x07", {"version": "1.1\n"})  # so that its change log is due
    repository.commit("-x --amend", dict.fromkeys(FILES, "x = 2\nprint(1)\n"))
    repository.git("switch", "-q", "-c", "work")
    (repository.path / os.fsdecode(b"latin-\xe9.py")).write_text("x = 1\n")
    for name in FILES:
        repository.write(name, "x = 3\n")
    return repository


@pytest.fixture
def engine(home: Home, hostile_repository: Repository) -> Iterator[Engine]:
    engine = open_idle_engine(home, hostile_repository.path)
    yield engine
    engine.close()


@pytest.mark.long
def test_every_card_of_a_hostile_repository_is_printable_and_runs(engine: Engine, hostile_repository: Repository):
    report = engine.checks.run(requested=True)
    assert report.errors == ()
    assert report.created
    before = {file.name for file in hostile_repository.path.iterdir()}
    for card in engine.cards.list_pending():
        assert is_printable(card.assignment.prompt + card.reasoning)
        session = engine.sessions.wait(engine.cards.approve(card.id).session_id or "", 30)
        assert session.state is SessionState.SUCCEEDED, (card.assignment.flow, session.summary)
        lines = engine.sessions.read_transcript(session.id)
        assert all(is_printable(line.text) for line in lines)
    assert {file.name for file in hostile_repository.path.iterdir()} == before, "no name was run as a command"


@pytest.mark.parametrize("option", OPTIONS)
def test_a_parameter_that_would_be_an_option_is_refused(engine: Engine, hostile_repository: Repository, option: str):
    engine.checks.run(requested=True)
    card = next(card for card in engine.cards.list_pending() if card.assignment.flow == "draft_changelog")
    refusal = refused("bad_parameters", lambda: engine.cards.approve(card.id, edit=json.dumps({"since": option})))
    assert "dash" in str(refusal)
    assert engine.cards.get(card.id).status.value == "pending"


@pytest.mark.long
def test_verbs_print_no_escape_sequences(clawpy: Clawpy, hostile_repository: Repository):
    workspace = ("--workspace", str(hostile_repository.path))
    result = clawpy(*workspace, "predict")
    assert result.code == 0
    assert is_printable(result.out + result.err)
    assert clawpy("config", "set", "providers.ollama.model", "qwen3").code == 0
    [card] = list_cards(clawpy, *workspace, "propose", "tidy \x1b]0;owned\x07 [b]up[/b] \x1b[2J")
    assert card["prompt"] == "tidy  [b]up[/b]"
    for verb in (["cards"], ["status"], ["work"], ["tasks", "list"], ["approve", "\x1b[31mpred"], ["\x1b[31mverb"]):
        result = clawpy(*workspace, *verb)
        assert is_printable(result.out + result.err), verb

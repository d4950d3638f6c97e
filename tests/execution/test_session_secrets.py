"""A key that a command prints is kept nowhere: not in the transcript, the row, an event or a prompt (SPEC 11.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus, SessionOutput
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import FlowError
from engine.execution.session_workspace import bound_check
from engine.execution.transcripts import CUT_NOTE, MAX_LINE, LineSplitter
from engine.model import CheckResult, SessionState
from engine.model.secrets import CUT, MAX_KEY_LENGTH, Redactor
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import World, shell

OURS = "correct-horse-battery"  # of the keyring: it looks like nothing
THEIRS = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
PASSWORD = "hunter2hunter2"
DOTENV = f"GITHUB_TOKEN={THEIRS}\nDB_PASSWORD={PASSWORD}\nOURS={OURS}\nDEBUG=1\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----"


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> Iterator[World]:
    world = World(tmp_path, database, clock, bus, secrets=lambda: [OURS])
    (world.workspace / ".env").write_text(DOTENV)
    yield world
    world.sessions.close()


def stored(world: World, database: Database) -> str:
    """Everything that the session left on disk, and what the ledger says of it."""
    files = [path for path in world.home.transcripts.rglob("*") if path.is_file()]
    return "\n".join([*(path.read_text() for path in files), *map(repr, Ledger(database).latest())])


def test_a_dotenv_that_is_printed_is_kept_without_its_secrets(world: World, database: Database, bus: EventBus) -> None:
    events = bus.subscribe(lambda: None)

    def work(live: LiveSession) -> str:
        printed = shell(live, "print(open('.env').read())")
        assert printed == f"GITHUB_TOKEN={CUT}\nDB_PASSWORD={CUT}\nOURS={CUT}\nDEBUG=1\n\n", "what a model is told"
        return f"the keys are {THEIRS} and {OURS}"

    view = world.run(work)
    assert world.texts(view)[-2:] == ["DEBUG=1", ""]
    assert world.texts(view, ["note"])[0] == CUT_NOTE, "the operator is told that something is missing"
    assert world.texts(view, ["note"]).count(CUT_NOTE) == 1
    assert view.summary == f"the keys are {CUT} and {CUT}"
    shown = [event.text for event in events.drain() if isinstance(event, SessionOutput)]
    assert "DEBUG=1" in "\n".join(shown)
    everything = stored(world, database) + "\n".join(shown) + repr(view)
    for secret in (OURS, THEIRS, PASSWORD):
        assert secret not in everything


def test_why_it_failed_and_what_was_said_of_it_hold_no_secret(world: World, database: Database) -> None:
    def work(live: LiveSession) -> str:
        live.say(f"trying {OURS}")
        live.journal.note_error("exec", f"curl: (22) {OURS}")
        raise FlowError(f"the server refuses {OURS}")

    view = world.run(work)
    assert view.state is SessionState.FAILED
    assert view.error == f"the server refuses {CUT}"
    assert OURS not in stored(world, database) + repr(view)


def test_a_private_key_is_cut_over_all_its_lines(world: World) -> None:
    view = world.run(lambda live: shell(live, f"print('''{PRIVATE}'''); print('after')") and "done")
    assert world.texts(view) == [CUT, CUT, CUT, CUT, "after"]


@pytest.mark.parametrize("secret", [OURS, THEIRS, f"PASSWORD={PASSWORD}", PRIVATE])
def test_a_secret_in_two_chunks_is_one_secret(secret: str) -> None:
    data = f"before {secret} after\nthe end\n".encode()
    expected = LineSplitter(Redactor(lambda: [OURS])).split(data)
    assert CUT in "\n".join(expected)
    for cut in range(len(data)):
        splitter = LineSplitter(Redactor(lambda: [OURS]))
        assert splitter.split(data[:cut]) + splitter.split(data[cut:]) + splitter.end() == expected


@pytest.mark.parametrize("begin", [MAX_LINE - len(OURS) // 2, MAX_LINE - MAX_KEY_LENGTH - len(OURS) // 2, MAX_LINE - 1])
@pytest.mark.parametrize("filler", ["x", "x "])
def test_a_secret_that_the_end_of_a_long_line_tears_is_not_half_kept(begin: int, filler: str) -> None:
    data = (filler * MAX_LINE)[:begin].encode() + f"{OURS}{'y' * MAX_KEY_LENGTH}".encode()
    splitter = LineSplitter(Redactor(lambda: [OURS]))
    assert splitter.split(data) == []
    (line,) = splitter.split(b"\n")
    assert "more bytes cut" in line
    assert not any(OURS[:length] in line for length in range(3, len(OURS) + 1))


@pytest.mark.parametrize("secret", [OURS, THEIRS])
def test_a_test_that_is_named_by_a_key_is_kept_without_it(world: World, secret: str) -> None:
    named, shown = f"test_api.py::test_login[{secret}]", f"test_api.py::test_login[{CUT}]"
    results = []

    def work(live: LiveSession) -> str:
        check = CheckResult("pytest", 1, 1, failing=(named,), durations=((named, 1.0),))
        results.append(bound_check(check, live.without_secrets))
        return "done"

    world.run(work)
    assert [(result.failing, result.durations) for result in results] == [((shown,), ((shown, 1.0),))]

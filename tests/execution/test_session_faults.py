"""Sessions whose engine is killed, and sessions that cannot be started or stored (SPEC 3.8, 11.3)."""

import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.events.engine import FaultReported
from engine.execution.live_session import LiveSession
from engine.execution.session_processes import find_marked_processes, get_pid_folder
from engine.execution.session_run import SessionWatch
from engine.execution.session_store import SessionStore
from engine.execution.transcripts import Transcripts
from engine.model import Refusal, SessionState
from engine.storage.database import Database
from tests.execution.session_world import MakeWorld, ScriptWorld
from tests.support.checks import wait_for_threads, wait_until

# Crashes


CRASHER = """
import sys, time
from pathlib import Path
from engine.clock import SystemClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.execution.session_world import SLEEP, ScriptWorld, run_python
root = Path(sys.argv[1]); clock = SystemClock(); bus = EventBus()
world = ScriptWorld(root, Database(root / "clawpy.db", clock=clock, bus=bus), clock, bus)
for _ in range(3):
    world.start(lambda live: run_python(live, SLEEP))
while len(views := world.sessions.list_running()) < 2 or not all(map(world.read_lines, views)):
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""


def start_crasher(root: Path) -> subprocess.Popen[bytes]:
    """A process with the home `root`, in which two sessions run and one waits."""
    root.mkdir()
    engine = subprocess.Popen([sys.executable, "-c", CRASHER, str(root)], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert engine.stdout.readline() == b"ready\n"
    return engine


@pytest.mark.long
def test_after_kill_minus_nine_no_session_is_lost_and_none_runs_twice(tmp_path: Path, clock: FakeClock, bus: EventBus):
    root = tmp_path / "crash"
    with start_crasher(root) as engine:
        engine.kill()
    database = Database(root / "clawpy.db", clock=clock, bus=bus)
    world = ScriptWorld(root, database, clock, bus)
    world.runner.works = {f"work_{number}": lambda live: "run after the crash" for number in range(3)}
    load = world.sessions.store.load_rows
    running, queued = ([row.id for row in load(state=state)] for state in (SessionState.RUNNING, SessionState.QUEUED))
    assert (len(running), len(queued)) == (2, 1)
    assert len(world.sessions.recover()) == 3
    for session_id in running:
        assert find_marked_processes(session_id) == []
        view = world.sessions.get(session_id)
        assert view.state is SessionState.INTERRUPTED
        assert view.lines == len(world.sessions.read_transcript(session_id)) > 1
    assert world.sessions.wait(queued[0], 20).summary == "run after the crash"
    assert world.runner.started_ids == queued
    assert world.sessions.recover() == []
    assert list(get_pid_folder(world.home).iterdir()) == []
    world.sessions.close()
    database.close()


# What cannot be stored or started


def refuse_ends(patched: pytest.MonkeyPatch) -> list[str]:
    """Have the disk be full whenever the end of a session is stored. Returns the ids of these sessions, one for each
    refusal."""
    refused_ids = []

    def refuse(store: SessionStore, session_id: str, *_: object, **__: object):
        refused_ids.append(session_id)
        raise Refusal("disk_full", "the disk is full", "free some space")

    patched.setattr(SessionStore, "end", refuse)
    return refused_ids


@pytest.mark.long
def test_an_end_that_cannot_be_stored_is_retried_and_reported(
    world: ScriptWorld, bus: EventBus, monkeypatch: pytest.MonkeyPatch
):
    events = bus.subscribe(lambda: None)
    messages = []

    def is_stored_now() -> bool:
        messages.extend(event.message for event in events.drain() if isinstance(event, FaultReported))
        return "is stored now" in messages[-1]

    with monkeypatch.context() as patched:
        refused_ids = refuse_ends(patched)
        view = world.start(lambda live: "fine")
        wait_until(lambda: len(refused_ids) >= 2)
        assert world.sessions.list_running() == [], "it is over, and holds up nobody who waits until nothing runs"
        assert world.sessions.wait(view.id, 0).state is SessionState.SUCCEEDED, "its outcome is known"
    wait_until(is_stored_now)
    assert "tried again" in messages[0]
    assert [ended.summary for ended in world.ended] == ["fine"]


def test_an_end_that_cannot_be_stored_is_left_to_the_next_start(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch):
    world = make_world()
    with monkeypatch.context() as patched:
        refuse_ends(patched)
        view = world.start(lambda live: "fine")
        wait_until(lambda: world.runner.started_ids and not world.sessions.list_running())
        world.sessions.close()
        wait_for_threads(f"clawpy-late-{view.id}")
    after = make_world()
    assert len(after.sessions.recover()) == 1
    assert after.get_state(view) is SessionState.INTERRUPTED


@pytest.mark.long
def test_limits_hold_after_a_fault_in_the_watch(world: ScriptWorld, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    view = world.start("gate")
    wait_until(lambda: world.get_state(view) is SessionState.RUNNING)
    watched = threading.Event()

    def raise_fault(watch: SessionWatch, live: LiveSession):
        watched.set()
        raise ValueError("a fault")

    monkeypatch.setattr(SessionWatch, "publish_output", raise_fault)
    assert watched.wait(20)
    monkeypatch.undo()
    world.stop_reason = "stopped"
    assert world.wait(view).state is SessionState.CANCELLED


def test_a_transcript_that_cannot_be_made_fails_the_session(world: ScriptWorld):
    world.home.data.mkdir(parents=True, exist_ok=True)
    world.home.transcripts.write_text("in the way")
    view = world.run("gate")
    assert view.state is SessionState.FAILED
    assert view.summary.startswith("it could not be started")
    assert world.runner.started_ids == []
    assert world.ended[0].state is SessionState.FAILED


def test_queued_sessions_that_cannot_be_started_end_in_a_loop(world: ScriptWorld, monkeypatch: pytest.MonkeyPatch):
    depths = []

    def refuse(*_: object):
        depths.append(len(inspect.stack(0)))
        raise OSError

    for _ in range(5):
        world.start("gate")
    monkeypatch.setattr(Transcripts, "open", refuse)
    world.runner.gate.set()
    wait_until(lambda: len(world.ended) == 5)
    assert len(set(depths)) == 2, "it is opened at a start and at an end"

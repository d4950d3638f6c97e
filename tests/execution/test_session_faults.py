"""Sessions that are stopped, killed, or cannot be stored (SPEC 3.7, 3.8, 11.3)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.events import EventBus, FaultReported
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import WorkFailed
from engine.execution.session_processes import find_marked_processes
from engine.execution.session_run import SessionWatch
from engine.execution.session_store import SessionRow, SessionStore
from engine.execution.transcripts import MAX_CALLS
from engine.git import Git
from engine.model import Refusal, SessionState
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import SLEEP, MakeWorld, ScriptWorld, run_python
from tests.support.helpers import is_alive, wait_for_threads, wait_until

# Stops


@contextmanager
def soon() -> Iterator[None]:
    """Check that the block takes a second, and what a loaded machine takes."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 8


@pytest.mark.long
def test_stop_ends_all_processes_of_a_session_within_a_second(world: ScriptWorld) -> None:
    family = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        f"subprocess.Popen([sys.executable, '-c', {'import signal; signal.signal(15, signal.SIG_IGN); ' + SLEEP!r}],"
        " start_new_session=True)\n"
        "time.sleep(60)"
    )
    view = world.start(lambda live: run_python(live, family))
    wait_until(lambda: len(world.texts(view)) == 2)
    pids = [int(text) for text in world.texts(view)]
    with soon():
        world.sessions.stop(view.id, "the operator said so")
        ended = world.wait(view)
    assert not any(is_alive(pid) for pid in pids)
    assert find_marked_processes(view.id) == []
    assert ended.state is SessionState.CANCELLED
    assert ended.summary == "the operator said so"
    assert world.ended[0].state is SessionState.CANCELLED
    world.sessions.stop(view.id, "again")
    assert world.sessions.get(view.id).summary == "the operator said so"


@pytest.mark.long
def test_stop_all_ends_running_and_queued_sessions_within_a_second(world: ScriptWorld) -> None:
    views = [world.start(lambda live: run_python(live, SLEEP)) for _ in range(4)]
    wait_until(lambda: all(world.texts(view) for view in views[:2]))
    with soon():
        assert world.sessions.stop_all("F12") == 4
    assert {world.wait(view).state for view in views} == {SessionState.CANCELLED}
    assert len(world.runner.started_ids) == 2
    assert [world.sessions.get(view.id).started_at is None for view in views] == [False, False, True, True]
    assert len(world.ended) == 4


@pytest.mark.long
def test_a_session_whose_thread_does_not_return_is_ended_without_it(world: ScriptWorld) -> None:
    release = threading.Event()

    def ignore_stop(live: LiveSession) -> str:
        live.charge(10_000)
        live.reserve_cost(30_000)
        release.wait(20)
        live.charge(1_000)
        return "too late"

    view = world.start(ignore_stop)
    wait_until(lambda: world.runner.started_ids)
    with soon():
        world.sessions.stop(view.id, "enough")
        assert world.wait(view).state is SessionState.CANCELLED
    release.set()
    wait_for_threads(f"clawpy-{view.id}")
    assert world.sessions.get(view.id).summary == "enough"
    assert world.sessions.get(view.id).cost == 40_000, "a call without a price counts as reserved"
    assert len(world.ended) == 1


def test_tool_calls_and_errors_are_recorded_however_the_session_ended(world: ScriptWorld, database: Database) -> None:
    def work(live: LiveSession) -> str:
        for number in range(MAX_CALLS + 1):
            live.journal.note_call(f"exec:{number}")
        for _ in range(2):
            live.journal.note_error("edit", "not\x1b[0m there, sk-abcdefghijklmnopqrstuvwx")
        raise WorkFailed("no more")

    view = world.run(work)
    world.run(lambda live: "nothing of note")
    used, erred = (Ledger(database).latest(kinds=(kind,)) for kind in ("ToolsUsed", "AgentErred"))
    assert [fact.subject for fact in (*used, *erred)] == [view.id, view.id]
    assert used[0].payload["calls"] == [f"exec:{number}" for number in range(MAX_CALLS)]
    assert erred[0].payload["tool"] == "edit"
    assert "sk-abc" not in erred[0].payload["message"]
    assert "\x1b" not in erred[0].payload["message"]


def test_git_commands_of_a_session_end_with_it(world: ScriptWorld) -> None:
    subprocess.run(["git", "init", "-q"], cwd=world.workspace, check=True)

    def work(live: LiveSession) -> str:
        git = live.bind_git(Git(live.folder))
        git.output("-c", "alias.wait=!sleep 60", "wait")
        return "not reached"

    view = world.start(work)
    wait_until(lambda: len(find_marked_processes(view.id)) >= 2)
    with soon():
        world.sessions.stop(view.id, "enough")
        assert world.wait(view).state is SessionState.CANCELLED
    assert find_marked_processes(view.id) == []


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
while not all(world.texts(view) for view in world.sessions.running()) or len(world.sessions.running()) < 2:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.long
def test_after_kill_minus_nine_no_session_is_lost_and_none_runs_twice(
    tmp_path: Path, clock: FakeClock, bus: EventBus
) -> None:
    root = tmp_path / "crash"
    root.mkdir()
    engine = subprocess.Popen([sys.executable, "-c", CRASHER, str(root)], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert engine.stdout.readline() == b"ready\n"
    engine.kill()
    engine.wait()
    engine.stdout.close()
    database = Database(root / "clawpy.db", clock=clock, bus=bus)
    world = ScriptWorld(root, database, clock, bus)
    world.runner.works = {f"work_{number}": lambda live: "run after the crash" for number in range(3)}
    with database.read() as session:
        before = {row.id: row for row in session.exec(select(SessionRow))}
    running = [row for row in before.values() if row.state == "running"]
    queued = [row for row in before.values() if row.state == "queued"]
    assert (len(running), len(queued)) == (2, 1)
    messages = world.sessions.recover()
    assert len(messages) == 3
    for row in running:
        assert find_marked_processes(row.id) == []
        view = world.sessions.get(row.id)
        assert view.state is SessionState.INTERRUPTED
        assert view.lines == len(world.sessions.transcript(row.id)) > 1
    ended = {view.state for view in world.ended if view.id != queued[0].id}
    assert ended == {SessionState.INTERRUPTED}
    assert world.sessions.wait(queued[0].id, 20).summary == "run after the crash"
    assert world.runner.started_ids == [queued[0].id]
    assert world.sessions.recover() == []
    world.sessions.close()
    database.close()


# What cannot be stored or started


def test_a_transcript_that_cannot_be_made_fails_the_session(world: ScriptWorld) -> None:
    world.home.data.mkdir(parents=True, exist_ok=True)
    world.home.transcripts.write_text("in the way")
    view = world.run("gate")
    assert view.state is SessionState.FAILED
    assert view.summary.startswith("it could not be started")
    assert world.runner.started_ids == []
    assert world.ended[0].state is SessionState.FAILED


def refuse_ends(patched: pytest.MonkeyPatch) -> list[str]:
    """Have the disk be full whenever the end of a session is stored. Returns the ids of these sessions, one for each
    refusal."""
    refused_ids: list[str] = []

    def refuse(store: SessionStore, session_id: str, *_: object, **__: object) -> None:
        refused_ids.append(session_id)
        raise Refusal("disk_full", "the disk is full", "free some space")

    patched.setattr(SessionStore, "end", refuse)
    return refused_ids


@pytest.mark.long
def test_an_end_that_cannot_be_stored_is_retried_and_reported(
    world: ScriptWorld, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = bus.subscribe(lambda: None)
    messages: list[str] = []

    def is_stored_now() -> bool:
        messages.extend(event.message for event in events.drain() if isinstance(event, FaultReported))
        return any("is stored now" in message for message in messages)

    with monkeypatch.context() as patched:
        refused_ids = refuse_ends(patched)
        view = world.start(lambda live: "fine")
        wait_until(lambda: len(refused_ids) >= 2)
        assert world.sessions.running() == [], "it is over, and holds up nobody who waits until nothing runs"
        assert world.sessions.wait(view.id, 0).state is SessionState.SUCCEEDED, "its outcome is known"
    wait_until(is_stored_now)
    assert world.sessions.load_row(view.id).summary == "fine"
    assert len(world.ended) == 1
    assert "tried again" in messages[0]


@pytest.mark.parametrize("has_threads", [True, False], ids=["retried", "no thread for a retry"])
def test_an_end_that_cannot_be_stored_is_left_to_the_next_start(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, has_threads: bool
) -> None:
    world = make_world()
    start = threading.Thread.start

    def refuse_retry(thread: threading.Thread) -> None:
        if has_threads or not thread.name.startswith("clawpy-late"):
            return start(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        refuse_ends(patched)
        patched.setattr(threading.Thread, "start", refuse_retry)
        view = world.start(lambda live: "fine")
        wait_until(lambda: world.runner.started_ids and not world.sessions.running())
        world.sessions.close()
        wait_for_threads(f"clawpy-late-{view.id}")
    after = make_world()
    assert len(after.sessions.recover()) == 1
    assert after.state(view) is SessionState.INTERRUPTED


def test_a_session_without_a_thread_fails_and_leaves_its_slot(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("clawpy-sess"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        view = world.start("gate")
    assert (view.state, view.error) == (SessionState.FAILED, "it could not be started: can't start new thread")
    world.runner.gate.set()
    assert world.run("gate").state is SessionState.SUCCEEDED


@pytest.mark.long
def test_limits_hold_after_a_fault_in_the_watch(
    world: ScriptWorld, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = world.start("gate")
    wait_until(lambda: world.state(view) is SessionState.RUNNING)
    watched = threading.Event()

    def raise_fault(watch: SessionWatch, live: LiveSession) -> None:
        watched.set()
        raise ValueError("a fault")

    monkeypatch.setattr(SessionWatch, "publish_output", raise_fault)
    assert watched.wait(20)
    monkeypatch.undo()
    world.stop_reason = "stopped"
    assert world.wait(view).state is SessionState.CANCELLED


def test_sessions_started_from_many_threads_each_end_once(world: ScriptWorld) -> None:
    started: list[str] = []

    def start() -> None:
        started.extend(world.start(lambda live: live.execute(["true"], cwd=live.folder).output).id for _ in range(5))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(started) > 3)
    world.sessions.stop_all("all of them")
    for thread in threads:
        thread.join(20)
    views = [world.sessions.wait(session_id, 20) for session_id in started]
    assert len(views) == 30
    assert {view.state for view in views} <= {SessionState.SUCCEEDED, SessionState.CANCELLED}
    assert len(world.ended) == 30
    assert len(set(world.runner.started_ids)) == len(world.runner.started_ids)

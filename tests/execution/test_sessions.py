"""Sessions: permit, queue, limits, stop, transcript (SPEC 3.7, 3.8)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlmodel import select

from engine.clock import FakeClock
from engine.config import Settings
from engine.events import EventBus, FaultReported, SessionOutput
from engine.execution.journal import CALLS_MOST
from engine.execution.live import LiveSession
from engine.execution.processes import marked
from engine.execution.runners.flow import FlowUnable
from engine.execution.sessions_store import LEGAL, SessionRow, may_become, outcome_of
from engine.git import Git
from engine.memory.ledger import Ledger, append
from engine.storage.database import Database, Transaction
from engine.values import Outcome, Refusal, SessionState, Verdict
from tests.execution.session_world import PYTHON, World, shell, until

SLEEP = "import os,time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> Iterator[World]:
    world = World(tmp_path, database, clock, bus)
    yield world
    world.sessions.close()


def kinds(database: Database) -> list[str]:
    return [entry.kind for entry in reversed(Ledger(database).latest())]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# A whole life


def test_a_session_from_permit_to_summary(world: World, database: Database) -> None:
    view = world.run(lambda live: shell(live, "print('hello'); print('wörld')") and "said hello")
    assert view.state is SessionState.SUCCEEDED
    assert view.summary == "said hello"
    assert view.sandbox == "none"
    assert view.prediction_id == "pred_1"
    assert world.texts(view) == ["hello", "wörld"]
    assert [line.kind for line in world.sessions.transcript(view.id)] == ["command", "output", "output", "exit", "note"]
    assert view.lines == 5
    assert kinds(database) == ["SessionQueued", "SessionStarted", "SessionEnded"]
    assert [one.state for one in world.watcher.started] == [SessionState.RUNNING]
    (ended, result), *rest = world.watcher.ended
    assert (ended.id, result.outcome, rest) == (view.id, Outcome.SUCCEEDED, [])
    until(lambda: not (world.home.cache / "scratch" / view.id).exists())


def test_a_permit_is_good_once_and_for_one_thing(world: World) -> None:
    assignment = world.assignment(lambda live: "done")
    permit = world.permit(assignment)
    world.sessions.start(permit, assignment, agent="builder")
    with pytest.raises(Refusal, match="used"):
        world.sessions.start(permit, assignment, agent="builder")
    other = world.assignment("gate")
    with pytest.raises(Refusal) as refusal:
        world.sessions.start(permit, other, agent="builder")
    assert refusal.value.code in ("permit_used", "permit_mismatch")
    assert len(world.sessions.list()) == 1


def test_what_cannot_start_is_refused_and_uses_no_permit(world: World) -> None:
    good = world.assignment("gate")
    for change, code in (
        ({"channel": "nowhere"}, "unknown_channel"),
        ({"runner": "acp"}, "no_runner"),
        ({"flow": None}, "no_runner"),
    ):
        bad = replace(good, **change)  # type: ignore[arg-type]
        with pytest.raises(Refusal) as refusal:
            world.sessions.start(world.permit(bad), bad, agent="builder")
        assert refusal.value.code == code
    world.brakes.reason = "F12 was pressed"
    with pytest.raises(Refusal, match="F12 was pressed"):
        world.start("gate")
    assert not world.permits.used
    assert world.sessions.list() == []
    with pytest.raises(Refusal) as refusal:
        world.sessions.get("sess_nobody")
    assert refusal.value.code == "unknown_session"


def test_autonomous_work_needs_a_sandbox(world: World) -> None:
    with pytest.raises(Refusal) as refusal:
        world.start("gate", mode="autonomous")
    assert refusal.value.code == "no_sandbox"


def test_errors_of_every_kind_end_it_with_words(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def unable(live: LiveSession) -> str:
        raise FlowUnable("there is no test runner", "install pytest")

    def refused(live: LiveSession) -> str:
        raise Refusal("git_failed", "git says no")

    def broken(live: LiveSession) -> str:
        raise KeyError("oh \x1b[31mdear")

    for work, words in (
        (unable, "there is no test runner (install pytest)"),
        (refused, "git says no"),
        (broken, "unexpected error: KeyError: "),
    ):
        view = world.run(work)
        assert view.state is SessionState.FAILED
        assert view.summary.startswith(words)
        assert "\x1b" not in view.summary
        assert world.texts(view, ["error"])[-1].startswith(words)
    assert "KeyError" in caplog.text


def test_a_missing_program_is_named(world: World) -> None:
    view = world.run(lambda live: live.execute(["no-such-tool", "x"], cwd=live.folder).output)
    assert view.state is SessionState.FAILED
    assert "no-such-tool" in view.summary


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCK])
def test_the_content_filter_is_asked_before_every_command(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, verdict: Verdict
) -> None:
    seen: list[str] = []

    def judge(command: str) -> Verdict:
        seen.append(command)
        return verdict if "rm" in command else Verdict.ALLOW

    world = World(tmp_path, database, clock, bus, verdict=judge)
    victim = world.workspace / "precious"
    victim.touch()

    def work(live: LiveSession) -> str:
        live.execute(["true"], cwd=live.folder)
        live.execute(["rm", "precious"], cwd=live.folder)
        return "not reached"

    view = world.run(work)
    assert view.state is SessionState.BLOCKED
    assert "a rule says so" in view.summary
    assert seen == ["true", "rm precious"]
    assert victim.exists()
    world.sessions.close()


def test_command_results(world: World) -> None:
    found = {}

    def work(live: LiveSession) -> str:
        found["code"] = live.execute([PYTHON, "-c", "raise SystemExit(5)"], cwd=live.folder).exit_code
        found["env"] = live.execute(
            [PYTHON, "-c", "import os; print(os.environ['EXTRA'])"], cwd=live.folder, env={"EXTRA": "yes"}
        ).output
        found["slow"] = live.execute([PYTHON, "-c", SLEEP], cwd=live.folder, timeout=0.3)
        live.execute([PYTHON, "-c", "print('hidden')"], cwd=live.folder, quiet=True)
        return "ok"

    view = world.run(work)
    assert found["code"] == 5
    assert found["env"] == "yes\n"
    assert found["slow"].timed_out
    assert found["slow"].exit_code == 124
    assert "hidden" not in world.texts(view)


# Stop


def test_stop_ends_the_family_within_a_second(world: World) -> None:
    family = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        f"subprocess.Popen([sys.executable, '-c', {'import signal; signal.signal(15, signal.SIG_IGN); ' + SLEEP!r}],"
        " start_new_session=True)\n"
        "time.sleep(60)"
    )
    view = world.start(lambda live: shell(live, family))
    until(lambda: len(world.texts(view)) == 2)
    pids = [int(text) for text in world.texts(view)]
    began = time.monotonic()
    world.sessions.stop(view.id, "the operator said so")
    ended = world.sessions.wait(view.id, 5)
    assert time.monotonic() - began < 1.0
    assert not any(alive(pid) for pid in pids)
    assert marked(view.id) == []
    assert ended.state is SessionState.CANCELLED
    assert ended.summary == "the operator said so"
    assert world.watcher.ended[0][1].outcome is Outcome.CANCELLED
    world.sessions.stop(view.id, "again")
    assert world.sessions.get(view.id).summary == "the operator said so"


def test_stop_all_ends_what_runs_and_what_waits_within_a_second(world: World) -> None:
    views = [world.start(lambda live: shell(live, SLEEP)) for _ in range(4)]
    until(lambda: all(world.texts(view) for view in views[:2]))
    began = time.monotonic()
    assert world.sessions.stop_all("F12") == 4
    assert time.monotonic() - began < 1.0
    assert {world.state(view) for view in views} == {SessionState.CANCELLED}
    assert len(world.runner.begun) == 2
    assert len(world.watcher.ended) == 4


def test_work_that_is_deep_in_python_is_ended_without_its_thread(world: World) -> None:
    release = threading.Event()

    def stubborn(live: LiveSession) -> str:
        live.charge(10_000)
        live.afford(30_000)
        release.wait(20)
        live.charge(1_000)
        return "too late"

    view = world.start(stubborn)
    until(lambda: world.runner.begun)
    began = time.monotonic()
    world.sessions.stop(view.id, "enough")
    assert world.sessions.wait(view.id, 5).state is SessionState.CANCELLED
    assert time.monotonic() - began < 1.2
    release.set()
    until(lambda: not any(thread.name == f"clawpy-{view.id}" for thread in threading.enumerate()))
    assert world.sessions.get(view.id).summary == "enough"
    assert world.sessions.get(view.id).cost == 40_000, "a call that nobody told the price of counts as was reserved"
    assert len(world.watcher.ended) == 1


def test_what_its_agent_did_is_on_record_however_it_ended(world: World, database: Database) -> None:
    def work(live: LiveSession) -> str:
        for number in range(CALLS_MOST + 1):
            live.journal.used(f"exec:{number}")
        for _ in range(2):
            live.journal.erred("edit", "not\x1b[0m there, sk-abcdefghijklmnopqrstuvwx")
        raise FlowUnable("no more")

    view = world.run(work)
    world.run(lambda live: "nothing of note")
    used, erred = (Ledger(database).latest(kinds=(kind,)) for kind in ("ToolsUsed", "AgentErred"))
    assert [one.subject for one in (*used, *erred)] == [view.id, view.id]
    assert used[0].payload["calls"] == [f"exec:{number}" for number in range(CALLS_MOST)]
    assert erred[0].payload["tool"] == "edit"
    assert "sk-abc" not in erred[0].payload["message"]
    assert "\x1b" not in erred[0].payload["message"]


def test_the_kill_switch_ends_what_runs(world: World) -> None:
    view = world.start(lambda live: shell(live, SLEEP))
    until(lambda: world.texts(view))
    began = time.monotonic()
    world.brakes.reason = "clawpy stop"
    assert world.sessions.wait(view.id, 5).state is SessionState.CANCELLED
    assert time.monotonic() - began < 1.0
    assert world.sessions.get(view.id).summary == "clawpy stop"


def test_git_of_a_session_ends_with_it(world: World) -> None:
    subprocess.run(["git", "init", "-q"], cwd=world.workspace, check=True)

    def work(live: LiveSession) -> str:
        git = live.git(Git(live.folder))
        git.output("-c", "alias.wait=!sleep 60", "wait")
        return "not reached"

    view = world.start(work)
    until(lambda: len(marked(view.id)) >= 2)
    began = time.monotonic()
    world.sessions.stop(view.id, "enough")
    assert world.sessions.wait(view.id, 5).state is SessionState.CANCELLED
    assert time.monotonic() - began < 1.0
    assert marked(view.id) == []


# Queue


def test_at_most_so_many_run_and_the_rest_in_order(world: World) -> None:
    views = [world.start("gate") for _ in range(5)]
    until(lambda: len(world.runner.begun) == 2)
    assert [world.state(view) for view in views] == [SessionState.RUNNING] * 2 + [SessionState.QUEUED] * 3
    assert {view.id for view in world.sessions.running()} == {views[0].id, views[1].id}
    world.sessions.stop(views[3].id, "changed my mind")
    assert world.state(views[3]) is SessionState.CANCELLED
    world.runner.gate.set()
    for index in (0, 1, 2, 4):
        assert world.sessions.wait(views[index].id, 5).state is SessionState.SUCCEEDED
    assert sorted(world.runner.begun[:2]) == sorted(view.id for view in views[:2])
    assert sorted(world.runner.begun[2:]) == sorted([views[2].id, views[4].id])


def test_who_waits_longest_is_next(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=1))
    views = [world.start("gate") for _ in range(6)]
    world.runner.gate.set()
    for view in views:
        assert world.sessions.wait(view.id, 10).state is SessionState.SUCCEEDED
    assert world.runner.begun == [view.id for view in views]
    world.sessions.close()


def test_who_waits_for_a_person_gives_the_seat_away(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=1))
    answered = threading.Event()

    def asks(live: LiveSession) -> str:
        with live.waiting():
            until(lambda: answered.is_set() or live.cancelled)
        return "answered"

    asking = world.start(asks)
    other = world.run(lambda live: "done meanwhile")
    assert other.state is SessionState.SUCCEEDED
    assert world.state(asking) is SessionState.RUNNING
    answered.set()
    assert world.sessions.wait(asking.id, 10).summary == "answered"
    world.sessions.close()


def test_close_ends_what_runs_and_keeps_the_queue(world: World) -> None:
    views = [world.start("gate") for _ in range(3)]
    until(lambda: len(world.runner.begun) == 2)
    world.sessions.close()
    assert [world.state(view) for view in views] == [SessionState.CANCELLED] * 2 + [SessionState.QUEUED]
    with pytest.raises(Refusal, match="closing"):
        world.start("gate")


def test_who_does_not_stay_leaves_the_queue_alone(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    first = World(tmp_path, database, clock, bus)
    views = [first.start("gate") for _ in range(4)]
    until(lambda: len(first.runner.begun) == 2)
    first.sessions.close()

    brief = World(tmp_path, database, clock, bus)
    assert [word.partition("(")[0] for word in brief.sessions.recover(resume=False)] == [
        "“do it” waits for the console "
    ] * 2
    brief.sessions.stop(views[2].id, "undone")
    brief.sessions.close()
    assert [brief.state(view) for view in views[2:]] == [SessionState.CANCELLED, SessionState.QUEUED]
    assert brief.runner.begun == []

    lasting = World(tmp_path, database, clock, bus)
    lasting.runner.gate.set()
    lasting.sessions.recover()
    assert lasting.sessions.wait(views[3].id, 5).state is SessionState.SUCCEEDED
    lasting.sessions.close()


def test_stop_all_ends_what_waits_for_another_engine(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    first = World(tmp_path, database, clock, bus)
    views = [first.start("gate") for _ in range(3)]
    until(lambda: len(first.runner.begun) == 2)
    first.sessions.close()
    brief = World(tmp_path, database, clock, bus)
    brief.sessions.recover(resume=False)
    assert brief.sessions.stop_all("enough") == 1
    assert brief.state(views[2]) is SessionState.CANCELLED


# Limits


@pytest.mark.parametrize(
    ("channel", "span", "words"),
    [
        ({"session_minutes": 45, "session_silence_minutes": 60}, timedelta(minutes=45), "ran for 45 min"),
        ({}, timedelta(minutes=10), "printed nothing for 10 min"),
    ],
)
def test_time_limits_of_approved_sessions(
    tmp_path: Path,
    database: Database,
    clock: FakeClock,
    bus: EventBus,
    channel: dict[str, object],
    span: timedelta,
    words: str,
) -> None:
    world = World(tmp_path, database, clock, bus, channel=channel)
    view = world.start(lambda live: shell(live, SLEEP))
    until(lambda: world.texts(view))
    clock.advance(span - timedelta(microseconds=1))
    live = world.sessions._live[view.id]
    assert live.over_limit() == ""
    clock.advance(timedelta(microseconds=1))
    ended = world.sessions.wait(view.id, 5)
    assert ended.state is SessionState.FAILED
    assert words in ended.summary
    world.sessions.close()


def test_cost_cap_ends_it_while_it_runs(world: World) -> None:
    spent: list[int] = []

    def work(live: LiveSession) -> str:
        for _ in range(100):
            live.charge(100_000, tokens=10)
            spent.append(1)
        return "not reached"

    view = world.run(work)
    assert view.state is SessionState.FAILED
    assert len(spent) == 10  # $1.00 is allowed, the next cent is not
    assert view.summary == "it spent $1.10 of $1.00"
    assert view.cost == 1_100_000
    assert view.tokens == 110


# Transcript and events


def test_output_streams_while_it_runs(world: World, bus: EventBus) -> None:
    seen = bus.subscribe(lambda: None)
    script = "import time\nfor n in range(1200): print('line', n, flush=True); time.sleep(0.0005)"
    view = world.start(lambda live: shell(live, script) and "done")
    until(lambda: len(world.texts(view)) > 10)
    assert world.state(view) is SessionState.RUNNING
    assert world.sessions.wait(view.id, 30).state is SessionState.SUCCEEDED
    assert world.texts(view) == [f"line {n}" for n in range(1200)]
    events = [event for event in seen.drain() if isinstance(event, SessionOutput)]
    seconds = float(world.texts(view, ["exit"])[0].split("·")[1].split()[0])
    assert 1 < len(events) <= seconds * 10 + 3
    assert events[-1].last_line == world.sessions.get(view.id).lines
    page = world.sessions.transcript(view.id, after=1100, limit=3)
    assert [(line.number, line.text) for line in page] == [(n, f"line {n - 2}") for n in (1101, 1102, 1103)]


def test_nothing_wakes_up_when_nothing_runs(world: World) -> None:
    world.run(lambda live: "done")
    until(lambda: not any(thread.name.startswith("clawpy-keeper") for thread in threading.enumerate()))


# Crash


CRASHER = """
import sys, time
from pathlib import Path
from engine.clock import SystemClock
from engine.events import EventBus
from engine.memory.ledger import append
from engine.storage.database import Database
from tests.execution.session_world import World, shell
root = Path(sys.argv[1]); clock = SystemClock(); bus = EventBus()
world = World(root, Database(root / "clawpy.db", clock=clock, bus=bus, recorder=append), clock, bus)
SLEEP = "import os,subprocess,sys,time; print(os.getpid(), flush=True); time.sleep(60)"
for _ in range(3):
    world.start(lambda live: shell(live, SLEEP))
while not all(world.texts(view) for view in world.sessions.running()) or len(world.sessions.running()) < 2:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""


def test_kill_minus_nine_loses_nothing_and_runs_nothing_twice(tmp_path: Path, clock: FakeClock, bus: EventBus) -> None:

    root = tmp_path / "crash"
    root.mkdir()
    engine = subprocess.Popen([sys.executable, "-c", CRASHER, str(root)], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert engine.stdout is not None
    assert engine.stdout.readline() == b"ready\n"
    engine.kill()
    engine.wait()
    engine.stdout.close()
    database = Database(root / "clawpy.db", clock=clock, bus=bus, recorder=append)
    world = World(root, database, clock, bus)
    world.runner.works = {f"work_{n}": lambda live: "run after the crash" for n in range(3)}
    with database.read() as session:
        before = {row.id: row for row in session.exec(select(SessionRow))}
    running = [row for row in before.values() if row.state == "running"]
    queued = [row for row in before.values() if row.state == "queued"]
    assert (len(running), len(queued)) == (2, 1)
    assert all(marked(row.id) for row in running)
    words = world.sessions.recover()
    assert len(words) == 3
    for row in running:
        assert marked(row.id) == []
        view = world.sessions.get(row.id)
        assert view.state is SessionState.INTERRUPTED
        assert view.lines == len(world.sessions.transcript(row.id)) > 1
    assert {result.outcome for view, result in world.watcher.ended if view.id != queued[0].id} == {Outcome.FAILED}
    assert world.sessions.wait(queued[0].id, 5).summary == "run after the crash"
    assert world.runner.begun == [queued[0].id]
    assert world.sessions.recover() == []
    world.sessions.close()
    database.close()


# Transitions


STATES = st.sampled_from(list(SessionState))


@given(st.lists(STATES, max_size=8))
def test_whatever_is_asked_only_legal_steps_are_taken(wanted: list[SessionState]) -> None:
    state, ended = SessionState.QUEUED, 0
    for after in wanted:
        if may_become(state, after):
            assert not state.over
            assert after is not SessionState.QUEUED
            state = after
            ended += after.over
    assert ended <= 1
    assert set(LEGAL) == {SessionState.QUEUED, SessionState.RUNNING}


@given(STATES)
def test_exactly_what_is_over_has_an_outcome(state: SessionState) -> None:
    if state.over:
        assert outcome_of(state) in Outcome
    else:
        with pytest.raises(ValueError, match="no outcome"):
            outcome_of(state)


def test_more_may_run_when_the_setting_says_so(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus
) -> None:
    world = World(tmp_path, database, clock, bus, settings=Settings(max_running_sessions=3))
    for _ in range(4):
        world.start("gate")
    until(lambda: len(world.runner.begun) == 3)
    world.runner.gate.set()
    until(lambda: len(world.runner.begun) == 4)
    world.sessions.close()


# When something else goes wrong


def test_a_transcript_that_cannot_be_made_fails_the_session(world: World) -> None:
    world.home.data.mkdir(parents=True, exist_ok=True)
    world.home.transcripts.write_text("in the way")
    view = world.run("gate")
    assert view.state is SessionState.FAILED
    assert view.summary.startswith("it could not be started")
    assert world.runner.begun == []
    assert world.watcher.ended[0][1].outcome is Outcome.FAILED


def test_an_observer_that_raises_costs_no_slot_and_is_told(world: World, bus: EventBus) -> None:
    class Broken:
        def session_started(self, tx: object, view: object, /) -> None: ...

        def session_ended(self, tx: object, view: object, result: object, /) -> None:
            raise RuntimeError("no")

    seen = bus.subscribe(lambda: None)
    world.sessions.observe(Broken())
    views = [world.start(lambda live: "fine") for _ in range(3)]
    until(lambda: len(world.runner.begun) == 3 and not world.sessions.running())
    assert {world.state(view) for view in views} == {SessionState.RUNNING}  # as the database still says
    assert sum(isinstance(event, FaultReported) for event in seen.drain()) == 3


def test_an_end_that_could_not_be_stored_is_tried_again_and_both_are_told(
    world: World, bus: EventBus, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = bus.subscribe(lambda: None)
    full = threading.Event()
    full.set()
    tries = []
    write = database.write

    def refuse(work: Callable[[Transaction], object]) -> object:
        if full.is_set() and work.__qualname__.startswith("SessionRecords.end"):
            tries.append(1)
            raise Refusal("disk_full", "the disk is full", "free some space")
        return write(work)

    monkeypatch.setattr(database, "write", refuse)
    view = world.start(lambda live: "fine")
    until(lambda: len(tries) >= 2)
    assert world.sessions.running() == [], "it is over, and holds up nobody who waits until nothing runs"
    assert world.sessions.wait(view.id, 0).state is SessionState.RUNNING
    full.clear()
    ended = world.sessions.wait(view.id, 5)
    assert (ended.state, ended.summary) == (SessionState.SUCCEEDED, "fine")
    assert len(world.watcher.ended) == 1
    told = [event.message for event in seen.drain() if isinstance(event, FaultReported)]
    assert ["tried again" in told[0], "is stored now" in told[-1]] == [True, True]


def test_an_end_that_cannot_be_stored_is_left_to_the_next_start(
    tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, database, clock, bus)
    write = database.write

    def refuse(work: Callable[[Transaction], object]) -> object:
        if work.__qualname__.startswith("SessionRecords.end"):
            raise Refusal("disk_full", "the disk is full", "free some space")
        return write(work)

    with monkeypatch.context() as patched:
        patched.setattr(database, "write", refuse)
        view = world.start(lambda live: "fine")
        until(lambda: world.runner.begun and not world.sessions.running())
        began = time.monotonic()
        world.sessions.close()
        assert time.monotonic() - began < 2
    after = World(tmp_path, database, clock, bus)
    assert len(after.sessions.recover()) == 1
    assert after.state(view) is SessionState.INTERRUPTED
    after.sessions.close()


def test_a_machine_without_a_thread_left_costs_no_slot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_limits_hold_after_a_fault_in_looking_after_sessions(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = world.start("gate")
    until(lambda: world.state(view) is SessionState.RUNNING)
    judged = threading.Event()

    def faulty(live: LiveSession) -> None:
        judged.set()
        raise ValueError("a fault")

    monkeypatch.setattr(world.sessions._keeper, "report", faulty)
    assert judged.wait(5)
    monkeypatch.undo()
    world.brakes.reason = "stopped"
    assert world.sessions.wait(view.id, 5).state is SessionState.CANCELLED


def test_many_at_once_from_many_threads(world: World) -> None:
    started: list[str] = []

    def start() -> None:
        started.extend(world.start(lambda live: live.execute(["true"], cwd=live.folder).output).id for _ in range(5))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: len(started) > 3)
    world.sessions.stop_all("all of them")
    for thread in threads:
        thread.join(20)
    views = [world.sessions.wait(session_id, 20) for session_id in started]
    assert len(views) == 30
    assert {view.state for view in views} <= {SessionState.SUCCEEDED, SessionState.CANCELLED}
    assert len(world.watcher.ended) == 30
    assert len(set(world.runner.begun)) == len(world.runner.begun)

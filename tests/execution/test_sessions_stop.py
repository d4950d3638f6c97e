"""Sessions: stop ends the whole family of processes within a second (SPEC 3.7)."""

from __future__ import annotations

import subprocess
import threading
import time

import psutil
import pytest

from engine.execution.journal import MAX_CALLS
from engine.execution.live_session import LiveSession
from engine.execution.process_termination import marked_processes
from engine.execution.runners.flow import FlowError
from engine.git import Git
from engine.model import SessionState
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.execution.session_world import SLEEP, World, shell, until


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
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
    assert marked_processes(view.id) == []
    assert ended.state is SessionState.CANCELLED
    assert ended.summary == "the operator said so"
    assert world.watcher.ended[0].state is SessionState.CANCELLED
    world.sessions.stop(view.id, "again")
    assert world.sessions.get(view.id).summary == "the operator said so"


@pytest.mark.long
def test_stop_all_ends_what_runs_and_what_waits_within_a_second(world: World) -> None:
    views = [world.start(lambda live: shell(live, SLEEP)) for _ in range(4)]
    until(lambda: all(world.texts(view) for view in views[:2]))
    began = time.monotonic()
    assert world.sessions.stop_all("F12") == 4
    assert time.monotonic() - began < 1.0
    assert {world.state(view) for view in views} == {SessionState.CANCELLED}
    assert len(world.runner.begun) == 2
    assert [world.sessions.get(view.id).started_at is None for view in views] == [False, False, True, True]
    assert len(world.watcher.ended) == 4


@pytest.mark.long
def test_work_that_is_deep_in_python_is_ended_without_its_thread(world: World) -> None:
    release = threading.Event()

    def stubborn(live: LiveSession) -> str:
        live.charge(10_000)
        live.reserve_cost(30_000)
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
        for number in range(MAX_CALLS + 1):
            live.journal.note_call(f"exec:{number}")
        for _ in range(2):
            live.journal.note_error("edit", "not\x1b[0m there, sk-abcdefghijklmnopqrstuvwx")
        raise FlowError("no more")

    view = world.run(work)
    world.run(lambda live: "nothing of note")
    used, erred = (Ledger(database).latest(kinds=(kind,)) for kind in ("ToolsUsed", "AgentErred"))
    assert [fact.subject for fact in (*used, *erred)] == [view.id, view.id]
    assert used[0].payload["calls"] == [f"exec:{number}" for number in range(MAX_CALLS)]
    assert erred[0].payload["tool"] == "edit"
    assert "sk-abc" not in erred[0].payload["message"]
    assert "\x1b" not in erred[0].payload["message"]


@pytest.mark.long
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
    until(lambda: len(marked_processes(view.id)) >= 2)
    began = time.monotonic()
    world.sessions.stop(view.id, "enough")
    assert world.sessions.wait(view.id, 5).state is SessionState.CANCELLED
    assert time.monotonic() - began < 1.0
    assert marked_processes(view.id) == []

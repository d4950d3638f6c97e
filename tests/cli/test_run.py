"""`clawpy run`, `dnd` and the hand-over of a home, with real processes (SPEC 7.3, 7.5)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.headless import leave_running
from engine import Refusal, open_engine, read_holder, take_over
from engine.doors.control import ask
from engine.home import Home
from engine.values import SessionState, Status
from tests.cli.conftest import Clawpy
from tests.support.forked import Forked, Nursery

SLOW = "import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_slow(self):\n        time.sleep({})\n"


@pytest.fixture
def project(demo_project: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = demo_project(tmp_path / "shop")
    monkeypatch.chdir(folder)
    return folder


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return found


Start = Callable[..., Forked]


@pytest.fixture
def start(home: Home, project: Path, nursery: Nursery) -> Iterator[Start]:
    """Starts `clawpy run` in a process of its own and waits until it holds the home."""
    processes = ExitStack()

    def run(*options: str) -> Forked:
        process = processes.enter_context(nursery.clawpy("--home", str(home.root), "run", *options, folder=project))
        until(lambda: (holder := read_holder(home)) and holder.pid == process.pid and holder.address)
        return process

    with processes:
        yield run


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it_says_what_it_does_and_ends_cleanly(start: Start, home: Home, clawpy: Clawpy, number: int) -> None:
    process = start()
    holder = read_holder(home)
    assert holder is not None
    assert holder.kind == "headless"
    assert clawpy("tasks", "add", "look at the cart").code == 0
    process.send_signal(number)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert any("watching shop" in line for line in lines)
    assert any("look at the cart" in line for line in lines)
    assert any(line.endswith(f"ending: {signal.Signals(number).name}") for line in lines)
    assert lines[-1].endswith("ended")
    assert all(datetime.fromisoformat(line[:19]) for line in lines)
    assert read_holder(home) is None


@pytest.mark.long
def test_json_is_one_document_a_line(start: Start, clawpy: Clawpy) -> None:
    process = start("--json", "--for", "2s")
    documents = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert process.returncode == 0
    assert any(one.get("text", "").startswith("ending: its time is over") for one in documents)
    assert all("at" in one and "event" in one for one in documents)


@pytest.mark.long
def test_under_nohup_a_closed_terminal_does_not_end_it(home: Home, project: Path) -> None:
    """From cold, and ended by SIGTERM."""
    command = ["nohup", sys.executable, "-m", "clawpy_console", "--home", str(home.root), "run"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    until(lambda: (holder := read_holder(home)) and holder.address)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert "ending: SIGTERM" in said
    assert process.returncode == 0


def test_a_home_that_is_held_is_refused_and_says_by_whom(start: Start, clawpy: Clawpy) -> None:
    process = start()
    refused = clawpy("run")
    assert refused.code == 1
    assert f"the headless engine with process id {process.pid}" in refused.err


@pytest.mark.long
def test_dnd(clawpy: Clawpy, project: Path) -> None:
    until_when = clawpy("dnd", "--for", "90m", "--json").document["dndUntil"]
    left = datetime.fromisoformat(until_when) - datetime.now(UTC)
    assert timedelta(minutes=89) < left <= timedelta(minutes=90)
    status = clawpy("status", "--json").document
    assert (status["dndUntil"], status["quiet"]) == (until_when, True)
    assert "do not disturb until" in clawpy("dnd").out
    assert clawpy("dnd", "--off", "--json").document["dndUntil"] is None
    assert clawpy("status", "--json").document["dndUntil"] is None
    assert clawpy("dnd", "--for", "1h", "--off").code == 2
    assert clawpy("dnd", "--for", "never").code == 2


def run_the_tests(clawpy: Clawpy, project: Path, home: Home, seconds: float) -> str:
    """Have a slow session run; its card."""
    (project / "tests" / "test_slow.py").write_text(SLOW.format(seconds))
    card = clawpy("propose", "run_tests paths=tests/test_slow.py", "--json").document["predictions"][0]["id"]
    assert clawpy("approve", card, "--json").code == 0
    until(lambda: any(one["state"] == "running" for one in clawpy("work", "--json").document["sessions"]))
    return str(card)


@pytest.mark.long
def test_taking_over_waits_for_what_runs(start: Start, clawpy: Clawpy, home: Home, project: Path) -> None:
    process = start()
    card = run_the_tests(clawpy, project, home, 1.5)
    waited: list[bool] = []
    assert take_over(home, finish=True, enough=lambda: bool(waited.append(True)))
    assert waited
    engine = open_engine(home, workspaces=[str(project)], start_schedule=False)
    try:
        assert engine.cards.get(card).status is Status.EXECUTED
        assert engine.sessions.list()[0].state is SessionState.SUCCEEDED
    finally:
        engine.close()
    assert "a console takes over; 1 running, finished first" in process.communicate()[0]
    assert process.returncode == 0


@pytest.mark.long
def test_taking_over_now_hands_back_what_runs(start: Start, clawpy: Clawpy, home: Home, project: Path) -> None:
    process = start()
    card = run_the_tests(clawpy, project, home, 600)
    assert take_over(home, finish=False)
    engine = open_engine(home, workspaces=[str(project)], start_schedule=False)
    try:
        assert engine.cards.get(card).status is Status.EXECUTED
        assert engine.sessions.list()[0].state is SessionState.CANCELLED
        [again] = [one for one in engine.cards.pending() if one.note.startswith("handed back")]
        assert again.assignment == engine.cards.get(card).assignment
        assert again.id != card
    finally:
        engine.close()
    assert "handed back: " in process.communicate()[0]


def test_only_a_headless_engine_gives_its_home_away(home: Home, project: Path) -> None:
    engine = open_engine(home, workspaces=[str(project)], start_schedule=False)
    try:
        holder = read_holder(home)
        assert holder is not None
        with pytest.raises(Refusal) as refused:
            ask(holder.address, "handover", {})
        assert refused.value.code == "not_headless"
        with pytest.raises(Refusal):
            take_over(home)
    finally:
        engine.close()
    assert take_over(home), "nobody holds it"


@pytest.mark.long
def test_a_console_that_quits_leaves_an_engine_running(home: Home, project: Path) -> None:
    pid = leave_running(home, [str(project)])
    holder = read_holder(home)
    assert holder is not None
    assert (holder.pid, holder.kind) == (pid, "headless")
    assert os.getpgid(pid) == pid, "no signal of our terminal reaches it"
    with pytest.raises(Refusal, match=r"did not start.*is held by the headless engine"):
        leave_running(home, [str(project)])
    assert take_over(home, finish=False)
    until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
    assert "watching shop" in (home.logs / "run.log").read_text()

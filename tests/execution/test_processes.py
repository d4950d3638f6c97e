"""The processes of a session end with it: children, grandchildren, and processes that try to escape (SPEC 3.7)."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.execution import sandbox
from engine.execution.processes import Processes, ProcessesClosed
from engine.execution.sandbox import NICE
from engine.execution.session_processes import read_children
from tests.support.helpers import is_alive, wait_until

MARK = f"sess_{os.getpid()}"
"""Of this run alone: whoever runs these tests beside us has children of his own."""

IGNORE_SIGTERM = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


class RunningCommand:
    """A command that runs in a thread: its output so far, and then its result or the error."""

    def __init__(self, processes: Processes, script: str, cwd: Path, **options: float):
        self.output = b""
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(processes, script, cwd, options), daemon=True)
        self.thread.start()

    def _run(self, processes: Processes, script: str, cwd: Path, options: dict[str, float]):
        def receive(chunk: bytes):
            self.output += chunk

        try:
            argv = [sys.executable, "-c", script]
            env = {"PATH": os.environ["PATH"]}
            self.finished = processes.run(argv, cwd=cwd, env=env, on_output=receive, **options)
        except ProcessesClosed as error:
            self.error = error

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self.output.split()]


@pytest.fixture
def processes() -> Iterator[Processes]:
    group = Processes(MARK)
    yield group
    group.end()


def test_a_command_and_its_children_have_a_lower_priority(processes: Processes, tmp_path: Path):
    expected = min(19, os.nice(0) + NICE)
    script = (
        "import os, subprocess, sys, time\n"
        f"while os.nice(0) < {expected}: time.sleep(0.001)\n"  # it is told so a moment after its beginning
        "subprocess.run([sys.executable, '-c', 'import os; print(os.nice(0))'])"
    )
    run = RunningCommand(processes, script, tmp_path, timeout=20)
    run.thread.join(20)
    assert int(run.output) == expected


def test_the_machine_is_read_once_for_the_limits_of_all_sessions(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 2)
    script = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import subprocess; subprocess.run([\"sleep\", \"60\"])'])\n"
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    run = RunningCommand(processes, script, tmp_path)
    wait_until(lambda: run.pids)
    wait_until(lambda: len(psutil.Process(run.pids[0]).children(recursive=True)) == 2)
    children_of = read_children()
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "children", None)  # it reads the machine
        assert processes.find_exceeded_limit(children_of) == "it ran 3 processes, more than 2"


def test_no_command_starts_after_the_end(processes: Processes, tmp_path: Path):
    processes.end()
    run = RunningCommand(processes, "print('no')", tmp_path)
    run.thread.join(20)
    assert isinstance(run.error, ProcessesClosed)
    assert run.output == b""


@pytest.mark.long
def test_a_timeout_ends_only_its_command(processes: Processes, tmp_path: Path):
    run = RunningCommand(processes, IGNORE_SIGTERM + "time.sleep(60)", tmp_path, timeout=0.2)
    run.thread.join(20)
    assert run.finished.timed_out
    second = RunningCommand(processes, "print('still')", tmp_path)
    second.thread.join(20)
    assert second.output == b"still\n"


def test_the_end_of_a_session_leaves_other_sessions_alone(processes: Processes, tmp_path: Path):
    unrelated = Processes(f"{MARK}_other")
    running = RunningCommand(unrelated, "import os,time; print(os.getpid(), flush=True); time.sleep(60)", tmp_path)
    wait_until(lambda: len(running.pids) == 1)
    processes.end()
    assert is_alive(running.pids[0])
    unrelated.end()
    running.thread.join(20)
    assert not is_alive(running.pids[0])

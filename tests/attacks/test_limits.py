"""A session's processes end with it, and take no more of the machine than its limits (SPEC 3.8)."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution import sandbox
from engine.execution.processes import Processes
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.host_paths import make_session_environment
from engine.execution.session_processes import read_children
from tests.attacks.victim import PYTHON, Victim, find_sleepers, make_unique_seconds
from tests.support.helpers import read_table, wait_until

WAYS_OUT = read_table(__file__)["ways_out"]

pytestmark = [
    pytest.mark.attack("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux' system calls"),
]


@pytest.fixture
def victim_on_every_rung(every_rung: Sandbox, outside: Path) -> Victim:
    victim = Victim(outside, every_rung)
    victim.use_worktree()
    return victim


@contextlib.contextmanager
def run_session(victim: Victim, code: str, **limits: int) -> Iterator[tuple[Processes, bytes]]:
    """The processes of a session that runs `code`, once it printed its first line or ended."""
    confinement = victim.confinement
    argv = victim.rung.wrap([*PYTHON, f"import subprocess, time\n{code}"], confinement, cwd=confinement.folder)
    processes = Processes(victim.session_id, **limits)
    environment = make_session_environment(confinement, victim.rung, victim.session_id)
    process = processes.start(argv, cwd=confinement.folder, env=environment)
    try:
        yield processes, process.stdout.readline()
    finally:
        processes.end(grace=0)
        processes.finish(process)


def test_no_descriptor_of_the_engine_is_inherited(victim_on_every_rung: Victim):
    code = "import os; print([os.readlink(f'/proc/self/fd/{number}') for number in os.listdir('/proc/self/fd')[:-1]])"
    with (victim_on_every_rung.home.data / "keep.txt").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        with run_session(victim_on_every_rung, code) as (_, names):
            assert names.startswith(b"[")
            assert str(victim_on_every_rung.home.data).encode() not in names
            assert b"memfd" not in names


@pytest.mark.parametrize("code", WAYS_OUT.values(), ids=WAYS_OUT)
def test_no_process_outlives_its_command(victim_on_every_rung: Victim, code: str):
    seconds = make_unique_seconds()
    attempt = victim_on_every_rung.attempt(code, time=seconds)
    assert attempt.exit_code == 0, attempt.errors
    wait_until(lambda: not find_sleepers(seconds))


def test_a_command_that_kills_itself_has_the_exit_code_of_the_signal(victim_on_every_rung: Victim):
    attempt = victim_on_every_rung.attempt("os.kill(os.getpid(), 9)")
    assert attempt.exit_code in (-9, 137)


@pytest.mark.long
def test_a_session_that_uses_too_much_memory_exceeds_its_limit(victim_on_every_rung: Victim):
    """All its processes count together."""
    code = "b = b'x' * 300_000_000; print('full', flush=True); time.sleep(60)"
    with run_session(victim_on_every_rung, code, memory=200_000_000) as (processes, line):
        assert line == b"full\n"
        assert "memory" in processes.find_exceeded_limit(read_children())


def test_a_session_with_too_many_processes_exceeds_its_limit(
    victim_on_every_rung: Victim, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 20)
    code = "c = [subprocess.Popen(['sleep', '60']) for _ in range(30)]; print('many', flush=True); time.sleep(60)"
    with run_session(victim_on_every_rung, code) as (processes, line):
        # The kernel counts all but root, so that the command itself fails.
        assert not line or "processes" in processes.find_exceeded_limit(read_children())


def test_a_file_cannot_grow_beyond_the_limit(victim_on_every_rung: Victim):
    code = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.truncate(os.open('big', 66), 10 * 1024**3)"
    victim_on_every_rung.attempt(code)
    assert (victim_on_every_rung.confinement.folder / "big").stat().st_size <= sandbox.MAX_WRITTEN_FILE_BYTES

"""Attacks on processes and files outside, through every call that names one, and on the machine's resources (SPEC
3.8)."""

import contextlib
import ctypes
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.execution import sandbox
from engine.execution.processes import Processes
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.host_paths import make_session_environment
from engine.execution.session_processes import read_children
from tests.attacks.marks import find_sleepers, make_unique_seconds
from tests.attacks.victim import PYTHON, Victim
from tests.support import read_table
from tests.support.checks import wait_until

ATTACKS = read_table(__file__)

ADD_KEY = 248
"""The number of the system call add_key on x86-64."""

pytestmark = [
    pytest.mark.attack("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux' system calls"),
]


def each_attack(table: str) -> pytest.MarkDecorator:
    """The test is repeated with the `code` of each attack in this table."""
    return pytest.mark.parametrize("code", ATTACKS[table].values(), ids=ATTACKS[table])


# Other processes


def read_process_settings(pid: int) -> list[Any]:
    if sys.platform != "linux":  # the type checker does not know of the mark above
        return []
    process = psutil.Process(pid)
    scheduling = [os.sched_getaffinity(pid), os.sched_getscheduler(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)]
    return [process.nice(), process.ionice(), *scheduling, Path(f"/proc/{pid}/oom_score_adj").read_text()]


@each_attack("signals")
def test_no_signal_reaches_another_process(worker: Victim, other_process: subprocess.Popen[bytes], code: str):
    worker.attempt(code, pid=other_process.pid)
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING


@each_attack("reads")
def test_another_process_is_not_read(worker: Victim, other_process: subprocess.Popen[bytes], code: str):
    at = int(Path(f"/proc/{other_process.pid}/maps").read_text().split("-")[0], 16)
    assert "hunter2" not in worker.attempt(code, pid=other_process.pid, at=at).output


@each_attack("changes")
def test_another_process_is_not_changed(worker: Victim, other_process: subprocess.Popen[bytes], code: str):
    before = read_process_settings(other_process.pid)
    worker.attempt(code, pid=other_process.pid)
    assert read_process_settings(other_process.pid) == before


# Files and users


def read_file_state(file: Path) -> Any:
    status = file.stat()
    attributes = os.listxattr(file) if sys.platform == "linux" else []
    return file.read_text(), status.st_mode, status.st_mtime, status.st_uid, status.st_nlink, attributes


@each_attack("on_files")
def test_a_file_outside_is_neither_read_nor_changed(worker: Victim, outside: Path, code: str):
    canary = outside / "canary"
    canary.write_text("canary 4711")
    canary.chmod(0o600)
    before, folder = read_file_state(canary), outside.stat().st_mode
    attempt = worker.attempt(code, file=str(canary), at=str(outside))
    assert read_file_state(canary) == before
    assert outside.stat().st_mode == folder
    assert not (outside / "planted").exists()
    assert "4711" not in attempt.output


def test_the_files_of_a_session_may_be_changed(worker: Victim):
    attempt = worker.attempt(
        "open('f', 'w').close(); os.chmod('f', 0o755); os.utime('f', (5, 5)); os.chown('f', -1, os.getgid())\n"
        "fd = os.open('f', os.O_RDWR); os.fchmod(fd, 0o700); os.truncate('f', 3); os.utime(fd, (7, 7))\n"
        "os.symlink('f', 'l'); os.utime('l', (9, 9), follow_symlinks=False); os.chmod('/proc/self/fd/%d' % fd, 0o711)\n"
        "os.mkdir('d'); os.rename('f', 'd/g'); os.chmod('g', 0o710, dir_fd=os.open('d', os.O_RDONLY))\n"
        "import tempfile, shutil; t = tempfile.TemporaryFile(); os.fchmod(t.fileno(), 0o600)\n"
        "p = subprocess.Popen(['sleep', '60']); os.setpriority(os.PRIO_PROCESS, p.pid, 19); p.terminate(); p.wait()\n"
        "shutil.copytree('d', 'e'); a, b = socket.socketpair(); os.kill(os.getpid(), 0); print('done')"
    )
    assert attempt.output == "done\n", attempt.errors
    file = worker.confinement.folder / "d" / "g"
    assert file.stat().st_mode & 0o777 == 0o710
    assert file.stat().st_mtime == 7
    assert file.stat().st_size == 3


@each_attack("set_user_id")
def test_no_program_runs_as_its_owner(worker: Victim, code: str):
    worker.attempt(code)
    file = worker.confinement.folder / "f"
    assert not file.exists() or not file.stat().st_mode & stat.S_ISUID


# What the machine shares


def test_the_keyring_of_the_operator_is_not_read(worker: Victim):
    libc = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine != "x86_64" or libc.syscall(ADD_KEY, b"user", b"clawpy-attack", b"hunter2", 7, -3) < 0:
        pytest.skip("this kernel has no keyring")
    # The call is keyctl(KEYCTL_SEARCH, user's keyring, …), by its numbers on x86-64 and on ARM.
    attempt = worker.attempt("k = syscall(number(250, 219), 10, -3, b'user', b'clawpy-attack', 0); print('hunter2')")
    assert "hunter2" not in attempt.output


def test_shared_memory_of_the_machine_is_not_opened(worker: Victim):
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.shmget(0x4711CA, 4096, 0o1600)
    try:
        attempt = worker.attempt("assert libc.shmget(0x4711ca, 4096, 0o600) >= 0; print('found')")
        assert "found" not in attempt.output
    finally:
        libc.shmctl(key, 0, None)


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


@each_attack("ways_out")
def test_no_process_outlives_its_command(victim_on_every_rung: Victim, code: str):
    seconds = make_unique_seconds()
    attempt = victim_on_every_rung.attempt(code, time=seconds)
    assert attempt.exit_code == 0, attempt.errors
    wait_until(lambda: not find_sleepers(seconds))


@pytest.mark.long
def test_a_session_that_uses_too_much_memory_exceeds_its_limit(victim_on_every_rung: Victim):
    """All its processes count together."""
    code = "b = b'x' * 300_000_000; print('full', flush=True); time.sleep(60)"
    with run_session(victim_on_every_rung, code, max_memory=200_000_000) as (processes, line):
        assert line == b"full\n"
        assert "memory" in processes.explain_exceeded_limit(read_children())


def test_a_session_with_too_many_processes_exceeds_its_limit(
    victim_on_every_rung: Victim, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 20)
    code = "c = [subprocess.Popen(['sleep', '60']) for _ in range(30)]; print('many', flush=True); time.sleep(60)"
    with run_session(victim_on_every_rung, code) as (processes, line):
        # The kernel counts all but root, so that the command itself fails.
        assert not line or "processes" in processes.explain_exceeded_limit(read_children())


def test_a_file_cannot_grow_beyond_the_limit(victim_on_every_rung: Victim):
    code = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.truncate(os.open('big', 66), 10 * 1024**3)"
    victim_on_every_rung.attempt(code)
    assert (victim_on_every_rung.confinement.folder / "big").stat().st_size <= sandbox.MAX_WRITTEN_FILE_BYTES

"""Attacks on processes and files outside, through every call that names one, and on the machine's resources (SPEC
3.8)."""

import ctypes
import os
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.attacks.victim import Victim
from tests.support.helpers import read_table

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


def test_no_signal_reaches_the_engine(worker: Victim):
    arrived = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: arrived.set())
    try:
        worker.attempt("os.kill(P['pid'], signal.SIGUSR1)", pid=os.getpid())
        assert not arrived.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


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


def test_a_command_does_not_become_another_user(worker: Victim):
    attempt = worker.attempt(
        "print(subprocess.run(['su', '-c', 'id -u', 'nobody'], capture_output=True, text=True).stdout)"
    )
    assert attempt.output.strip() in ("", str(os.getuid()))
    attempt = worker.attempt("os.setuid(65534 if os.getuid() == 0 else 0); print('another')")
    assert "another" not in attempt.output


# What the machine shares


def test_a_crash_leaves_no_core_dump(worker: Victim):
    worker.attempt("os.kill(os.getpid(), signal.SIGSEGV); time.sleep(5)")
    assert not list(worker.confinement.folder.glob("core*"))


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


@each_attack("connecting")
def test_a_socket_of_another_program_is_not_reached(worker: Victim, outside: Path, code: str):
    path, datagram_path, name = str(outside / "s"), str(outside / "d"), f"clawpy-attack-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as file,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket() as port,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
    ):
        datagram.bind(datagram_path)
        for server, address in ((file, path), (abstract, "\0" + name), (port, ("127.0.0.1", 0))):
            server.bind(address)
            server.listen()
        worker.attempt(code, path=path, name=name, port=port.getsockname()[1], datagram=datagram_path)
        assert select.select([file, abstract, port, datagram], [], [], 0)[0] == []

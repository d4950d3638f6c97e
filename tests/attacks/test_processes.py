"""Attacks on processes and files outside, through every call that names one, and on the machine's resources."""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.execution import sandbox, session_watch
from engine.execution.processes import Processes
from engine.execution.sandbox import Sandbox
from tests.attacks.inside import Inside, sleepers, unique_seconds
from tests.support.helpers import read_table, wait_until

ATTACKS = read_table(__file__)

pytestmark = [
    pytest.mark.attack("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux' system calls"),
]


@pytest.fixture
def inside(rung: Sandbox, outside: Path) -> Inside:
    return Inside(rung, outside)


@pytest.mark.parametrize("way", ATTACKS["signals"])
def test_a_signal_to_another_process(inside: Inside, other_process: subprocess.Popen[bytes], way: str) -> None:
    inside.run(ATTACKS["signals"][way], pid=other_process.pid)
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING


def test_a_signal_to_the_engine(inside: Inside) -> None:
    arrived = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: arrived.set())
    try:
        inside.run("os.kill(P['pid'], signal.SIGUSR1)", pid=os.getpid())
        assert not arrived.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("way", ATTACKS["spies"])
def test_spying_on_another_process(inside: Inside, other_process: subprocess.Popen[bytes], way: str) -> None:
    at = int(Path(f"/proc/{other_process.pid}/maps").read_text().split("-")[0], 16)
    assert "hunter2" not in inside.run(ATTACKS["spies"][way], pid=other_process.pid, at=at).stdout


def process_settings(pid: int) -> list[Any]:
    if sys.platform != "linux":  # the type checker does not know of the mark above
        return []
    process = psutil.Process(pid)
    scheduling = [os.sched_getaffinity(pid), os.sched_getscheduler(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)]
    return [process.nice(), process.ionice(), *scheduling, Path(f"/proc/{pid}/oom_score_adj").read_text()]


@pytest.mark.parametrize("what", ATTACKS["meddling"])
def test_meddling_with_another_process(inside: Inside, other_process: subprocess.Popen[bytes], what: str) -> None:
    before = process_settings(other_process.pid)
    inside.run(ATTACKS["meddling"][what], pid=other_process.pid)
    assert process_settings(other_process.pid) == before


def file_state(file: Path) -> Any:
    status = file.stat()
    attributes = os.listxattr(file) if sys.platform == "linux" else []
    return file.read_text(), status.st_mode, status.st_mtime, status.st_uid, status.st_nlink, attributes


@pytest.mark.parametrize("way", ATTACKS["on_files"])
def test_a_file_outside(inside: Inside, outside: Path, way: str) -> None:
    canary = outside / "canary"
    canary.write_text("canary 4711")
    canary.chmod(0o600)
    before, folder = file_state(canary), outside.stat().st_mode
    done = inside.run(ATTACKS["on_files"][way], file=str(canary), at=str(outside))
    assert file_state(canary) == before
    assert outside.stat().st_mode == folder
    assert not (outside / "planted").exists()
    assert "4711" not in done.stdout


def test_its_own_files_may_be_changed(inside: Inside) -> None:
    """Nothing that a build does to its own files is refused."""
    done = inside.run(
        "open('f', 'w').close(); os.chmod('f', 0o755); os.utime('f', (5, 5)); os.chown('f', -1, os.getgid())\n"
        "fd = os.open('f', os.O_RDWR); os.fchmod(fd, 0o700); os.truncate('f', 3); os.utime(fd, (7, 7))\n"
        "os.symlink('f', 'l'); os.utime('l', (9, 9), follow_symlinks=False); os.chmod('/proc/self/fd/%d' % fd, 0o711)\n"
        "os.mkdir('d'); os.rename('f', 'd/g'); os.chmod('g', 0o710, dir_fd=os.open('d', os.O_RDONLY))\n"
        "import tempfile, shutil; t = tempfile.TemporaryFile(); os.fchmod(t.fileno(), 0o600)\n"
        "p = subprocess.Popen(['sleep', '60']); os.setpriority(os.PRIO_PROCESS, p.pid, 19); p.terminate(); p.wait()\n"
        "shutil.copytree('d', 'e'); a, b = socket.socketpair(); os.kill(os.getpid(), 0); print('done')"
    )
    assert done.stdout == "done\n", done.stderr
    file = inside.confinement.folder / "d" / "g"
    assert (file.stat().st_mode & 0o777, file.stat().st_mtime, file.stat().st_size) == (0o710, 7, 3)


@pytest.mark.parametrize("way", ATTACKS["set_user_id"])
def test_a_program_that_runs_as_its_owner(inside: Inside, way: str) -> None:
    inside.run(ATTACKS["set_user_id"][way])
    file = inside.confinement.folder / "f"
    assert not file.exists() or not file.stat().st_mode & stat.S_ISUID


def test_becoming_somebody_else(inside: Inside) -> None:
    done = inside.run("print(subprocess.run(['su', '-c', 'id -u', 'nobody'], capture_output=True, text=True).stdout)")
    assert done.stdout.strip() in ("", str(os.getuid()))
    done = inside.run("os.setuid(65534 if os.getuid() == 0 else 0); print('another')")
    assert "another" not in done.stdout


def test_a_core_dump(inside: Inside) -> None:
    inside.run("os.kill(os.getpid(), signal.SIGSEGV); time.sleep(5)")
    assert not list(inside.confinement.folder.glob("core*"))


def test_the_keyring(inside: Inside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if os.uname().machine != "x86_64" or libc.syscall(248, b"user", b"clawpy-attack", b"hunter2", 7, -3) < 0:
        pytest.skip("this kernel has no keyring")
    done = inside.run("k = syscall(250, 219, 10, -3, b'user', b'clawpy-attack', 0); print('hunter2')")
    assert "hunter2" not in done.stdout


def test_shared_memory_of_the_machine(inside: Inside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.shmget(0x4711CA, 4096, 0o1600)
    try:
        done = inside.run("assert libc.shmget(0x4711ca, 4096, 0o600) >= 0; print('found')")
        assert "found" not in done.stdout
    finally:
        libc.shmctl(key, 0, None)


@pytest.mark.parametrize("way", ATTACKS["connecting"])
def test_a_socket_of_another_program(inside: Inside, outside: Path, way: str) -> None:
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
        inside.run(ATTACKS["connecting"][way], path=path, name=name, port=port.getsockname()[1], datagram=datagram_path)
        assert select.select([file, abstract, port, datagram], [], [], 0)[0] == []


@pytest.mark.parametrize("way", ATTACKS["ways_out"])
def test_outliving_the_command(every_rung: Sandbox, outside: Path, way: str) -> None:
    seconds = unique_seconds()
    started = Inside(every_rung, outside).run(ATTACKS["ways_out"][way], time=seconds)
    assert started.returncode == 0, started.stderr
    wait_until(lambda: not sleepers(seconds), 2)


def test_a_command_that_kills_itself_says_so(every_rung: Sandbox, outside: Path) -> None:
    done = Inside(every_rung, outside).run("os.kill(os.getpid(), 9)")
    assert done.returncode in (-9, 137)


@contextlib.contextmanager
def following(inside: Inside, code: str, **bounds: int) -> Iterator[tuple[Processes, bytes]]:
    """The processes of a session that runs `code`, once it printed its first line or ended."""
    argv, environment = inside.wrap(code)
    processes = Processes(inside.session, **bounds)
    process = processes.start(argv, cwd=inside.root, env=environment)
    try:
        yield processes, process.stdout.readline()
    finally:
        processes.end(grace=0)
        processes.finish(process)


@pytest.mark.long
def test_taking_all_memory(every_rung: Sandbox, outside: Path) -> None:
    """The session's own processes are counted together, and it ends with a clear word."""
    code = "b = b'x' * 300_000_000; print('full', flush=True); time.sleep(60)"
    with following(Inside(every_rung, outside), code, memory=200_000_000) as (processes, line):
        assert line == b"full\n"
        assert "memory" in processes.exceeded_limit()


def test_too_many_processes(every_rung: Sandbox, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 20)
    code = "c = [subprocess.Popen(['sleep', '60']) for _ in range(30)]; print('many', flush=True); time.sleep(60)"
    with following(Inside(every_rung, outside), code) as (processes, line):
        assert not line or "processes" in processes.exceeded_limit()  # root is not counted by the kernel


def test_a_file_without_end(every_rung: Sandbox, outside: Path) -> None:
    code = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.truncate(os.open('big', 66), 10 * 1024**3)"
    inside = Inside(every_rung, outside)
    inside.run(code)
    assert (inside.confinement.folder / "big").stat().st_size <= sandbox.MAX_FILE_BYTES


def test_files_without_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_watch, "MIN_FREE_FILES", 1 << 62)
    assert os.statvfs(tmp_path).f_files == 0 or "more files" in session_watch.disk_shortage(tmp_path)

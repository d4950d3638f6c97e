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

from engine.execution.processes import Processes
from engine.execution.sandbox import Sandbox, limits
from tests.attacks.inside import Inside, sleepers, unique_seconds
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.attack("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux' system calls"),
]


@pytest.fixture
def inside(rung: Sandbox, outside: Path) -> Inside:
    return Inside(rung, outside)


SIGNALS = {
    "kill": "os.kill(P['pid'], 9)",
    "its group": "os.killpg(P['pid'], 9)",
    "everybody": "signal.signal(15, signal.SIG_IGN); os.kill(-1, 15)",
    "tgkill": "syscall(234, 131, P['pid'], P['pid'], 9)",
    "tkill": "syscall(200, 130, P['pid'], 9)",
    "a queued signal": "syscall(129, 138, P['pid'], 9, ctypes.create_string_buffer(struct.pack('iii', 9, 0, -1), 128))",
    "a process descriptor": "signal.pidfd_send_signal(os.pidfd_open(P['pid']), 9)",
    "an owner of a descriptor": (
        "r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETSIG, 9); fcntl.fcntl(r, fcntl.F_SETOWN, P['pid'])\n"
        "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC); os.write(w, b'x')"
    ),
    "a processor limit": "import resource; resource.prlimit(P['pid'], resource.RLIMIT_CPU, (0, 0))",
}


@pytest.mark.parametrize("way", SIGNALS)
def test_a_signal_to_another_process(inside: Inside, other_process: subprocess.Popen[bytes], way: str) -> None:
    inside.run(SIGNALS[way], pid=other_process.pid)
    assert psutil.Process(other_process.pid).status() == psutil.STATUS_SLEEPING


def test_a_signal_to_the_engine(inside: Inside) -> None:
    arrived = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: arrived.set())
    try:
        inside.run("os.kill(P['pid'], signal.SIGUSR1)", pid=os.getpid())
        assert not arrived.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


SPIES = {
    "its environment": "print(open(f'/proc/{P[\"pid\"]}/environ').read())",
    "its memory": "print(open(f'/proc/{P[\"pid\"]}/maps').read() and 'hunter2')",
    "tracing": "syscall(101, 117, 0x4206, P['pid'], 0, 0); print('hunter2')",
    "its descriptors": "print(os.readlink(f'/proc/{P[\"pid\"]}/fd/0') and 'hunter2')",
    "process_vm_readv": (
        "b = ctypes.create_string_buffer(8); v = struct.pack('PQ', ctypes.addressof(b), 8)\n"
        "syscall(310, 270, P['pid'], v, 1, struct.pack('PQ', P['at'], 8), 1, 0); print('hunter2')"
    ),
    "its root": "print(open(f'/proc/{P[\"pid\"]}/root/etc/hostname').read() and 'hunter2')",
}


@pytest.mark.parametrize("way", SPIES)
def test_spying_on_another_process(inside: Inside, other_process: subprocess.Popen[bytes], way: str) -> None:
    at = int(Path(f"/proc/{other_process.pid}/maps").read_text().split("-")[0], 16)
    assert "hunter2" not in inside.run(SPIES[way], pid=other_process.pid, at=at).stdout


MEDDLING = {
    "priority": "os.setpriority(os.PRIO_PROCESS, P['pid'], 19)",
    "priority of its group": "os.setpriority(os.PRIO_PGRP, P['pid'], 19)",
    "priority of the user": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
    "priority of input": "syscall(251, 30, 1, P['pid'], 3 << 13)",
    "processors": "os.sched_setaffinity(P['pid'], {max(os.sched_getaffinity(0))})",
    "scheduling": "os.sched_setscheduler(P['pid'], os.SCHED_IDLE, os.sched_param(0))",
    "limits": "import resource; resource.prlimit(P['pid'], resource.RLIMIT_NOFILE, (1, 1))",
    "when memory runs out": "open(f'/proc/{P[\"pid\"]}/oom_score_adj', 'w').write('999')",
}


def process_settings(pid: int) -> list[Any]:
    if sys.platform != "linux":  # the type checker does not know of the mark above
        return []
    process = psutil.Process(pid)
    scheduling = [os.sched_getaffinity(pid), os.sched_getscheduler(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)]
    return [process.nice(), process.ionice(), *scheduling, Path(f"/proc/{pid}/oom_score_adj").read_text()]


@pytest.mark.parametrize("what", MEDDLING)
def test_meddling_with_another_process(inside: Inside, other_process: subprocess.Popen[bytes], what: str) -> None:
    before = process_settings(other_process.pid)
    inside.run(MEDDLING[what], pid=other_process.pid)
    assert process_settings(other_process.pid) == before


ON_FILES = {
    "chmod": "os.chmod(P['file'], 0o777)",
    "chmod of the folder": "os.chmod(os.path.dirname(P['file']), 0o777)",
    "fchmodat": "os.chmod(os.path.basename(P['file']), 0o777, dir_fd=os.open(P['at'], os.O_PATH))",
    "chmod through a link": "os.symlink(P['file'], 'link'); os.chmod('link', 0o777)",
    "chmod through /proc": "os.chmod('/proc/self/root' + P['file'], 0o777)",
    "chmod beside the folder": "os.chmod('../canary', 0o777)",
    "chmod of an open file": "os.fchmod(os.open(P['file'], os.O_PATH), 0o777)",
    "utime": "os.utime(P['file'], (1, 1))",
    "chown": "os.chown(P['file'], 65534, 65534)",
    "truncate": "os.truncate(P['file'], 0)",
    "open for truncation": "os.open(P['file'], os.O_RDONLY | os.O_TRUNC)",
    "an attribute": "os.setxattr(P['file'], 'user.planted', b'x')",
    "a hard link": "os.link(P['file'], 'hard'); os.chmod('hard', 0o777)",
    "a move": "os.rename(P['file'], 'moved')",
    "a removal": "os.unlink(P['file'])",
    "a write": "open(P['file'], 'a').write('planted')",
    "a new file beside it": "open(os.path.dirname(P['file']) + '/planted', 'w')",
    "reading it": "print(open(P['file']).read())",
}


def file_state(file: Path) -> Any:
    status = file.stat()
    attributes = os.listxattr(file) if sys.platform == "linux" else []
    return file.read_text(), status.st_mode, status.st_mtime, status.st_uid, status.st_nlink, attributes


@pytest.mark.parametrize("way", ON_FILES)
def test_a_file_outside(inside: Inside, outside: Path, way: str) -> None:
    canary = outside / "canary"
    canary.write_text("canary 4711")
    canary.chmod(0o600)
    before, folder = file_state(canary), outside.stat().st_mode
    done = inside.run(ON_FILES[way], file=str(canary), at=str(outside))
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


SET_USER_ID = {
    "chmod": "open('f', 'w').close(); os.chmod('f', 0o4755)",
    "fchmod": "os.fchmod(os.open('f', os.O_RDWR | os.O_CREAT), 0o4755)",
    "open": "os.open('f', os.O_RDWR | os.O_CREAT, 0o4755)",
    "creat": "syscall(85, 0, b'f', 0o4755)",
    "mknod": "os.mknod('f', 0o104755)",
    "openat2": "syscall(437, 437, -100, b'f', struct.pack('QQQ', 0o102, 0o4755, 0), 24)",
}


@pytest.mark.parametrize("way", SET_USER_ID)
def test_a_program_that_runs_as_its_owner(inside: Inside, way: str) -> None:
    inside.run(SET_USER_ID[way])
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


CONNECTING = {
    "a socket in the file system": "s = socket.socket(socket.AF_UNIX); s.connect(P['path'])",
    "an abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + P['name'])",
    "a port of this machine": "s = socket.create_connection(('127.0.0.1', P['port']), timeout=2)",
    "a port by fast open": ("s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', P['port']))"),
    "a pair of datagram sockets": (
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', P['datagram'])"
    ),
}


@pytest.mark.parametrize("way", CONNECTING)
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
        inside.run(CONNECTING[way], path=path, name=name, port=port.getsockname()[1], datagram=datagram_path)
        assert select.select([file, abstract, port, datagram], [], [], 0)[0] == []


WAYS_OUT = {
    "a new session": "subprocess.Popen(['sleep', P['time']], start_new_session=True)",
    "forking twice": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.closerange(0, 10); os.execve('/bin/sleep', ['sleep', P['time']], {})\n    os._exit(0)\nos.wait()"
    ),
    "nohup": "subprocess.Popen(['sh', '-c', 'nohup sleep ' + P['time'] + ' >/dev/null 2>&1 &'])",
    "ignoring signals": (
        "for n in range(1, 32):\n    if n not in (9, 17, 19): signal.signal(n, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', P['time']], start_new_session=True)"
    ),
    "a stopped child": "p = subprocess.Popen(['sleep', P['time']]); os.kill(p.pid, signal.SIGSTOP)",
    "systemd and at": (
        "script = 'systemd-run --user sleep $0 || echo sleep $0 | at now'\n"
        "subprocess.run(['sh', '-c', script, P['time']])"
    ),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_outliving_the_command(every_rung: Sandbox, outside: Path, way: str) -> None:
    seconds = unique_seconds()
    started = Inside(every_rung, outside).run(WAYS_OUT[way], time=seconds)
    assert started.returncode == 0, started.stderr
    wait_until(lambda: not sleepers(seconds), 2)


def test_a_command_that_kills_itself_says_so(every_rung: Sandbox, outside: Path) -> None:
    done = Inside(every_rung, outside).run("os.kill(os.getpid(), 9)")
    assert done.returncode in (-9, 137)


@contextlib.contextmanager
def following(inside: Inside, code: str, **limits: int) -> Iterator[tuple[Processes, bytes]]:
    """The processes of a session that runs `code`, once it printed its first line or ended."""
    argv, environment = inside.wrap(code)
    processes = Processes(inside.session, **limits)
    process = processes.start(argv, cwd=inside.root, env=environment)
    try:
        assert process.stdout is not None
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
    monkeypatch.setattr(limits, "MAX_PROCESSES", 20)
    code = "c = [subprocess.Popen(['sleep', '60']) for _ in range(30)]; print('many', flush=True); time.sleep(60)"
    with following(Inside(every_rung, outside), code) as (processes, line):
        assert not line or "processes" in processes.exceeded_limit()  # root is not counted by the kernel


def test_a_file_without_end(every_rung: Sandbox, outside: Path) -> None:
    code = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.truncate(os.open('big', 66), 10 * 1024**3)"
    inside = Inside(every_rung, outside)
    inside.run(code)
    assert (inside.confinement.folder / "big").stat().st_size <= limits.MAX_FILE_BYTES


def test_files_without_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_FREE_FILES", 1 << 62)
    assert os.statvfs(tmp_path).f_files == 0 or "more files" in limits.disk_shortage(tmp_path)

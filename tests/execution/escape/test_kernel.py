"""Attempts on the kernel, devices and the terminal (SPEC 3.8)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pty
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import host_paths, limits, session_environment, supervisor
from tests.execution.escape.jail import PRELUDE, Jail

NUMBERS = {"x86_64": 0, "aarch64": 1}
needs_numbers = pytest.mark.skipif(platform.machine() not in NUMBERS, reason="system calls have other numbers here")


def number(x86: int, arm: int) -> int:
    return (x86, arm)[NUMBERS[platform.machine()]]


@needs_numbers
def test_mounting(jail: Jail) -> None:
    jail.holds(
        "attempt(lambda: syscall(P['mount'], b'tmpfs', P['folder'].encode(), b'tmpfs', 0, 0))\n"
        "attempt(lambda: syscall(P['mount'], P['user'].encode(), P['folder'].encode(), 0, 4096, 0))  # bind\n"
        "attempt(lambda: syscall(P['mount'], 0, b'/', 0, 32 | 4096, 0))  # remount writable\n"
        "attempt(lambda: syscall(P['umount'], P['user'].encode() + b'/.ssh', 2))\n"
        "attempt(lambda: syscall(429, -100, b'/', -100, P['folder'].encode(), 0))\n"
        "attempt(run, 'mount', '-t', 'tmpfs', 'x', '.')",
        mount=number(165, 40),
        umount=number(166, 39),
    )


@needs_numbers
def test_user_namespaces_inside(jail: Jail) -> None:
    """Where an unprivileged program becomes root over a part of the kernel."""
    jail.holds(
        "attempt(lambda: syscall(P['unshare'], 0x10000000)); attempt(run, 'unshare', '-Ur', 'true')\n"
        "attempt(lambda: syscall(P['unshare'], 0x20000))\n"
        "attempt(lambda: syscall(P['clone'], 0x10000000 | 17, 0, 0, 0, 0))\n"
        "attempt(lambda: syscall(435, ctypes.create_string_buffer(struct.pack('<Q', 0x10000000) + bytes(80)), 88))",
        unshare=number(272, 97),
        clone=number(56, 220),
    )


@needs_numbers
def test_other_programs_namespaces(jail: Jail) -> None:
    jail.holds(
        "def join(name):\n"
        "    syscall(P['setns'], os.open(name, os.O_RDONLY), 0)\n"
        "for name in (f'/proc/{P[\"engine\"]}/ns/mnt', '/proc/1/ns/user', '/proc/self/ns/net'): attempt(join, name)",
        setns=number(308, 268),
    )


@needs_numbers
def test_the_kernels_keyring(jail: Jail) -> None:
    """Keys go with the credentials: a namespace does not hide them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number(248, 217), b"user", b"clawpy-test", b"hunter2", 7, -3) < 0:
        pytest.skip("this kernel has no keyring")
    jail.holds(
        "def take():\n"
        "    key = syscall(P['keyctl'], 10, -3, b'user', b'clawpy-test', 0)  # search\n"
        "    found = ctypes.create_string_buffer(20); syscall(P['keyctl'], 11, key, found, 20); return found.value\n"
        "attempt(take); attempt(lambda: syscall(P['keyctl'], 0, -4, 0))\n"
        "attempt(lambda: syscall(P['request'], b'user', b'clawpy-test', 0, 0))",
        keyctl=number(250, 219),
        request=number(249, 218),
    )


@needs_numbers
def test_calls_where_kernels_had_holes(jail: Jail) -> None:
    tried = jail.holds(
        "for call in P['calls']:\n    attempt(lambda: syscall(call, 0, 0, 0, 0, 0))",
        calls=[number(321, 280), number(298, 241), number(323, 282), 425, number(175, 105), number(246, 104)],
    )
    refused = (f"Errno {errno.EPERM}]", f"Errno {errno.ENOSYS}]")  # not for its arguments, which are nonsense
    assert all(any(word in line for word in refused) for line in tried.output.splitlines())


def test_the_clock(jail: Jail) -> None:
    jail.holds(
        "attempt(time.clock_settime, time.CLOCK_REALTIME, time.time())\nattempt(run, 'date', '-s', f'@{time.time()}')"
    )


def test_settings_of_the_kernel(jail: Jail) -> None:
    jail.holds(
        "for name in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger',\n"
        "             '/proc/sys/vm/drop_caches', '/sys/kernel/mm/transparent_hugepage/enabled', '/sys/power/state',\n"
        "             '/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/memory/notify_on_release'):\n"
        "    attempt(write, name, '')\n"
        "attempt(socket.sethostname, socket.gethostname())"
    )


def test_devices(jail: Jail) -> None:
    jail.holds(
        "import stat\n"
        "for name in ('/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/fuse', '/dev/loop0', '/dev/sda', '/dev/vda',"
        " '/dev/input/event0', '/dev/snd/controlC0'):\n"
        "    attempt(os.open, name, os.O_RDWR)\n"
        "def node():\n"
        "    os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0)); return os.open('disk', os.O_RDWR)\n"
        "attempt(node)"
    )


def test_setuid_programs_have_no_effect(jail: Jail) -> None:
    tried = jail.tries("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in tried.output.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[f"Cap{kind}"].strip("0\n") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
    if os.geteuid() == 0 or jail.sandbox.name == "bubblewrap":  # else nobody may drop it, and NoNewPrivs makes it idle
        assert int(status["CapBnd"], 16) == 0


def test_becoming_another_user(jail: Jail) -> None:
    jail.holds(
        "attempt(os.setuid, os.getuid() + 1); attempt(os.setgroups, [0, 4, 27]); attempt(run, 'sudo', '-n', 'true')\n"
        "attempt(run, 'su', '-c', 'true', stdin=subprocess.DEVNULL) if os.getuid() else None"
    )


def test_typing_into_the_operators_terminal(jail: Jail) -> None:
    """TIOCSTI puts characters where the operator's shell reads them."""
    code = (
        "import fcntl\n"
        "for name in ('/dev/tty', P['terminal']):\n"
        "    def push():\n"
        "        terminal = os.open(name, os.O_RDWR | os.O_NOCTTY)\n"
        "        fcntl.ioctl(terminal, 0x5412, b'x'); return name\n"
        "    attempt(push)\n"
        "for number in (0, 1, 2): attempt(fcntl.ioctl, number, 0x5412, b'x')"
    )
    outer, inner = pty.openpty()
    try:
        done = subprocess.run(
            jail.sandbox.wrap(
                [sys.executable, "-c", PRELUDE + code, f'{{"terminal": "{os.ttyname(inner)}"}}'],
                jail.confinement,
                cwd=jail.folder,
            ),
            env=session_environment(jail.confinement, jail.sandbox, jail.session_id, jail.operator),
            stdin=inner,
            stdout=subprocess.PIPE,
            stderr=inner,
            text=True,
            timeout=30,
            start_new_session=True,
        )
    finally:
        os.close(inner)
        os.close(outer)
    assert "held" in done.stdout
    assert "ESCAPED" not in done.stdout


@needs_numbers
def test_files_by_their_handle(jail: Jail) -> None:
    """A handle names a file without a path, so no mount hides it."""
    jail.holds(
        "handle = ctypes.create_string_buffer(struct.pack('<II', 128, 0) + bytes(128)); mount = ctypes.c_int()\n"
        "def open_it():\n"
        "    syscall(P['name'], -100, P['user'].encode(), handle, ctypes.byref(mount), 0)\n"
        "    return syscall(P['open'], os.open('/', os.O_RDONLY), handle, 0)\n"
        "attempt(open_it)",
        name=number(303, 264),
        open=number(304, 265),
    )


def test_the_machines_own_log(jail: Jail) -> None:
    jail.holds(
        "attempt(run, 'dmesg') ; attempt(read, '/dev/kmsg'); attempt(read, '/proc/kmsg'); attempt(read, '/proc/kcore')"
    )


def test_what_it_inherits(jail: Jail) -> None:
    """No descriptor of the engine's comes along: its database, its transcripts, its sockets."""
    with Path(jail.home.data / "keep.txt").open() as secret:
        os.set_inheritable(secret.fileno(), False)
        tried = jail.tries(
            "print(sorted(os.readlink(f'/proc/self/fd/{one}') for one in os.listdir('/proc/self/fd')[:-1]))"
        )
    assert str(jail.home.data) not in tried.output
    assert "memfd" not in tried.output


# Attempts to take the machine down: processes, files, memory of their own (SPEC 3.8).


BOMB = """
import os, sys, time
count = 0
try:
    while count < {most}:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        count += 1
except OSError as error:
    print("held after", count, error, flush=True)
else:
    print("ESCAPED", count, flush=True)
"""


def test_a_fork_bomb(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is exempt from the limit, so the attempt is made as someone else where the tests run as root."""
    monkeypatch.setattr(limits, "MAX_PROCESSES", 200)
    most = 1000 + len(psutil.pids())
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        root = Path(name)
        confinement = type(jail.confinement)(root / "folder", root / "scratch", root / "caches")
        confinement.folder.mkdir()
        confinement.make()
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HOME", "/nowhere")
            for tool in host_paths.TOOLS:
                patched.delenv(tool.variable, raising=False)
            patched.setenv("PATH", "/usr/bin:/bin")  # our own environment may lie where nobody else may look
            argv = jail.sandbox.wrap(
                ["/usr/bin/python3", "-c", BOMB.format(most=most)],
                confinement,
                cwd=root / "folder",
            )
        environment = {"PATH": "/usr/bin:/bin"}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            if shutil.which("setpriv") is None or not Path("/usr/bin/python3").exists():
                pytest.skip("no way to run it as someone else")
            for path in (root, *root.rglob("*")):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            argv = _for_another_user(argv, root)
            user = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            argv = ["setpriv", *user, *argv]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, cwd="/")
    assert "held" in done.stdout, done.stdout + done.stderr
    assert "ESCAPED" not in done.stdout


def _for_another_user(argv: list[str], root: Path) -> list[str]:
    """The same command line for somebody who can read neither our filter, nor our interpreter and our programs."""
    supervising = shutil.copy(supervisor.__file__, root / "supervisor.py")
    Path(supervising).chmod(0o644)
    readable = {supervisor.program_path(): str(supervising), sys.executable: "/usr/bin/python3"}
    argv = [readable.get(word, word) for word in argv]
    if "--seccomp" in argv:
        at = argv.index("--seccomp")
        del argv[at : at + 2]
    return ["/dev/null" if word.startswith("/proc/") and "/fd/" in word else word for word in argv]


def test_a_file_without_end(jail: Jail) -> None:
    """Ten gigabytes, asked for without writing them; and a small file is nobody's business."""
    jail.holds(
        "file = os.open('big', os.O_WRONLY | os.O_CREAT)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "attempt(os.ftruncate, file, 10 * 1024**3); attempt(os.posix_fallocate, file, 3 * 1024**3, 10)\n"
        "attempt(os.pwrite, file, b'x', 10 * 1024**3); os.pwrite(file, b'x' * 1024, 0)"
    )
    assert (jail.folder / "big").stat().st_size <= limits.MAX_FILE_BYTES


def test_filling_shared_memory(jail: Jail) -> None:
    jail.holds(
        "def fill():\n"
        "    file = os.open('/dev/shm/big', os.O_WRONLY | os.O_CREAT)\n"
        "    return os.posix_fallocate(file, 0, 600 * 1024**2)\n"
        "attempt(fill)"
    )


def test_filling_what_stands_for_a_secret(jail: Jail) -> None:
    jail.holds(
        "def fill(place):\n"
        "    file = os.open(place + '/big', os.O_WRONLY | os.O_CREAT)\n"
        "    return os.posix_fallocate(file, 0, 10 * 1024**2)\n"
        "for place in (P['user'] + '/.ssh', '/run'): attempt(fill, place)"
    )


def test_the_session_goes_first_when_memory_runs_out(jail: Jail) -> None:
    tried = jail.tries(
        "print(open('/proc/self/oom_score_adj').read())\nattempt(write, '/proc/self/oom_score_adj', '-1000')"
    )
    assert int(tried.output.split()[0]) > int(Path("/proc/self/oom_score_adj").read_text())
    if sys.platform == "linux" and os.geteuid() != 0:
        assert not tried.escapes


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.disk_shortage(tmp_path, tmp_path / "gone") == ""
    monkeypatch.setattr(limits, "MIN_FREE_BYTES", 1 << 60)
    assert str(tmp_path) in limits.disk_shortage(tmp_path)

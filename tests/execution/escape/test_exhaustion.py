"""Attempts to take the machine down: processes, files, memory of their own (SPEC 3.8)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import host_paths, limits, supervisor
from tests.execution.escape.jail import Jail

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

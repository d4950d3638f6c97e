"""A command that starts processes without end is stopped by the limit on the processes of a user (SPEC 3.7)."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from engine.execution import sandbox
from engine.execution.sandbox import SUPERVISOR_FOLDER, Confinement, Sandbox, host_paths

pytestmark = pytest.mark.attack("escapes")


BOMB = """
import os, sys, time
count = 0
try:
    while count < {maximum}:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        count += 1
except OSError as error:
    print("held after", count, error, flush=True)
else:
    print("ESCAPED", count, flush=True)
"""


def run_as_nobody(argv: list[str], root: Path) -> list[str]:
    """The command line by which the user "nobody" runs a command of `root`, which becomes the user's own folder."""
    if shutil.which("setpriv") is None or not Path("/usr/bin/python3").exists():
        pytest.skip("no way to run it as someone else")
    nobody = pwd.getpwnam("nobody")
    for path in (root, *root.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    user = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    return ["setpriv", *user, *make_readable(argv, root)]


def make_readable(argv: list[str], root: Path) -> list[str]:
    """A command line without what another user cannot read: the filter, our interpreter and our programs."""
    supervising = root / "supervising"
    shutil.copytree(SUPERVISOR_FOLDER / "supervisor", supervising / "supervisor")
    for path in (supervising, *supervising.rglob("*")):
        path.chmod(0o755)
    readable = {str(SUPERVISOR_FOLDER): str(supervising), sys.executable: "/usr/bin/python3"}
    argv = [readable.get(word, word) for word in argv]
    if "--seccomp" in argv:
        at = argv.index("--seccomp")
        del argv[at : at + 2]
    return ["/dev/null" if word.startswith("/proc/") and "/fd/" in word else word for word in argv]


def test_a_fork_bomb_is_stopped_by_the_limit_on_processes(rung: Sandbox, monkeypatch: pytest.MonkeyPatch):
    """Root is exempt from the limit, so another user makes the attempt where the tests run as root."""
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 200)
    maximum = 1000 + len(psutil.pids())
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        root = Path(name)
        confinement = Confinement(root / "folder", root / "scratch", root / "caches")
        confinement.folder.mkdir()
        confinement.make()
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HOME", "/nowhere")
            for tool in host_paths.TOOLS:
                patched.delenv(tool.variable, raising=False)
            patched.setenv("PATH", "/usr/bin:/bin")  # our own environment may lie where nobody else may look
            bomb = ["/usr/bin/python3", "-c", BOMB.format(maximum=maximum)]
            argv = rung.wrap(bomb, confinement, cwd=confinement.folder)
        if os.geteuid() == 0:
            argv = run_as_nobody(argv, root)
        environment = {"PATH": "/usr/bin:/bin"}
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, cwd="/")
    assert "held" in completed.stdout, completed.stdout + completed.stderr
    assert "ESCAPED" not in completed.stdout

"""Attempts of a session's commands to read, change and start what is the operator's, and to take the machine down (SPEC
3.7, 3.8, 3.9). Most are rows of `test_escapes.toml`."""

from __future__ import annotations

import os
import pty
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from engine.execution import sandbox, session_watch
from engine.execution.sandbox import host_paths, supervisor
from tests.attacks.jail import Jail
from tests.support.helpers import read_table

ATTEMPTS = read_table(__file__)

pytestmark = pytest.mark.attack("escapes")


@pytest.mark.parametrize("what", ATTEMPTS["held"])
def test_an_attempt_is_held(jail: Jail, what: str) -> None:
    jail.holds(ATTEMPTS["held"][what])


@pytest.mark.parametrize("what", ATTEMPTS["in_the_operators_tree"])
def test_an_attempt_in_the_operators_tree_is_held(jail: Jail, what: str) -> None:
    jail.in_the_operators_tree()
    jail.holds(ATTEMPTS["in_the_operators_tree"][what])


@pytest.mark.long
def test_exchanging_what_the_next_command_mounts(jail: Jail) -> None:
    """A command cannot put a link in the place of a folder that is mounted writable for the next one."""
    for name in ("files", "tmp", "home", "layers", "caches"):
        jail.tries(
            f"name = P['scratch'] + '/../{name}'\n"
            "for act in (lambda: os.rename(name, name + '2'), lambda: os.rmdir(name), lambda: os.unlink(name),\n"
            "            lambda: os.symlink(P['user'], name)):\n"
            "    attempt(act)"
        )
        assert (jail.confinement.scratch / name).is_dir()
        assert not (jail.confinement.scratch / name).is_symlink()
    jail.tries("write('/tmp/.bashrc'); write('/tmp/notes.txt')")
    assert (jail.user / ".bashrc").read_text() == "# the operator's\n"
    assert (jail.user / "notes.txt").read_text() == "the operator's notes\n"


def test_moving_a_secret_inside_the_folder_out_of_its_hiding_place(jail: Jail) -> None:
    """A home of the engine's inside the workspace: its parents cannot be renamed to find it elsewhere later."""
    inner = jail.project / "deep" / "er"
    inner.mkdir(parents=True)
    (inner / "key").write_text("PRIVATE")
    jail.in_the_operators_tree()
    jail.confinement = type(jail.confinement)(
        jail.project, jail.confinement.scratch, jail.confinement.caches, hidden=(*jail.confinement.hidden, inner)
    )
    jail.holds("attempt(read, 'deep/er/key'); attempt(os.rename, 'deep', 'moved')")
    jail.holds("attempt(read, 'deep/er/key'); attempt(read, 'moved/er/key')")


def test_files_of_other_programs_in_tmp(jail: Jail) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="clawpy-other-", mode="w") as other:
        other.write("a session of another program")
        other.flush()
        tried = jail.tries("attempt(write, P['other']); attempt(read, P['other'])", other=other.name)
        assert tried.exit_code == 0, tried.errors
        assert "of another program" not in tried.output
        assert Path(other.name).read_text() == "a session of another program"


def test_leaving_something_in_the_machines_tmp(jail: Jail) -> None:
    name = f"clawpy-left-{os.getpid()}"
    jail.tries("for place in ('/tmp/', '/var/tmp/', '/dev/shm/'): attempt(write, place + P['name'])", name=name)
    assert not any(Path(place, name).exists() for place in ("/tmp", "/var/tmp", "/dev/shm"))


@pytest.mark.long
def test_exchanging_the_worktrees_git_file(jail: Jail) -> None:
    """Where one file cannot be held in a folder that is written, it is put back after the command."""
    before = (jail.folder / ".git").read_bytes()
    exchange = "lambda: (os.unlink('.git'), os.symlink('/etc', '.git'))"
    for attempt in ("write, '.git'", "os.unlink, '.git'", "os.rename, '.git', 'old'", exchange):
        tried = jail.tries(f"attempt({attempt}); attempt(lambda: os.rename(P['folder'], P['folder'] + '2'))")
        assert tried.exit_code == 0, tried.errors
        assert not (jail.folder / ".git").is_symlink()
        assert (jail.folder / ".git").read_bytes() == before
        assert jail.folder.is_dir()


def test_a_git_folder_that_is_a_link(jail: Jail) -> None:
    """A link cannot be held in its place, so nothing in such a folder is writable."""
    jail.in_the_operators_tree()
    moved = jail.user / "project.git"
    (jail.project / ".git").rename(moved)
    (jail.project / ".git").symlink_to(moved)
    config = (moved / "config").read_bytes()
    jail.tries(
        "git = P['project'] + '/.git'; attempt(os.unlink, git); attempt(os.rename, git, git + '2')\n"
        "attempt(write, git + '/config')"
    )
    assert (jail.project / ".git").readlink() == moved
    assert (moved / "config").read_bytes() == config


def test_writing_a_submodules_configuration(jail: Jail) -> None:
    inner = jail.project / "deep" / "inner"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    (jail.project / ".gitmodules").write_text('[submodule "inner"]\n\tpath = deep/inner\n\turl = ./inner\n')
    jail.in_the_operators_tree()
    before = [(jail.project / name).read_bytes() for name in ("deep/inner/.git/config", ".gitmodules")]
    jail.tries(
        "os.chdir(P['project'])\n"
        "attempt(write, 'deep/inner/.git/config'); attempt(os.rename, 'deep/inner/.git', 'old')\n"
        "attempt(os.rename, 'deep', 'moved'); attempt(write, '.gitmodules'); attempt(os.unlink, '.gitmodules')"
    )
    assert before == [(jail.project / name).read_bytes() for name in ("deep/inner/.git/config", ".gitmodules")]


def test_setuid_programs_have_no_effect(jail: Jail) -> None:
    tried = jail.tries("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in tried.output.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[f"Cap{kind}"].strip("0\n") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
    if os.geteuid() == 0 or jail.sandbox.name == "bubblewrap":  # else nobody may drop it, and NoNewPrivs makes it idle
        assert int(status["CapBnd"], 16) == 0


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
        tried = jail.tries(code, inner, terminal=os.ttyname(inner))
    finally:
        os.close(inner)
        os.close(outer)
    assert tried.held
    assert not tried.escapes


def test_what_it_inherits(jail: Jail) -> None:
    """No descriptor of the engine's comes along: its database, its transcripts, its sockets."""
    with Path(jail.home.data / "keep.txt").open() as secret:
        os.set_inheritable(secret.fileno(), False)
        tried = jail.tries(
            "print(sorted(os.readlink(f'/proc/self/fd/{one}') for one in os.listdir('/proc/self/fd')[:-1]))"
        )
    assert str(jail.home.data) not in tried.output
    assert "memfd" not in tried.output


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
    monkeypatch.setattr(sandbox, "MAX_PROCESSES", 200)
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


def test_the_session_goes_first_when_memory_runs_out(jail: Jail) -> None:
    tried = jail.tries(
        "print(open('/proc/self/oom_score_adj').read())\nattempt(write, '/proc/self/oom_score_adj', '-1000')"
    )
    assert int(tried.output.split()[0]) > int(Path("/proc/self/oom_score_adj").read_text())
    if sys.platform == "linux" and os.geteuid() != 0:
        assert not tried.escapes


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session_watch.disk_shortage(tmp_path, tmp_path / "gone") == ""
    monkeypatch.setattr(session_watch, "MIN_FREE_BYTES", 1 << 60)
    assert str(tmp_path) in session_watch.disk_shortage(tmp_path)

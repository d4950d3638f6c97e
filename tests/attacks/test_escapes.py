"""Attempts of a session's commands to read, change and start what is the operator's, and to take the machine down (SPEC
3.7, 3.8, 3.9). Most are rows of `test_escapes.toml`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from tests.attacks.victim import Victim
from tests.support.helpers import read_table

ATTEMPTS = read_table(__file__)

pytestmark = pytest.mark.attack("escapes")


@pytest.fixture
def worker(victim: Victim) -> Victim:
    """The victim of a session that works in a worktree."""
    victim.use_worktree()
    return victim


@pytest.fixture
def checker(victim: Victim) -> Victim:
    """The victim of a session that works over the operator's tree, where the rung can lay something over it."""
    if not victim.confinement.is_ephemeral:
        victim.use_worktree()
    return victim


@pytest.mark.parametrize("name", ATTEMPTS["held"])
def test_an_attempt_from_a_worktree_is_held(worker: Victim, name: str) -> None:
    worker.assert_held(ATTEMPTS["held"][name])


@pytest.mark.parametrize("name", ATTEMPTS["in_the_operators_tree"])
def test_an_attempt_from_the_operators_tree_is_held(checker: Victim, name: str) -> None:
    checker.assert_held(ATTEMPTS["in_the_operators_tree"][name])


# Mounted folders and /tmp


@pytest.mark.long
def test_no_link_replaces_a_folder_that_the_next_command_mounts(worker: Victim) -> None:
    for name in ("files", "tmp", "home", "layers", "caches"):
        worker.attempt(
            f"name = P['scratch'] + '/../{name}'\n"
            "for act in (lambda: os.rename(name, name + '2'), lambda: os.rmdir(name), lambda: os.unlink(name),\n"
            "            lambda: os.symlink(P['user'], name)):\n"
            "    attempt(act)"
        )
        assert (worker.confinement.scratch / name).is_dir()
        assert not (worker.confinement.scratch / name).is_symlink()
    worker.attempt("write('/tmp/.bashrc'); write('/tmp/notes.txt')")
    assert (worker.user / ".bashrc").read_text() == "# the operator's\n"
    assert (worker.user / "notes.txt").read_text() == "the operator's notes\n"


def test_a_hidden_folder_in_the_workspace_is_not_moved_out_of_its_place(checker: Victim) -> None:
    inner = checker.project / "deep" / "er"
    inner.mkdir(parents=True)
    (inner / "key").write_text("PRIVATE")
    checker.confinement = Confinement(
        checker.project,
        checker.confinement.scratch,
        checker.confinement.caches,
        hidden=(*checker.confinement.hidden, inner),
    )
    checker.assert_held("attempt(read, 'deep/er/key'); attempt(os.rename, 'deep', 'moved')")
    checker.assert_held("attempt(read, 'deep/er/key'); attempt(read, 'moved/er/key')")


def test_files_of_other_programs_in_tmp_are_not_seen(worker: Victim) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="clawpy-other-", mode="w") as file:
        file.write("a session of another program")
        file.flush()
        attempt = worker.attempt("attempt(write, P['file']); attempt(read, P['file'])", file=file.name)
        assert attempt.exit_code == 0, attempt.errors
        assert "of another program" not in attempt.output
        assert Path(file.name).read_text() == "a session of another program"


def test_nothing_is_left_in_the_tmp_of_the_machine(worker: Victim) -> None:
    name = f"clawpy-left-{os.getpid()}"
    worker.attempt("for place in ('/tmp/', '/var/tmp/', '/dev/shm/'): attempt(write, place + P['name'])", name=name)
    assert not any(Path(place, name).exists() for place in ("/tmp", "/var/tmp", "/dev/shm"))


# The git folder and submodules


@pytest.mark.long
def test_the_git_file_of_a_worktree_is_unchanged_after_the_command(worker: Victim) -> None:
    before = (worker.confinement.folder / ".git").read_bytes()
    exchange = "lambda: (os.unlink('.git'), os.symlink('/etc', '.git'))"
    for action in ("write, '.git'", "os.unlink, '.git'", "os.rename, '.git', 'old'", exchange):
        attempt = worker.attempt(f"attempt({action}); attempt(lambda: os.rename(P['folder'], P['folder'] + '2'))")
        assert attempt.exit_code == 0, attempt.errors
        assert not (worker.confinement.folder / ".git").is_symlink()
        assert (worker.confinement.folder / ".git").read_bytes() == before
        assert worker.confinement.folder.is_dir()


def test_a_git_folder_that_is_a_link_is_unchanged(checker: Victim) -> None:
    moved = checker.user / "project.git"
    (checker.project / ".git").rename(moved)
    (checker.project / ".git").symlink_to(moved)
    config = (moved / "config").read_bytes()
    checker.attempt(
        "git = P['project'] + '/.git'; attempt(os.unlink, git); attempt(os.rename, git, git + '2')\n"
        "attempt(write, git + '/config')"
    )
    assert (checker.project / ".git").readlink() == moved
    assert (moved / "config").read_bytes() == config


@pytest.fixture
def mounting_worker(worker: Victim) -> Victim:
    """The victim of a session in a worktree, on a rung that protects git's files in it by mounts."""
    if worker.rung.name != "bubblewrap":
        pytest.skip(f"{worker.rung.name} mounts nothing; what it protects is the worktree's own .git file")
    return worker


def test_nothing_is_written_beside_a_git_folder_that_is_a_link(mounting_worker: Victim) -> None:
    own_git = mounting_worker.confinement.folder / ".git"
    moved = mounting_worker.confinement.folder / "moved.git"
    own_git.rename(moved)
    own_git.symlink_to(moved)
    mounting_worker.assert_held("attempt(os.unlink, '.git'); attempt(write, 'moved.git'); attempt(write, 'code.py')")
    assert own_git.readlink() == moved


SUBMODULE = """
attempt(write, 'deep/inner/.git/config'); attempt(os.rename, 'deep/inner/.git', 'old')
attempt(os.rename, 'deep', 'moved'); attempt(write, '.gitmodules'); attempt(os.unlink, '.gitmodules')
"""


def add_submodule(tree: Path) -> list[Path]:
    """Make a submodule in a folder two levels down; the files that lead git into it."""
    inner = tree / "deep" / "inner"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=inner, check=True)
    (tree / ".gitmodules").write_text('[submodule "inner"]\n\tpath = deep/inner\n\turl = ./inner\n')
    return [inner / ".git" / "config", tree / ".gitmodules"]


def test_the_configuration_of_a_submodule_is_unchanged(checker: Victim) -> None:
    files = add_submodule(checker.project)
    before = [file.read_bytes() for file in files]
    checker.attempt(f"os.chdir(P['project'])\n{SUBMODULE}")
    assert [file.read_bytes() for file in files] == before


def test_the_configuration_of_a_submodule_in_a_worktree_is_held(mounting_worker: Victim) -> None:
    files = add_submodule(mounting_worker.confinement.folder)
    before = [file.read_bytes() for file in files]
    mounting_worker.assert_held(SUBMODULE)
    assert [file.read_bytes() for file in files] == before


# Users, terminals, descriptors and resources


def test_setuid_programs_have_no_effect(worker: Victim) -> None:
    attempt = worker.attempt("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in attempt.output.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[f"Cap{kind}"].strip("0\n") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
    if os.geteuid() == 0 or worker.rung.name == "bubblewrap":  # else nobody may drop it, and NoNewPrivs makes it idle
        assert int(status["CapBnd"], 16) == 0


def test_nothing_is_typed_into_the_terminal_of_the_operator(worker: Victim) -> None:
    """TIOCSTI puts characters where the operator's shell reads them."""
    code = (
        "import fcntl\n"
        "for name in ('/dev/tty', P['name']):\n"
        "    def push():\n"
        "        terminal = os.open(name, os.O_RDWR | os.O_NOCTTY)\n"
        "        fcntl.ioctl(terminal, 0x5412, b'x'); return name\n"
        "    attempt(push)\n"
        "for number in (0, 1, 2): attempt(fcntl.ioctl, number, 0x5412, b'x')"
    )
    outer, inner = pty.openpty()
    try:
        attempt = worker.attempt(code, inner, name=os.ttyname(inner))
    finally:
        os.close(inner)
        os.close(outer)
    assert attempt.held
    assert not attempt.escapes


def test_no_descriptor_of_the_engine_is_inherited(worker: Victim) -> None:
    with Path(worker.home.data / "keep.txt").open() as secret:
        os.set_inheritable(secret.fileno(), False)
        attempt = worker.attempt(
            "print(sorted(os.readlink(f'/proc/self/fd/{number}') for number in os.listdir('/proc/self/fd')[:-1]))"
        )
    assert str(worker.home.data) not in attempt.output
    assert "memfd" not in attempt.output


def test_the_session_is_killed_first_when_memory_runs_out(worker: Victim) -> None:
    attempt = worker.attempt(
        "print(open('/proc/self/oom_score_adj').read())\nattempt(write, '/proc/self/oom_score_adj', '-1000')"
    )
    assert int(attempt.output.split()[0]) > int(Path("/proc/self/oom_score_adj").read_text())
    if sys.platform == "linux" and os.geteuid() != 0:
        assert not attempt.escapes

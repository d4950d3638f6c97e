"""Attempts of a session's commands to read, change and start what is the operator's, and to take the machine down (SPEC
3.7, 3.8, 3.9). Most are rows of `test_escapes.toml`."""

import os
import pty
from pathlib import Path

import pytest

from tests.attacks.victim import Victim
from tests.support import read_table
from tests.support.repository import Repository

ATTEMPTS = read_table(__file__)

pytestmark = pytest.mark.attack("escapes")


@pytest.mark.parametrize("name", ATTEMPTS["held"])
def test_an_attempt_from_a_worktree_is_held(worker: Victim, name: str):
    worker.assert_held(ATTEMPTS["held"][name])


@pytest.mark.parametrize("name", ATTEMPTS["in_the_operators_tree"])
def test_an_attempt_from_the_operators_tree_is_held(checker: Victim, name: str):
    checker.assert_held(ATTEMPTS["in_the_operators_tree"][name])


# Mounted folders and /tmp


@pytest.mark.long
def test_no_link_replaces_a_folder_that_the_next_command_mounts(worker: Victim):
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


def test_nothing_is_left_in_the_tmp_of_the_machine(worker: Victim):
    name = f"clawpy-left-{os.getpid()}"
    worker.attempt("for place in ('/tmp/', '/var/tmp/', '/dev/shm/'): attempt(write, place + P['name'])", name=name)
    assert not any(Path(place, name).exists() for place in ("/tmp", "/var/tmp", "/dev/shm"))


# Users, terminals, descriptors and resources


def test_setuid_programs_have_no_effect(worker: Victim):
    attempt = worker.attempt("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in attempt.output.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {status[f"Cap{kind}"].strip("0\n") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
    if os.geteuid() == 0 or worker.rung.name == "bubblewrap":  # else nobody may drop it, and NoNewPrivs makes it idle
        assert int(status["CapBnd"], 16) == 0


def test_nothing_is_typed_into_the_terminal_of_the_operator(worker: Victim):
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


def add_submodule(tree: Path) -> list[Path]:
    """Make a submodule in a folder two levels down; the files that lead git into it."""
    inner = tree / "deep" / "inner"
    Repository(inner)
    (tree / ".gitmodules").write_text('[submodule "inner"]\n\tpath = deep/inner\n\turl = ./inner\n')
    return [inner / ".git" / "config", tree / ".gitmodules"]


@pytest.mark.long
@pytest.mark.parametrize(
    "action",
    [
        "write, '.git'",
        "os.unlink, '.git'",
        "os.rename, '.git', 'old'",
        "lambda: (os.unlink('.git'), os.symlink('/etc', '.git'))",
    ],
)
def test_the_git_file_of_a_worktree_is_unchanged_after_the_command(worker: Victim, action: str):
    own_git = worker.confinement.folder / ".git"
    before = own_git.read_bytes()
    attempt = worker.attempt(f"attempt({action}); attempt(lambda: os.rename(P['folder'], P['folder'] + '2'))")
    assert attempt.exit_code == 0, attempt.errors
    assert not own_git.is_symlink()
    assert own_git.read_bytes() == before
    assert worker.confinement.folder.is_dir()


SUBMODULE = """
attempt(write, 'deep/inner/.git/config'); attempt(os.rename, 'deep/inner/.git', 'old')
attempt(os.rename, 'deep', 'moved'); attempt(write, '.gitmodules'); attempt(os.unlink, '.gitmodules')
"""


def test_the_configuration_of_a_submodule_is_unchanged(checker: Victim):
    files = add_submodule(checker.project)
    before = [file.read_bytes() for file in files]
    checker.attempt(f"os.chdir(P['project'])\n{SUBMODULE}")
    assert [file.read_bytes() for file in files] == before

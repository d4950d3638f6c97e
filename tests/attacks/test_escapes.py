"""Attempts of a session's commands to read, change and start what is the operator's, and to take the machine down (SPEC
3.7, 3.8, 3.9). Most are rows of `test_escapes.toml`."""

import os
import pty
import sys
import tempfile
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from tests.attacks.victim import Victim
from tests.support.helpers import read_table

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


def test_a_hidden_folder_in_the_workspace_is_not_moved_out_of_its_place(checker: Victim):
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


def test_files_of_other_programs_in_tmp_are_not_seen(worker: Victim):
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="clawpy-other-", mode="w") as file:
        file.write("a session of another program")
        file.flush()
        attempt = worker.attempt("attempt(write, P['file']); attempt(read, P['file'])", file=file.name)
        assert attempt.exit_code == 0, attempt.errors
        assert "of another program" not in attempt.output
        assert Path(file.name).read_text() == "a session of another program"


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


def test_the_session_is_killed_first_when_memory_runs_out(worker: Victim):
    attempt = worker.attempt(
        "print(open('/proc/self/oom_score_adj').read())\nattempt(write, '/proc/self/oom_score_adj', '-1000')"
    )
    assert int(attempt.output.split()[0]) > int(Path("/proc/self/oom_score_adj").read_text())
    if sys.platform == "linux" and os.geteuid() != 0:
        assert not attempt.escapes

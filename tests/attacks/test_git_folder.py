"""Attempts of a session's commands on git's own files, of the tree, of a worktree, of a submodule (SPEC 3.8, 3.9).

An attempt is Python code that runs as a command of the session. `attempts` defines what it uses: `attempt` makes a call
and prints whether it was held, `write` writes a file, and `P` has the paths of the operator.
"""

from pathlib import Path

import pytest

from tests.attacks.victim import Victim
from tests.conftest import Repository

pytestmark = pytest.mark.attack("escapes")


@pytest.fixture
def mounting_worker(worker: Victim) -> Victim:
    """The victim of a session in a worktree, on a rung that protects git's files in it by mounts."""
    if worker.rung.name != "bubblewrap":
        pytest.skip(f"{worker.rung.name} mounts nothing; what it protects is the worktree's own .git file")
    return worker


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


def test_a_git_folder_that_is_a_link_is_unchanged(checker: Victim):
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


def test_nothing_is_written_beside_a_git_folder_that_is_a_link(mounting_worker: Victim):
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


def test_the_configuration_of_a_submodule_is_unchanged(checker: Victim):
    files = add_submodule(checker.project)
    before = [file.read_bytes() for file in files]
    checker.attempt(f"os.chdir(P['project'])\n{SUBMODULE}")
    assert [file.read_bytes() for file in files] == before


def test_the_configuration_of_a_submodule_in_a_worktree_is_held(mounting_worker: Victim):
    files = add_submodule(mounting_worker.confinement.folder)
    before = [file.read_bytes() for file in files]
    mounting_worker.assert_held(SUBMODULE)
    assert [file.read_bytes() for file in files] == before

"""Snapshots of working trees have all files that are not ignored (SPEC 3.9); a text that is no session id.

That they run no program of the repository is tested in `tests/attacks/test_planted_repository.py`.
"""

import os
import subprocess
import sys

import pytest

from engine.execution import trees
from engine.git import Git
from tests.support.programs import needs
from tests.support.repository import Repository


def read_tree_entries(repository: Repository, tree: str) -> dict[str, str]:
    """The mode and the object of each path of a tree."""
    out = subprocess.run(["git", "ls-tree", "-rz", tree], cwd=repository.path, check=True, capture_output=True).stdout
    rows = (item.split(b"\t", 1) for item in out.split(b"\0") if item)
    return {os.fsdecode(path): f"{head.split()[0].decode()} {head.split()[2].decode()}" for head, path in rows}


def read_blob(repository: Repository, tree: str, path: str) -> bytes:
    """The bytes of a file in a tree."""
    oid = read_tree_entries(repository, tree)[path].split()[1]
    return subprocess.run(["git", "cat-file", "blob", oid], cwd=repository.path, check=True, capture_output=True).stdout


def take_snapshot(repository: Repository) -> trees.Snapshot:
    return trees.take_snapshot(Git(repository.path).pin())


# Snapshots


def test_a_snapshot_has_staged_unstaged_and_untracked_files_and_no_ignored_ones(repository: Repository):
    repository.commit("one", {"staged": "1", "unstaged": "1", "gone": "1", ".gitignore": "*.log\n", "kept.txt": "k"})
    repository.write("staged", "2")
    repository.git("add", "staged")
    repository.write("staged", "3")
    repository.write("unstaged", "2")
    (repository.path / "gone").unlink()
    repository.write("new", "n")
    repository.write("deep/er/new", "n")
    repository.write("noise.log", "x")
    repository.git("rm", "-q", "--cached", "kept.txt")

    snapshot = take_snapshot(repository)

    assert set(read_tree_entries(repository, snapshot.tree)) == {
        "staged", "unstaged", "new", "deep/er/new", ".gitignore", "kept.txt",
    }  # fmt: skip
    assert read_blob(repository, snapshot.tree, "staged") == b"3"
    assert not snapshot.clean


def test_files_that_git_assumes_unchanged_are_read(repository: Repository):
    repository.commit("one", {"assumed": "1", "skipped": "1", "absent": "1"})
    repository.git("update-index", "--assume-unchanged", "assumed")
    repository.git("update-index", "--skip-worktree", "skipped", "absent")
    repository.write("assumed", "2")
    repository.write("skipped", "2")
    (repository.path / "absent").unlink()

    tree = take_snapshot(repository).tree

    assert read_blob(repository, tree, "assumed") == b"2"
    assert read_blob(repository, tree, "skipped") == b"2"
    assert read_blob(repository, tree, "absent") == b"1"  # not checked out is not deleted


def test_a_file_of_an_unknown_encoding_is_stored_byte_for_byte(repository: Repository):
    repository.commit("one", {".gitattributes": "*.txt working-tree-encoding=NO-SUCH\n"})
    repository.write("a.txt", "bytes")
    repository.write("b.py", "new = 1\n")
    tree = take_snapshot(repository).tree
    assert repository.git("cat-file", "blob", f"{tree}:a.txt") == "bytes"
    assert repository.git("cat-file", "blob", f"{tree}:b.py") == "new = 1"


PRINT_SNAPSHOT = """
import sys
from pathlib import Path
from engine.git import Git
from engine.execution import trees
print(trees.take_snapshot(Git(Path(sys.argv[1])).pin()).tree)
"""


def test_a_file_that_cannot_be_read_stays_as_in_the_index(repository: Repository):
    """As a user, or as root without the right to read everything."""
    repository.commit("one", {"a.txt": "1\n", "b.txt": "1\n"})
    repository.write("a.txt", "2\n").chmod(0)
    repository.write("b.txt", "2\n")
    repository.write("new.txt", "2\n").chmod(0)
    argv = [sys.executable, "-c", PRINT_SNAPSHOT, str(repository.path)]
    if os.geteuid() == 0:
        needs("setpriv")
        dropped = "-dac_override,-dac_read_search"
        argv = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}", *argv]
    tree = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    assert repository.git("cat-file", "blob", f"{tree}:a.txt") == "1"
    assert repository.git("cat-file", "blob", f"{tree}:b.txt") == "2"
    assert repository.git("ls-tree", "--name-only", tree).split() == ["a.txt", "b.txt"]


# Ids of sessions


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "x" * 81, "a\n"])
def test_a_text_that_is_unsafe_in_a_path_is_no_session_id(name: str):
    with pytest.raises(ValueError, match="session id"):
        trees.validate_id(name)

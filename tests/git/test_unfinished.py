"""Unfinished operations in a repository, read from git's own files (SPEC 2.1)."""

import pytest

from engine.git import Git
from engine.git.unfinished import GitOperation, IndexStage, read_conflicted_files, read_operation, read_operation_stamp
from tests.support.programs import run_git_that_stops
from tests.support.repository import Repository


def read_current(repository: Repository) -> GitOperation:
    return read_operation(Git(repository.path))


def find_subject(operation: GitOperation) -> str:
    return operation.theirs.subject if operation.theirs else ""


@pytest.fixture
def apart(repository: Repository) -> Repository:
    """`main` and `side` change the same line of two files, one of them with a name that begins like magic."""
    repository.commit("begin", {":a.txt": "1\n", "b c.txt": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {":a.txt": "2\n", "b c.txt": "2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("main", {":a.txt": "3\n", "b c.txt": "3\n"})
    return repository


def test_a_merge_names_what_is_resolved_and_what_is_not(apart: Repository):
    run_git_that_stops(apart.path, "merge", "side")
    git = Git(apart.path)
    stamp = read_operation_stamp(git.repository.git_dir)
    merge = read_current(apart)
    assert (merge.name, merge.ours.name, find_subject(merge)) == ("merge", "main", "side")
    assert (merge.unmerged, merge.resolved) == ((":a.txt", "b c.txt"), ())
    assert {*read_conflicted_files(git)[":a.txt"]} == {*IndexStage}

    apart.write("b c.txt", "23\n")
    apart.git("add", "b c.txt")
    assert read_operation_stamp(git.repository.git_dir) != stamp
    merge = read_current(apart)
    assert (merge.unmerged, merge.resolved, merge.files) == ((":a.txt",), ("b c.txt",), (":a.txt", "b c.txt"))
    assert (merge.continue_command, merge.abort_command) == ("git merge --continue", "git merge --abort")

"""Unfinished operations in a repository, read from git's own files, damaged ones included; a merge that is tried (SPEC
2.1)."""

import subprocess

import pytest

from engine.git import Git
from engine.git.operations import (
    GitOperation,
    MergeTrial,
    Stage,
    read_conflicted_files,
    read_operation,
    read_operation_stamp,
    try_merge,
)
from tests.conftest import Repository
from tests.support.helpers import read_table
from tests.support.programs import run_git_that_stops

TABLE = read_table(__file__)


def read_current(repository: Repository) -> GitOperation:
    return read_operation(Git(repository.path))


def end_operation(repository: Repository):
    """Carry out the commands that end an operation, from the branch main."""
    for command in read_current(repository).abort_commands:
        subprocess.run(command.replace("BRANCH", "main"), shell=True, cwd=repository.path, check=True)
    assert read_operation(Git(repository.path)) is None


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
    assert {*read_conflicted_files(git)[":a.txt"]} == {*Stage}

    apart.write("b c.txt", "23\n")
    apart.git("add", "b c.txt")
    assert read_operation_stamp(git.repository.git_dir) != stamp
    merge = read_current(apart)
    assert (merge.unmerged, merge.resolved, merge.files) == ((":a.txt",), ("b c.txt",), (":a.txt", "b c.txt"))
    assert (merge.continue_command, merge.abort_commands) == ("git merge --continue", ("git merge --abort",))


@pytest.mark.parametrize("begin, damaged", TABLE["damaged"])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_operation_whose_state_is_damaged_is_ended_by_its_commands(
    apart: Repository, begin: str, damaged: str, is_deleted: bool
):
    apart.git("checkout", "-q", "side")
    apart.commit("alone", {"alone.txt": "1\n"})
    apart.commit("late", {":a.txt": "4\n"})
    run_git_that_stops(apart.path, *begin.split())
    state_file = apart.path / ".git" / damaged
    state_file.unlink()
    if not is_deleted:
        state_file.touch()
    end_operation(apart)
    assert apart.git("status", "--porcelain", "--branch") == "## side"


def test_a_damaged_rebase_keeps_the_commits_that_it_made(apart: Repository):
    apart.git("checkout", "-q", "-b", "topic", "side~1")
    apart.commit("applies", {"more.txt": "1\n"})
    apart.commit("conflicts", {":a.txt": "4\n"})
    run_git_that_stops(apart.path, "rebase", "main")
    commit = apart.git("rev-parse", "HEAD")
    (apart.path / ".git/rebase-merge/head-name").unlink()
    end_operation(apart)
    assert apart.git("branch", "--contains", commit, "--format=%(refname:short)") == f"backup-{commit[:10]}"


def test_a_merge_is_tried_without_a_trace(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"})
    for name in ("left", "right"):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {"a.txt": f"{name}\n", f"{name}.txt": "x\n"})
    repository.git("checkout", "-q", "--orphan", "apart")
    repository.commit("another beginning", {"z.txt": "1\n"})
    before = {*(repository.path / ".git").rglob("*")}
    assert try_merge(repository.path, "left", "right") == MergeTrial(("a.txt",), changes_anything=True)
    assert try_merge(repository.path, "left", "main") == MergeTrial((), changes_anything=False)
    assert try_merge(repository.path, "left", "apart").files is None, "they have no common history"
    assert {*(repository.path / ".git").rglob("*")} == before

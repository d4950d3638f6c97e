"""Unfinished operations in a repository, read from git's own files."""

from __future__ import annotations

import subprocess

import pytest

from engine.git import Git
from engine.git.operations import Operation, read_conflicted_files, read_operation, read_operation_stamp
from tests.conftest import Repository


def begin_operation(repository: Repository, *arguments: str) -> None:
    """Run a command of git that stops at a conflict."""
    completed = subprocess.run(["git", *arguments], cwd=repository.path, capture_output=True, text=True, check=False)
    assert completed.returncode, completed.stdout


def operation_of(repository: Repository) -> Operation:
    operation = read_operation(Git(repository.path))
    assert operation is not None
    return operation


def their_subject(operation: Operation) -> str:
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


def test_a_merge_names_what_is_resolved_and_what_is_not(apart: Repository) -> None:
    begin_operation(apart, "merge", "side")
    git = Git(apart.path)
    stamp = read_operation_stamp(git.repository.git_dir)
    merge = operation_of(apart)
    assert (merge.name, merge.ours.name, their_subject(merge)) == ("merge", "main", "side")
    assert (merge.unmerged, merge.resolved) == ((":a.txt", "b c.txt"), ())
    assert {*read_conflicted_files(git)[":a.txt"]} == {1, 2, 3}

    apart.write("b c.txt", "23\n")
    apart.git("add", "b c.txt")
    assert read_operation_stamp(git.repository.git_dir) != stamp
    merge = operation_of(apart)
    assert (merge.unmerged, merge.resolved, merge.files) == ((":a.txt",), ("b c.txt",), (":a.txt", "b c.txt"))
    assert (merge.continue_command, merge.abort_command) == ("git merge --continue", "git merge --abort")


def test_the_commits_that_a_rebase_has_left(apart: Repository) -> None:
    apart.git("checkout", "-q", "side")
    following = [apart.commit(f"more {number}", {f"{number}.txt": "x"}) for number in range(2)]
    begin_operation(apart, "rebase", "main")
    rebase = operation_of(apart)
    assert (rebase.name, rebase.rebased, rebase.ours.name, their_subject(rebase)) == ("rebase", "side", "main", "side")
    assert [commit[:7] for commit in rebase.remaining] == [commit[:7] for commit in following]


def test_several_picks_one_of_them_committed_by_hand(apart: Repository) -> None:
    apart.git("checkout", "-q", "side")
    last = apart.commit("more", {"more.txt": "x"})
    apart.git("checkout", "-q", "main")
    begin_operation(apart, "cherry-pick", "side~1", "side")
    apart.git("checkout", "--theirs", "--", "./:a.txt", "b c.txt")
    apart.git("commit", "-qam", "by hand")
    pick = operation_of(apart)
    assert (pick.name, pick.unmerged) == ("cherry-pick", ())
    assert last.startswith(pick.remaining[-1])


def test_a_bisect_with_words_of_its_own(repository: Repository) -> None:
    first, *_, last = [repository.commit(str(number)) for number in range(6)]
    repository.git("bisect", "start", "--term-new", "slow", "--term-old", "fast")
    bisect = operation_of(repository)
    assert (bisect.bad, bisect.good, bisect.terms) == ("", (), ("slow", "fast"))
    repository.git("bisect", "slow", last)
    repository.git("bisect", "fast", first)
    bisect = operation_of(repository)
    assert (bisect.bad, bisect.good, bisect.suspects) == (last, (first,), 5)
    assert bisect.continue_command == "git bisect fast"


def test_a_worktree_has_an_operation_of_its_own(apart: Repository) -> None:
    folder = apart.path.parent / "other"
    apart.git("worktree", "add", "-q", "-b", "third", str(folder), "main")
    worktree = Repository(folder)
    begin_operation(worktree, "merge", "side")
    assert read_operation(Git(apart.path)) is None
    assert (operation_of(worktree).name, operation_of(worktree).ours.name) == ("merge", "third")

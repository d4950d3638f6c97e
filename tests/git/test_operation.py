"""What is unfinished in a repository, as git's own files say it."""

from __future__ import annotations

import subprocess

import pytest

from engine.git import Git
from engine.git.operation import conflicted, operation_stamp, read_operation
from tests.conftest import Repository


def attempt(repository: Repository, *arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=repository.path, capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout


@pytest.fixture
def apart(repository: Repository) -> Repository:
    """`main` and `side` change the same line of two files, one of them with a name that begins like magic."""
    repository.commit("begin", {":a.txt": "1\n", "b c.txt": "1\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {":a.txt": "2\n", "b c.txt": "2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("main", {":a.txt": "3\n", "b c.txt": "3\n"})
    return repository


def test_a_merge_and_what_is_resolved_of_it(apart: Repository) -> None:
    attempt(apart, "merge", "side")
    git = Git(apart.path)
    stamp = operation_stamp(git.repository.git_dir)
    op = read_operation(git)
    assert op is not None
    assert (op.name, op.ours.name, op.unmerged, op.resolved) == (
        "merge",
        "main",
        (":a.txt", "b c.txt"),
        (),
    )
    assert op.theirs is not None
    assert (op.theirs.name, op.theirs.subject) == ("side", "side")
    assert {*conflicted(git)[":a.txt"]} == {1, 2, 3}

    apart.write("b c.txt", "23\n")
    apart.git("add", "b c.txt")
    assert operation_stamp(git.repository.git_dir) != stamp
    op = read_operation(git)
    assert op is not None
    assert (op.unmerged, op.resolved, op.files) == (
        (":a.txt",),
        ("b c.txt",),
        (":a.txt", "b c.txt"),
    )
    assert (op.continue_command, op.abort_command) == ("git merge --continue", "git merge --abort")


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_what_a_rebase_has_left(apart: Repository, backend: str) -> None:
    apart.git("checkout", "-q", "side")
    rest = [apart.commit(f"more {number}", {f"{number}.txt": "x"}) for number in range(2)]
    attempt(apart, "rebase", backend, "main")
    op = read_operation(Git(apart.path))
    assert op is not None
    assert (op.name, op.rebased, op.ours.name) == ("rebase", "side", "main")
    assert op.theirs is not None
    assert op.theirs.subject == "side"
    assert [sha[:7] for sha in op.remaining] == [sha[:7] for sha in rest]
    assert op.simple


def test_several_picks_one_of_them_committed_by_hand(apart: Repository) -> None:
    apart.git("checkout", "-q", "side")
    last = apart.commit("more", {"more.txt": "x"})
    apart.git("checkout", "-q", "main")
    attempt(apart, "cherry-pick", "side~1", "side")
    apart.git("checkout", "--theirs", "--", "./:a.txt", "b c.txt")
    apart.git("commit", "-qam", "by hand")
    op = read_operation(Git(apart.path))
    assert op is not None
    assert (op.name, op.unmerged) == ("cherry-pick", ())
    assert last.startswith(op.remaining[-1])


def test_a_bisect_with_words_of_its_own(repository: Repository) -> None:
    first, *_, last = [repository.commit(str(number)) for number in range(6)]
    repository.git("bisect", "start", "--term-new", "slow", "--term-old", "fast")
    op = read_operation(Git(repository.path))
    assert op is not None
    assert (op.bad, op.good, op.terms) == ("", (), ("slow", "fast"))
    repository.git("bisect", "slow", last)
    repository.git("bisect", "fast", first)
    op = read_operation(Git(repository.path))
    assert op is not None
    assert (op.bad, op.good, op.suspects, op.continue_command) == (
        last,
        (first,),
        5,
        "git bisect fast",
    )


def test_a_worktree_has_an_operation_of_its_own(apart: Repository) -> None:
    other = apart.path.parent / "other"
    apart.git("worktree", "add", "-q", "-b", "third", str(other), "main")
    done = subprocess.run(["git", "merge", "side"], cwd=other, capture_output=True, check=False)
    assert done.returncode
    assert read_operation(Git(apart.path)) is None
    op = read_operation(Git(other))
    assert op is not None
    assert (op.name, op.ours.name) == ("merge", "third")

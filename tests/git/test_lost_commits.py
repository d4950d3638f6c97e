"""Commits that no ref reaches any more are found for a month, unless others have their work (SPEC 2.1)."""

from datetime import timedelta

import pytest

from engine.git import Git
from engine.git.lost_commits import read_lost_commits
from engine.git.reader import GitReader
from tests.conftest import MONDAY_MORNING as NOW
from tests.conftest import Repository


def format_ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


@pytest.fixture
def lost_tips(repository: Repository) -> tuple[str, str]:
    """The last commits of two detached lines of work of two commits each, which no ref reaches."""
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    tips = []
    for name in ("left", "right"):
        repository.git("checkout", "-q", "--detach", "main", at=format_ago(5))
        repository.commit(f"{name} one", {f"{name}.txt": f"{name} has words\n"}, at=format_ago(4))
        tips.append(repository.commit(f"{name} two", {f"{name}.txt": f"{name} has others\n"}, at=format_ago(3)))
    repository.git("checkout", "-q", "main", at=format_ago(2))
    return tips[0], tips[1]


def read_lost_tips(repository: Repository) -> set[str]:
    state = GitReader().read(repository.path)
    return {line.tip for line in read_lost_commits(Git(repository.path), state, NOW)}


def remove_work(repository: Repository):
    """Delete `left.txt`, so that only the history says that its commits have others in their place."""
    repository.git("rm", "-q", "left.txt")
    repository.commit("the work is removed again", at=format_ago(1))


def test_lines_of_commits_that_no_ref_reaches_are_found_for_a_month_with_their_length(
    repository: Repository, lost_tips: tuple[str, str]
):
    git, state = Git(repository.path), GitReader().read(repository.path)
    lost = read_lost_commits(git, state, NOW)
    assert {(line.tip, line.number) for line in lost} == {(tip, 2) for tip in lost_tips}
    assert read_lost_commits(git, state, NOW + timedelta(days=31)) == ()


def test_a_commit_that_was_picked_is_not_lost(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    repository.git("checkout", "-q", "--detach", at=format_ago(5))
    picked = repository.commit("left", {"left.txt": "left has words\n"}, at=format_ago(4))
    repository.git("checkout", "-q", "main", at=format_ago(3))
    repository.commit("main", {"b.txt": "1\n"}, at=format_ago(3))
    repository.git("cherry-pick", picked, at=format_ago(2))
    remove_work(repository)
    assert read_lost_tips(repository) == set()


@pytest.mark.parametrize("subjects", [["wip"], ["wip", "wip"], ["wip", "cart"]])
def test_commits_that_a_reset_dropped_are_lost_although_a_later_commit_has_a_subject_of_theirs(
    repository: Repository, subjects: list[str]
):
    begin = repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    for number, subject in enumerate(subjects):
        tip = repository.commit(subject, {f"left{number}.txt": "1\n"}, at=format_ago(4 - number))
    repository.git("reset", "-q", "--hard", begin, at=format_ago(2))
    repository.commit("wip", {"other.txt": "1\n"}, at=format_ago(1))
    assert read_lost_tips(repository) == {tip}

"""Commits that no branch or tag reaches any more (SPEC 2.1)."""

from datetime import timedelta

import pytest

from engine.git import Git
from engine.git.lost_commits import read_lost_commits
from engine.git.reader import GitReader
from tests.support import MONDAY_MORNING as NOW
from tests.support.repository import Repository


def format_ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


def find_lost_lines(repository: Repository) -> list[tuple[str, int]]:
    """The last commit and the length of each line of lost commits."""
    lines = read_lost_commits(Git(repository.path), GitReader().read(repository.path), NOW)
    return [(line.tip, line.number) for line in lines]


@pytest.mark.parametrize("days, found", [(30, True), (32, False)])
def test_commits_that_no_ref_reaches_are_found_for_a_month_with_their_length(
    repository: Repository, days: int, found: bool
):
    begin = repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(40))
    repository.commit("one", {"left.txt": "left has words\n"}, at=format_ago(39))
    tip = repository.commit("two", {"left.txt": "left has others\n"}, at=format_ago(38))
    repository.git("reset", "-q", "--hard", begin, at=format_ago(days))
    assert find_lost_lines(repository) == ([(tip, 2)] if found else [])


@pytest.mark.parametrize("subjects", [["wip"], ["wip", "wip"], ["wip", "cart"]])
def test_commits_that_a_reset_dropped_are_lost_although_a_later_commit_has_a_subject_of_theirs(
    repository: Repository, subjects: list[str]
):
    begin = repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    for number, subject in enumerate(subjects):
        tip = repository.commit(subject, {f"left{number}.txt": "1\n"}, at=format_ago(4 - number))
    repository.git("reset", "-q", "--hard", begin, at=format_ago(2))
    repository.commit("wip", {"other.txt": "1\n"}, at=format_ago(1))
    assert find_lost_lines(repository) == [(tip, len(subjects))]

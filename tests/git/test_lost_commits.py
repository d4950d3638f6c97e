"""Commits that no ref reaches any more are found for a month, unless others have their work (SPEC 2.1)."""

from datetime import timedelta

import pytest

from engine.git import Git
from engine.git.lost_commits import is_reachable, read_lost_commits
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


def test_a_fixup_commit_is_not_lost_when_the_commit_that_it_fixes_was_made_again(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    fixed = repository.commit("cart", {"b.txt": "words of a cart\n"}, at=format_ago(4))
    repository.commit("fixup! cart", {"left.txt": "left has words\n"}, at=format_ago(3))
    repository.git("reset", "-q", "--hard", "HEAD~2", at=format_ago(2))
    repository.commit("cart", {"other.txt": "1\n"}, at=format_ago(1))
    assert read_lost_tips(repository) == {fixed}


def test_commits_that_a_rebase_melted_into_another_are_not_lost(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    repository.commit("one", {"b.txt": "1\n"}, at=format_ago(4))
    repository.commit("two", {"left.txt": "left has words\n"}, at=format_ago(3))
    repository.git("-c", "sequence.editor=sed -i 2s/pick/fixup/", "rebase", "-q", "-i", "HEAD~2", at=format_ago(2))
    remove_work(repository)
    assert read_lost_tips(repository) == set()


def test_the_empty_commit_that_a_rebase_of_the_root_starts_from_is_not_lost(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(3))
    repository.commit("more", {"b.txt": "1\n"}, at=format_ago(2))
    repository.git("-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-q", "-i", "--root", at=format_ago(1))
    repository.git("commit", "-q", "--amend", "-m", "begin again", at=format_ago(1))
    repository.git("rebase", "--continue", at=format_ago(1))
    assert read_lost_tips(repository) == set()


@pytest.mark.parametrize("messages", ["left one\n\nleft two\n", "left one\n"])
def test_commits_that_were_replaced_by_one_with_their_messages_are_not_lost(repository: Repository, messages: str):
    repository.commit("begin", {"a.txt": "1\n"}, at=format_ago(9))
    repository.commit("left one", {"left.txt": "a key in words\n"}, at=format_ago(4))
    tip = repository.commit("left two", {"b.txt": "1\n"}, at=format_ago(3))
    repository.git("reset", "-q", "--soft", "HEAD~2", at=format_ago(2))
    repository.git("rm", "-q", "--cached", "left.txt")
    (repository.path / "left.txt").unlink()
    repository.git("commit", "-q", "-m", messages, at=format_ago(2))
    assert read_lost_tips(repository) == (set() if "two" in messages else {tip})


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


def test_a_commit_with_a_tag_is_not_lost(repository: Repository, lost_tips: tuple[str, str]):
    git, (left, right) = Git(repository.path), lost_tips
    assert not is_reachable(git, left)
    repository.git("tag", "kept", left)
    assert is_reachable(git, left)
    assert read_lost_tips(repository) == {right}

"""A merge, rebase, cherry-pick, revert or bisect was begun and left."""

from __future__ import annotations

import subprocess

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

MINE = "def total(prices):\n    return round(sum(prices), 2)\n"
THEIRS = "def total(prices):\n    return max(prices)\n"


def commit_conflicting_branches(monday: Situation) -> None:
    """`main` and `tax` change the same line; with `tax` a test fails. `größe neu.py` is changed by both, too."""
    monday.commit_shop()
    monday.commit("Sizes", {"größe neu.py": "GROSS = 1\n"}, days_ago=6)
    monday.checkout("-b", "tax")
    monday.commit("Sum with tax", {"cart.py": THEIRS, "größe neu.py": "GROSS = 2\n"}, days_ago=4)
    monday.checkout("main")
    monday.commit("Round the sum", {"cart.py": MINE, "größe neu.py": "GROSS = 3\n"}, days_ago=3)


def run_git_that_stops(monday: Situation, *arguments: str) -> None:
    """A git command that stops half-way."""
    done = subprocess.run(["git", *arguments], cwd=monday.path, capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout


@pytest.mark.long
def test_a_merge_with_conflicts(monday: Situation) -> None:
    commit_conflicting_branches(monday)
    run_git_that_stops(monday, "merge", "tax")
    before = monday.git("status", "--porcelain"), monday.git("rev-parse", "HEAD", "MERGE_HEAD")

    first = monday.first("unfinished_operation", Tier.BROKEN)
    assert first.assignment.prompt == "Rehearse both sides of the unfinished merge"
    assert first.reasoning == (
        "Merging tax (“Sum with tax”) into main stopped with 2 files in conflict: cart.py and größe neu.py."
    )
    assert monday.kinds() == ["unfinished_operation"]

    done = monday.approve(first)
    assert done.summary.startswith("The merge conflicts in 2 places of cart.py and größe neu.py")
    assert "with ours (main): the one test passed" in done.summary
    assert "with theirs (tax): 1 of 1 test failed" in done.summary
    transcript = monday.transcript(done)
    assert "conflict  cart.py  (1 place)" in transcript
    assert "main: " + monday.git("rev-parse", "--short", "main") + " Round the sum" in transcript
    assert "tax: " + monday.git("rev-parse", "--short", "tax") + " Sum with tax" in transcript
    assert "`git merge --continue`" in transcript
    assert "To give up: `git merge --abort`" in transcript
    assert (monday.git("status", "--porcelain"), monday.git("rev-parse", "HEAD", "MERGE_HEAD")) == before


@pytest.mark.long
def test_a_merge_that_is_resolved_and_not_committed(monday: Situation) -> None:
    commit_conflicting_branches(monday)
    run_git_that_stops(monday, "merge", "tax")
    monday.write("cart.py", MINE)
    monday.git("add", "cart.py")
    assert monday.first("unfinished_operation").reasoning == (
        "Merging tax (“Sum with tax”) into main stopped with 1 file in conflict: größe neu.py; cart.py is marked as "
        "resolved."
    )
    monday.write("größe neu.py", "GROSS = 5\n")
    monday.git("add", "größe neu.py")
    first = monday.first("unfinished_operation")
    assert first.assignment.prompt == "Test the unfinished merge as it stands"
    done = monday.approve(first)
    assert done.summary.startswith(
        "No conflict is left in the merge; the tests in the present state: the one test passed"
    )
    assert done.summary.endswith("To go on: `git merge --continue`")
    monday.git("commit", "-q", "--no-edit")
    assert "unfinished_operation" not in monday.kinds()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_a_rebase_stopped_half_way(monday: Situation, backend: str) -> None:
    commit_conflicting_branches(monday)
    monday.checkout("tax")
    monday.commit("A test of tax", {"tests/test_tax.py": "def test_tax():\n    assert True\n"}, days_ago=2)
    run_git_that_stops(monday, "rebase", backend, "main")

    first = monday.first("unfinished_operation")
    assert first.reasoning.startswith("Rebasing tax onto main stopped at “Sum with tax” with 2 files in conflict")
    done = monday.approve(first)
    assert "with ours (main): all 2 tests passed" in done.summary, "the commit after the present one is applied, too"
    assert "with theirs (tax): 1 of 2 tests failed" in done.summary
    assert "`git rebase --abort`" in monday.transcript(done)


@pytest.mark.long
@pytest.mark.parametrize("verb", ["cherry-pick", "revert"])
def test_one_commit_that_does_not_apply(monday: Situation, verb: str) -> None:
    commit_conflicting_branches(monday)
    if verb == "revert":
        monday.commit("Round more", {"cart.py": MINE.replace("2", "3")}, days_ago=1)
    run_git_that_stops(monday, verb, "tax" if verb == "cherry-pick" else "HEAD~1")
    first = monday.first("unfinished_operation")
    assert ("Sum with tax" if verb == "cherry-pick" else "Round the sum") in first.reasoning
    done = monday.approve(first)
    assert f"`git {verb} --abort`" in monday.transcript(done)
    assert "with ours (main): the one test passed" in done.summary


@pytest.mark.long
def test_a_stash_that_was_popped_into_a_conflict(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", MINE)
    monday.git("stash")
    monday.commit("Max", {"cart.py": THEIRS}, days_ago=0.1)
    run_git_that_stops(monday, "stash", "pop")
    first = monday.first("unfinished_operation")
    done = monday.approve(first)
    assert "conflicts in 1 place of cart.py" in done.summary
    assert "git reset --merge" in monday.transcript(done)


@pytest.mark.long
def test_one_side_removed_the_file(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "tidy")
    monday.git("rm", "-q", "cart.py", "tests/test_cart.py")
    monday.commit("No cart", days_ago=4)
    monday.checkout("main")
    monday.commit("Round the sum", {"cart.py": MINE}, days_ago=3)
    run_git_that_stops(monday, "merge", "tidy")
    done = monday.approve(monday.first("unfinished_operation"))
    assert "conflict  cart.py  (whole file)" in monday.transcript(done)
    assert done.summary.startswith("The merge conflicts in cart.py")


@pytest.mark.long
def test_a_bisect_under_way(monday: Situation) -> None:
    monday.commit_shop()
    commits = [monday.commit(f"Step {number}", {"notes.txt": str(number)}, days_ago=9 - number) for number in range(8)]
    monday.git("bisect", "start", commits[7], commits[0])
    first = monday.first("unfinished_operation")
    assert first.reasoning.startswith(
        f"A bisect is under way: 7 revisions left between good {commits[0][:10]} and bad {commits[7][:10]}"
    )
    done = monday.approve(first)
    assert done.summary.startswith("The bisect has 7 revisions left")
    assert "`git bisect reset`" in done.summary
    monday.git("bisect", "reset")
    assert "unfinished_operation" not in monday.kinds()


def test_a_finished_merge_is_no_card(monday: Situation) -> None:
    commit_conflicting_branches(monday)
    run_git_that_stops(monday, "merge", "tax")
    monday.git("checkout", "--ours", ".")
    monday.git("commit", "-qam", "Merge tax")
    assert "unfinished_operation" not in monday.kinds()


@pytest.mark.long
def test_a_binary_file_on_a_detached_head_without_tests(monday: Situation) -> None:
    monday.commit("Begin", {"src/ä b.bin": "\0\1"}, days_ago=3)
    monday.checkout("-b", "x/ü")
    monday.commit("Longer", {"src/ä b.bin": "\0\1\2"}, days_ago=2)
    monday.checkout("--detach", "main")
    monday.commit("Longest", {"src/ä b.bin": "\0\1\2\3"}, days_ago=1)
    run_git_that_stops(monday, "merge", "x/ü")
    first = monday.first("unfinished_operation")
    assert first.reasoning.endswith("stopped with 1 file in conflict: src/ä b.bin.")
    done = monday.approve(first)
    assert done.summary == "The merge conflicts in src/ä b.bin; its tests could not be run"

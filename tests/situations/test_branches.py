"""Branches that are behind or in the way of another, pull requests that wait, operations begun and left."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from engine.model import Tier
from engine.prediction.context_reader import ContextReader
from tests.conftest import Repository
from tests.situations.conftest import Situation

FEATURE = {"cart.py": "def total(prices):\n    return round(sum(prices), 2)\n"}
MAIN = {"cart.py": "def total(prices):\n    return sum(price for price in prices)\n"}


def push_as_colleague(monday: Situation, bare: Path, files: dict[str, str]) -> None:
    """Push a commit of somebody else to the remote, and fetch it."""
    other = Repository(monday.path.parent / "colleague")
    other.git("init", "-q")
    other.git("fetch", "-q", str(bare), "main")
    other.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
    other.commit("A colleague's change", files, at=monday.at(1))
    other.git("push", "-q", str(bare), "main")
    monday.git("fetch", "-q", "origin")


@pytest.mark.long
def test_a_branch_behind_main_that_would_conflict(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.checkout("main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.checkout("rounding")
    objects = set((monday.path / ".git/objects").rglob("*"))

    first = monday.first("rehearse_merge", Tier.BLOCKS)
    assert first.assignment.prompt == "Rehearse merging main into rounding"
    assert first.reasoning == "main has 1 commit that rounding lacks; merging it conflicts in cart.py."
    assert set((monday.path / ".git/objects").rglob("*")) == objects

    done = monday.approve(first)
    assert done.summary.startswith("Merging main into rounding conflicts in 1 file: cart.py; a rebase stops at ")
    transcript = monday.transcript(done)
    assert "Sum by a generator" in transcript
    assert "`git merge main`, or `git rebase main`" in transcript

    summary = monday.propose("summarise_day")
    monday.approve(summary)
    assert "rehearse_merge" not in monday.kinds()
    problem = "merging main into rounding still conflicts in cart.py"
    assert list(monday.engine.card_cycle.remarks().values()) == [problem], "other work has run since"
    monday.git("merge", "-q", "-s", "ours", "main")
    monday.cards()
    assert monday.engine.card_cycle.remarks() == {}


@pytest.mark.long
def test_a_base_known_from_the_remote_alone(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    monday.checkout("-b", "größe", "--no-track", "origin/main")
    monday.git("branch", "-q", "-D", "main")
    monday.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(monday, bare, {"notes.txt": "new\n"})

    card = monday.card("rehearse_merge")
    assert card.reasoning == "origin/main has 1 commit that größe lacks; it still merges cleanly."
    done = monday.approve(card)
    assert done.summary.startswith("origin/main merges cleanly into größe, the one test passed")
    assert done.summary.endswith("a rebase of 1 commit would be clean")
    assert done.check is not None


@pytest.mark.long
def test_a_branch_that_parted_from_its_own_upstream(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    monday.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(monday, bare, MAIN)
    first = monday.first("rehearse_merge")
    assert first.reasoning == "origin/main has 1 commit that main lacks; merging it conflicts in cart.py."


@pytest.mark.long
def test_a_branch_without_own_commits_is_no_card(monday: Situation) -> None:
    monday.commit_shop()
    bare = monday.add_remote()
    push_as_colleague(monday, bare, MAIN)
    assert "rehearse_merge" not in monday.kinds()


def test_an_upstream_that_was_rewritten_here_is_no_merge(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Round", FEATURE, days_ago=0.5)
    monday.add_remote()
    monday.write("cart.py", MAIN["cart.py"])
    monday.git("commit", "-qa", "--amend", "-m", "Round, better")
    assert "rehearse_merge" not in monday.kinds()


@pytest.mark.long
def test_branches_that_collide(monday: Situation) -> None:
    monday.commit_shop()
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    monday.commit("Table", {"table.py": "".join(lines)}, days_ago=9)
    for number, (name, changes) in enumerate({"wide": (3, 15), "low": (3,), "high": (15,), "apart": ()}.items()):
        monday.checkout("-b", name, "main")
        mine = [f"{name} = {at}\n" if at in changes else line for at, line in enumerate(lines)]
        monday.commit(f"Work of {name}", {"table.py": "".join(mine), f"{name}.py": "x = 1\n"}, days_ago=5 - number)
    monday.checkout("main")

    card = monday.card("forecast_conflicts")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Find the order of merging high, wide and low with the least conflict"
    assert card.reasoning == "high, wide and low change the same lines of table.py."
    done = monday.approve(card)
    assert "1 file in conflict" in done.summary
    assert done.summary.startswith("Merge ")
    assert done.summary.endswith("the worst order has 2")


def test_open_branches_that_do_not_touch_each_other_are_no_card(monday: Situation) -> None:
    monday.commit_shop()
    for name in ("one", "two"):
        monday.checkout("-b", name, "main")
        monday.commit(name, {f"{name}.py": "x = 1\n"}, days_ago=2)
    monday.checkout("main")
    assert "forecast_conflicts" not in monday.kinds()


def test_a_branch_that_was_squashed_into_main_is_not_behind_it(monday: Situation) -> None:
    monday.commit_shop()
    monday.checkout("-b", "rounding")
    monday.commit("Round", FEATURE, days_ago=2)
    monday.commit("Notes", {"notes.txt": "a\n"}, days_ago=2)
    monday.checkout("-b", "other", "main")
    monday.commit("Sum by a generator", MAIN, days_ago=0.2)
    monday.checkout("main")
    monday.git("merge", "-q", "--squash", "rounding")
    monday.git("commit", "-qm", "Round (#1)", days_ago=1)
    monday.checkout("rounding")
    assert not {"rehearse_merge", "forecast_conflicts"} & {*monday.kinds()}


# Somebody asked for a review, or for changes in a pull request of one's own.


CHANGES = {
    "number": 7,
    "title": "Totals are rounded",
    "headRefName": "rounding",
    "url": "https://github.com/shop/cart/pull/7",
    "author": {"login": "ada"},
    "reviewDecision": "CHANGES_REQUESTED",
    "latestReviews": [
        {"author": {"login": "bob"}, "state": "CHANGES_REQUESTED", "submittedAt": "2026-01-04T08:00:00Z"}
    ],
}


def install_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]]) -> None:
    """A `gh` on the PATH that answers as the real one does."""
    folder.mkdir()
    (folder / "answer.json").write_text(json.dumps(answer))
    program = folder / "gh"
    program.write_text(f'#!/bin/sh\n[ "$1" = api ] && echo \'{{"login": "ada"}}\' || cat "{folder}/answer.json"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def wait_for_gh(monday: Situation) -> None:
    """Run a cycle, which asks `gh`, and wait for the answer."""
    monday.cards()
    cast(ContextReader, monday.engine.contexts)._sources.github.settle(30)


@pytest.mark.long
def test_a_pull_request_with_requested_changes(
    monday: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES])
    monday.commit_shop()
    monday.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    monday.checkout("-b", "rounding")
    monday.commit("Round", {"round.md": "x\n"})
    monday.checkout("main")
    wait_for_gh(monday)

    first = monday.first("pull_request", Tier.BLOCKS)
    assert first.assignment.prompt == "Look at pull request #7 “Totals are rounded”"
    assert first.reasoning == "bob asked for changes in your pull request #7 (yesterday 08:00)."

    done = monday.approve(first)
    assert done.summary.endswith("; 1 commit, 1 file changed against main"), done.summary
    transcript = monday.transcript(done)
    assert "https://github.com/shop/cart/pull/7" in transcript
    assert "Next: gh pr view 7 --comments" in transcript
    assert "pull_request" not in monday.kinds()


def test_a_pull_request_that_waits_for_others_is_no_card(
    monday: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES | {"reviewDecision": "REVIEW_REQUIRED", "latestReviews": []}])
    monday.commit_shop()
    monday.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    wait_for_gh(monday)
    assert "pull_request" not in monday.kinds()


# A merge, rebase, cherry-pick, revert or bisect was begun and left.


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
    assert "with ours (main): the one test passed" in done.summary
    assert "with theirs (tax): 1 of 1 test failed" in done.summary
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
    assert done.summary.startswith("The merge conflicts in src/ä b.bin; its tests could not be run: ")

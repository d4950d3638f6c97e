"""The cards about branches that are behind or collide, waiting pull requests, and unfinished merges and rebases."""

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
from tests.support.helpers import make_program

ROUNDED_TOTAL = "def total(prices):\n    return round(sum(prices), 2)\n"
WRONG_TOTAL = "def total(prices):\n    return max(prices)\n"
FEATURE = {"cart.py": ROUNDED_TOTAL}
MAIN = {"cart.py": "def total(prices):\n    return sum(price for price in prices)\n"}
"""It changes the line that `FEATURE` changes."""

CHANGES_REQUESTED = {
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
"""What GitHub says about a pull request in which a reviewer asked for changes."""


def push_as_colleague(situation: Situation, bare: Path, files: dict[str, str]) -> None:
    """Push a commit of somebody else to the remote, and fetch it."""
    colleague = Repository(situation.path.parent / "colleague")
    colleague.git("init", "-q")
    colleague.git("fetch", "-q", str(bare), "main")
    colleague.git("checkout", "-q", "-B", "main", "FETCH_HEAD")
    colleague.commit("A colleague's change", files, at=situation.format_time(1))
    colleague.git("push", "-q", str(bare), "main")
    situation.git("fetch", "-q", "origin")


@pytest.mark.long
def test_a_branch_behind_main_that_would_conflict(shop: Situation) -> None:
    shop.checkout("-b", "rounding")
    shop.commit("Round", FEATURE, days_ago=0.5)
    shop.checkout("main")
    shop.commit("Sum by a generator", MAIN, days_ago=0.2)
    shop.checkout("rounding")
    objects = set((shop.path / ".git/objects").rglob("*"))

    card = shop.predict_top_card("rehearse_merge", Tier.BLOCKS)
    assert card.assignment.prompt == "Rehearse merging main into rounding"
    assert card.reasoning == "main has 1 commit that rounding lacks; merging it conflicts in cart.py."
    assert set((shop.path / ".git/objects").rglob("*")) == objects

    session = shop.approve(card)
    assert session.summary.startswith("Merging main into rounding conflicts in 1 file: cart.py; a rebase stops at ")
    transcript = shop.read_transcript(session)
    assert "Sum by a generator" in transcript
    assert "`git merge main`, or `git rebase main`" in transcript

    shop.approve(shop.propose("summarise_day"))
    assert "rehearse_merge" not in shop.predict_kinds()
    problem = "merging main into rounding still conflicts in cart.py"
    assert list(shop.engine.card_cycle.remarks().values()) == [problem], "other work has run since"
    shop.git("merge", "-q", "-s", "ours", "main")
    shop.predict_cards()
    assert shop.engine.card_cycle.remarks() == {}


@pytest.mark.long
def test_a_base_known_from_the_remote_alone(shop: Situation) -> None:
    bare = shop.add_remote()
    shop.checkout("-b", "größe", "--no-track", "origin/main")
    shop.git("branch", "-q", "-D", "main")
    shop.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(shop, bare, {"notes.txt": "new\n"})

    card = shop.predict_card("rehearse_merge")
    assert card.reasoning == "origin/main has 1 commit that größe lacks; it still merges cleanly."
    session = shop.approve(card)
    assert session.summary.startswith("origin/main merges cleanly into größe, the one test passed")
    assert session.summary.endswith("a rebase of 1 commit would be clean")
    assert session.check is not None


@pytest.mark.long
def test_a_branch_that_parted_from_its_own_upstream(shop: Situation) -> None:
    bare = shop.add_remote()
    shop.commit("Round", FEATURE, days_ago=0.5)
    push_as_colleague(shop, bare, MAIN)
    card = shop.predict_top_card("rehearse_merge")
    assert card.reasoning == "origin/main has 1 commit that main lacks; merging it conflicts in cart.py."


@pytest.mark.long
def test_a_branch_without_own_commits_is_no_card(shop: Situation) -> None:
    bare = shop.add_remote()
    push_as_colleague(shop, bare, MAIN)
    assert "rehearse_merge" not in shop.predict_kinds()


def test_an_upstream_that_was_rewritten_here_is_no_merge(shop: Situation) -> None:
    shop.commit("Round", FEATURE, days_ago=0.5)
    shop.add_remote()
    shop.write("cart.py", MAIN["cart.py"])
    shop.git("commit", "-qa", "--amend", "-m", "Round, better")
    assert "rehearse_merge" not in shop.predict_kinds()


@pytest.mark.long
def test_branches_that_collide(shop: Situation) -> None:
    lines = [f"line_{number} = {number}\n" for number in range(20)]
    shop.commit("Table", {"table.py": "".join(lines)}, days_ago=9)
    changed_lines = {"wide": (3, 15), "low": (3,), "high": (15,), "apart": ()}
    for days_ago, (branch, changed) in zip((5, 4, 3, 2), changed_lines.items(), strict=True):
        shop.checkout("-b", branch, "main")
        table = "".join(f"{branch} = {at}\n" if at in changed else line for at, line in enumerate(lines))
        shop.commit(f"Work of {branch}", {"table.py": table, f"{branch}.py": "x = 1\n"}, days_ago=days_ago)
    shop.checkout("main")

    card = shop.predict_card("forecast_conflicts")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Find the order of merging high, wide and low with the least conflict"
    assert card.reasoning == "high, wide and low change the same lines of table.py."
    session = shop.approve(card)
    assert "1 file in conflict" in session.summary
    assert session.summary.startswith("Merge ")
    assert session.summary.endswith("the worst order has 2")


def test_a_branch_that_was_squashed_into_main_is_not_behind_it(shop: Situation) -> None:
    shop.checkout("-b", "rounding")
    shop.commit("Round", FEATURE, days_ago=2)
    shop.commit("Notes", {"notes.txt": "a\n"}, days_ago=2)
    shop.checkout("-b", "other", "main")
    shop.commit("Sum by a generator", MAIN, days_ago=0.2)
    shop.checkout("main")
    shop.git("merge", "-q", "--squash", "rounding")
    shop.git("commit", "-qm", "Round (#1)", days_ago=1)
    shop.checkout("rounding")
    assert not {"rehearse_merge", "forecast_conflicts"} & {*shop.predict_kinds()}


# Somebody asked for changes in a pull request of yours.


def install_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]]) -> None:
    """Install a `gh` on the PATH that answers as the real one does: "ada" for the user, else `answer`."""
    make_program(folder / "gh", f'[ "$1" = api ] && echo \'{{"login": "ada"}}\' || cat "{folder}/answer.json"')
    (folder / "answer.json").write_text(json.dumps(answer))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def wait_for_gh(situation: Situation) -> None:
    """Run a cycle, which asks `gh`, and wait at most 30 s for the answer."""
    situation.predict_cards()
    cast(ContextReader, situation.engine.contexts)._sources.github.settle(30)


@pytest.mark.long
def test_a_pull_request_with_requested_changes(
    situation: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gh(tmp_path / "bin", monkeypatch, [CHANGES_REQUESTED])
    situation.commit_shop()
    situation.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    situation.checkout("-b", "rounding")
    situation.commit("Round", {"round.md": "x\n"})
    situation.checkout("main")
    wait_for_gh(situation)

    card = situation.predict_top_card("pull_request", Tier.BLOCKS)
    assert card.assignment.prompt == "Look at pull request #7 “Totals are rounded”"
    assert card.reasoning == "bob asked for changes in your pull request #7 (yesterday 08:00)."

    session = situation.approve(card)
    assert session.summary.endswith("; 1 commit, 1 file changed against main"), session.summary
    transcript = situation.read_transcript(session)
    assert "https://github.com/shop/cart/pull/7" in transcript
    assert "Next: gh pr view 7 --comments" in transcript
    assert "pull_request" not in situation.predict_kinds()


def test_a_pull_request_that_waits_for_others_is_no_card(
    situation: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gh(
        tmp_path / "bin", monkeypatch, [CHANGES_REQUESTED | {"reviewDecision": "REVIEW_REQUIRED", "latestReviews": []}]
    )
    situation.commit_shop()
    situation.git("remote", "add", "origin", "git@github.com:shop/cart.git")
    wait_for_gh(situation)
    assert "pull_request" not in situation.predict_kinds()


# A merge, rebase, cherry-pick, revert or bisect was begun and left.


def commit_conflicting_branches(situation: Situation) -> None:
    """`main` and `tax` change the same line; with `tax` a test fails. `größe neu.py` is changed by both, too."""
    situation.commit_shop()
    situation.commit("Sizes", {"größe neu.py": "GROSS = 1\n"}, days_ago=6)
    situation.checkout("-b", "tax")
    situation.commit("Sum with tax", {"cart.py": WRONG_TOTAL, "größe neu.py": "GROSS = 2\n"}, days_ago=4)
    situation.checkout("main")
    situation.commit("Round the sum", {"cart.py": ROUNDED_TOTAL, "größe neu.py": "GROSS = 3\n"}, days_ago=3)


def run_git_that_stops(situation: Situation, *arguments: str) -> None:
    """Run a git command that stops half-way."""
    completed = subprocess.run(["git", *arguments], cwd=situation.path, capture_output=True, text=True, check=False)
    assert completed.returncode, completed.stdout


@pytest.mark.long
def test_a_merge_with_conflicts(situation: Situation) -> None:
    commit_conflicting_branches(situation)
    run_git_that_stops(situation, "merge", "tax")
    status = situation.git("status", "--porcelain")
    heads = situation.git("rev-parse", "HEAD", "MERGE_HEAD")

    card = situation.predict_top_card("unfinished_operation", Tier.AT_RISK)
    assert card.assignment.prompt == "Rehearse both sides of the unfinished merge"
    assert card.reasoning == (
        "Merging tax (“Sum with tax”) into main stopped with 2 files in conflict: cart.py and größe neu.py."
    )
    assert situation.predict_kinds() == ["unfinished_operation"]

    session = situation.approve(card)
    assert session.summary.startswith("The merge conflicts in 2 places of cart.py and größe neu.py")
    assert "with ours (main): the one test passed" in session.summary
    assert "with theirs (tax): 1 of 1 test failed" in session.summary
    transcript = situation.read_transcript(session)
    assert "conflict  cart.py  (1 place)" in transcript
    assert "main: " + situation.git("rev-parse", "--short", "main") + " Round the sum" in transcript
    assert "tax: " + situation.git("rev-parse", "--short", "tax") + " Sum with tax" in transcript
    assert session.summary.endswith(
        "`git add -- cart.py 'größe neu.py'`, then `git merge --continue`. To give up: `git merge --abort`"
    )
    assert situation.git("status", "--porcelain") == status
    assert situation.git("rev-parse", "HEAD", "MERGE_HEAD") == heads


@pytest.mark.long
def test_a_merge_that_is_resolved_and_not_committed(situation: Situation) -> None:
    commit_conflicting_branches(situation)
    run_git_that_stops(situation, "merge", "tax")
    situation.write("cart.py", ROUNDED_TOTAL)
    situation.git("add", "cart.py")
    assert situation.predict_top_card("unfinished_operation").reasoning == (
        "Merging tax (“Sum with tax”) into main stopped with 1 file in conflict: größe neu.py; cart.py is marked as "
        "resolved."
    )
    situation.write("größe neu.py", "GROSS = 5\n")
    situation.git("add", "größe neu.py")
    card = situation.predict_top_card("unfinished_operation")
    assert card.assignment.prompt == "Test the unfinished merge as it stands"
    session = situation.approve(card)
    assert session.summary.startswith(
        "No conflict is left in the merge; the tests in the present state: the one test passed"
    )
    assert session.summary.endswith("To go on: `git merge --continue`. To give up: `git merge --abort`")
    situation.git("commit", "-q", "--no-edit")
    assert "unfinished_operation" not in situation.predict_kinds()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_a_rebase_stopped_half_way(situation: Situation, backend: str) -> None:
    commit_conflicting_branches(situation)
    situation.checkout("tax")
    situation.commit("A test of tax", {"tests/test_tax.py": "def test_tax():\n    assert True\n"}, days_ago=2)
    run_git_that_stops(situation, "rebase", backend, "main")

    card = situation.predict_top_card("unfinished_operation")
    assert card.reasoning.startswith("Rebasing tax onto main stopped at “Sum with tax” with 2 files in conflict")
    session = situation.approve(card)
    assert "with ours (main): the one test passed" in session.summary
    assert "with theirs (tax): 1 of 1 test failed" in session.summary
    assert "`git rebase --abort`" in session.summary


@pytest.mark.long
def test_a_rebase_whose_state_is_damaged_names_what_ends_it(situation: Situation) -> None:
    commit_conflicting_branches(situation)
    situation.checkout("tax")
    run_git_that_stops(situation, "rebase", "main")
    for name in ("onto", "head-name"):
        (situation.path / ".git/rebase-merge" / name).unlink()
    card = situation.predict_top_card("unfinished_operation")
    assert card.reasoning.startswith("Rebasing tax onto a base that is not known")
    assert card.reasoning.endswith("Its state is damaged: git's file rebase-merge/onto is missing or empty.")
    summary = situation.approve(card).summary
    head = situation.git("rev-parse", "HEAD")[:10]
    assert summary.endswith(
        "It cannot go on, because git's file rebase-merge/onto is missing or empty. To give up: "
        f"`git branch backup-{head}`, `git rebase --quit`, `git reset --merge`, `git checkout tax --`"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("verb", "commit", "subject"), [("cherry-pick", "tax", "Sum with tax"), ("revert", "HEAD~1", "Round the sum")]
)
def test_one_commit_that_does_not_apply(situation: Situation, verb: str, commit: str, subject: str) -> None:
    commit_conflicting_branches(situation)
    situation.commit("Round more", {"cart.py": ROUNDED_TOTAL.replace("2", "3")}, days_ago=1)
    run_git_that_stops(situation, verb, commit)
    card = situation.predict_top_card("unfinished_operation")
    assert subject in card.reasoning
    session = situation.approve(card)
    assert f"`git {verb} --abort`" in session.summary
    assert "with ours (main): the one test passed" in session.summary


@pytest.mark.long
def test_a_stash_that_was_popped_into_a_conflict(shop: Situation) -> None:
    shop.write("cart.py", ROUNDED_TOTAL)
    shop.git("stash")
    shop.commit("Max", {"cart.py": WRONG_TOTAL}, days_ago=0.1)
    run_git_that_stops(shop, "stash", "pop")
    card = shop.predict_top_card("unfinished_operation")
    session = shop.approve(card)
    assert "conflicts in 1 place of cart.py" in session.summary
    assert "git reset --merge" in shop.read_transcript(session)


@pytest.mark.long
def test_one_side_removed_the_file(shop: Situation) -> None:
    shop.checkout("-b", "tidy")
    shop.git("rm", "-q", "cart.py", "tests/test_cart.py")
    shop.commit("No cart", days_ago=4)
    shop.checkout("main")
    shop.commit("Round the sum", {"cart.py": ROUNDED_TOTAL}, days_ago=3)
    run_git_that_stops(shop, "merge", "tidy")
    session = shop.approve(shop.predict_top_card("unfinished_operation"))
    assert "conflict  cart.py  (whole file)" in shop.read_transcript(session)
    assert session.summary.startswith("The merge conflicts in cart.py")


@pytest.mark.long
def test_a_bisect_under_way(shop: Situation) -> None:
    commits = [shop.commit(f"Step {number}", {"notes.txt": str(number)}, days_ago=9 - number) for number in range(8)]
    shop.git("bisect", "start", commits[7], commits[0])
    card = shop.predict_top_card("unfinished_operation")
    assert card.reasoning.startswith(
        f"A bisect is under way: 7 revisions left between good {commits[0][:10]} and bad {commits[7][:10]}"
    )
    session = shop.approve(card)
    assert session.summary.startswith("The bisect has 7 revisions left")
    assert "`git bisect reset`" in session.summary
    shop.git("bisect", "reset")
    assert "unfinished_operation" not in shop.predict_kinds()


@pytest.mark.long
def test_a_binary_file_on_a_detached_head_without_tests(situation: Situation) -> None:
    situation.commit("Begin", {"src/ä b.bin": "\0\1"}, days_ago=3)
    situation.checkout("-b", "x/ü")
    situation.commit("Longer", {"src/ä b.bin": "\0\1\2"}, days_ago=2)
    situation.checkout("--detach", "main")
    situation.commit("Longest", {"src/ä b.bin": "\0\1\2\3"}, days_ago=1)
    run_git_that_stops(situation, "merge", "x/ü")
    card = situation.predict_top_card("unfinished_operation")
    assert card.reasoning.endswith("stopped with 1 file in conflict: src/ä b.bin.")
    session = situation.approve(card)
    assert session.summary.startswith("The merge conflicts in src/ä b.bin; its tests could not be run: ")

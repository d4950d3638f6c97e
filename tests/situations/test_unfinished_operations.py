"""A merge, rebase, cherry-pick, revert or bisect that was begun and left is the first card (SPEC 2.11, tier 1)."""

import pytest

from engine.model import Tier
from tests.situations.situation import ROUNDED_TOTAL, WRONG_TOTAL, Situation
from tests.support.programs import run_git_that_stops

pytestmark = pytest.mark.long


def commit_conflicting_branches(situation: Situation):
    """`main` and `tax` change the same line; with `tax` a test fails. `größe neu.py` is changed by both, too."""
    situation.commit_shop()
    situation.commit("Sizes", {"größe neu.py": "GROSS = 1\n"}, days_ago=6)
    situation.checkout("-b", "tax")
    situation.commit("Sum with tax", {"cart.py": WRONG_TOTAL, "größe neu.py": "GROSS = 2\n"}, days_ago=4)
    situation.checkout("main")
    situation.commit("Round the sum", {"cart.py": ROUNDED_TOTAL, "größe neu.py": "GROSS = 3\n"}, days_ago=3)


def test_both_sides_of_a_stopped_merge_are_tested_and_nothing_moves(situation: Situation):
    commit_conflicting_branches(situation)
    run_git_that_stops(situation.path, "merge", "tax")
    status = situation.git("status", "--porcelain")
    heads = situation.git("rev-parse", "HEAD", "MERGE_HEAD")

    card = situation.predict_top_card(
        "unfinished_operation", Tier.AT_RISK, "Rehearse both sides of the unfinished merge"
    )
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


def test_a_resolved_merge_is_tested_as_it_stands(situation: Situation):
    commit_conflicting_branches(situation)
    run_git_that_stops(situation.path, "merge", "tax")
    situation.write("cart.py", ROUNDED_TOTAL)
    situation.git("add", "cart.py")
    assert situation.predict_top_card("unfinished_operation").reasoning == (
        "Merging tax (“Sum with tax”) into main stopped with 1 file in conflict: größe neu.py; cart.py is marked as "
        "resolved."
    )
    situation.write("größe neu.py", "GROSS = 5\n")
    situation.git("add", "größe neu.py")
    session = situation.approve(
        situation.predict_top_card("unfinished_operation", prompt="Test the unfinished merge as it stands")
    )
    assert session.summary.startswith(
        "No conflict is left in the merge; the tests in the present state: the one test passed"
    )
    assert session.summary.endswith("To go on: `git merge --continue`. To give up: `git merge --abort`")
    situation.git("commit", "-q", "--no-edit")
    assert "unfinished_operation" not in situation.predict_kinds()


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_both_sides_of_a_stopped_rebase_are_tested(situation: Situation, backend: str):
    commit_conflicting_branches(situation)
    situation.checkout("tax")
    situation.commit("A test of tax", {"tests/test_tax.py": "def test_tax():\n    assert True\n"}, days_ago=2)
    run_git_that_stops(situation.path, "rebase", backend, "main")

    card = situation.predict_top_card("unfinished_operation")
    assert card.reasoning.startswith("Rebasing tax onto main stopped at “Sum with tax” with 2 files in conflict")
    session = situation.approve(card)
    assert "with ours (main): the one test passed" in session.summary
    assert "with theirs (tax): 1 of 1 test failed" in session.summary
    assert "`git rebase --abort`" in session.summary


def test_a_rebase_whose_state_is_damaged_names_what_ends_it(situation: Situation):
    commit_conflicting_branches(situation)
    situation.checkout("tax")
    run_git_that_stops(situation.path, "rebase", "main")
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


@pytest.mark.parametrize(
    "verb, commit, subject", [("cherry-pick", "tax", "Sum with tax"), ("revert", "HEAD~1", "Round the sum")]
)
def test_a_commit_that_does_not_apply_is_named(situation: Situation, verb: str, commit: str, subject: str):
    commit_conflicting_branches(situation)
    situation.commit("Round more", {"cart.py": ROUNDED_TOTAL.replace("2", "3")}, days_ago=1)
    run_git_that_stops(situation.path, verb, commit)
    card = situation.predict_top_card("unfinished_operation")
    assert subject in card.reasoning
    session = situation.approve(card)
    assert f"`git {verb} --abort`" in session.summary
    assert "with ours (main): the one test passed" in session.summary


def test_a_stash_that_conflicts_when_it_is_popped_is_told(shop: Situation):
    shop.write("cart.py", ROUNDED_TOTAL)
    shop.git("stash")
    shop.commit("Max", {"cart.py": WRONG_TOTAL}, days_ago=0.1)
    run_git_that_stops(shop.path, "stash", "pop")
    session = shop.approve(shop.predict_top_card("unfinished_operation"))
    assert "conflicts in 1 place of cart.py" in session.summary
    assert "git reset --merge" in shop.read_transcript(session)


def test_a_file_that_one_side_removed_conflicts_as_a_whole(shop: Situation):
    shop.checkout("-b", "tidy")
    shop.git("rm", "-q", "cart.py", "tests/test_cart.py")
    shop.commit("No cart", days_ago=4)
    shop.checkout("main")
    shop.commit("Round the sum", {"cart.py": ROUNDED_TOTAL}, days_ago=3)
    run_git_that_stops(shop.path, "merge", "tidy")
    session = shop.approve(shop.predict_top_card("unfinished_operation"))
    assert "conflict  cart.py  (whole file)" in shop.read_transcript(session)
    assert session.summary.startswith("The merge conflicts in cart.py")


def test_a_bisect_under_way_is_told_with_what_is_left(shop: Situation):
    commits = [shop.commit(f"Step {number}", {"notes.txt": str(number)}, days_ago=9 - number) for number in range(8)]
    shop.git("bisect", "start", commits[7], commits[0])
    card = shop.predict_top_card("unfinished_operation")
    assert card.reasoning.startswith(
        f"A bisect is under way: 7 revisions left between good {commits[0][:10]} and bad {commits[7][:10]}"
    )
    session = shop.approve(card)
    assert session.summary.startswith("The bisect has 7 revisions left")
    assert session.summary.endswith("or `git bisect skip` if it cannot be tested; to give up: `git bisect reset`")
    shop.git("bisect", "reset")
    assert "unfinished_operation" not in shop.predict_kinds()


def test_a_conflict_in_a_binary_file_is_told_where_no_test_can_run(situation: Situation):
    situation.commit("Begin", {"src/ä b.bin": "\0\1"}, days_ago=3)
    situation.checkout("-b", "x/ü")
    situation.commit("Longer", {"src/ä b.bin": "\0\1\2"}, days_ago=2)
    situation.checkout("--detach", "main")
    situation.commit("Longest", {"src/ä b.bin": "\0\1\2\3"}, days_ago=1)
    run_git_that_stops(situation.path, "merge", "x/ü")
    card = situation.predict_top_card("unfinished_operation")
    assert card.reasoning.endswith("stopped with 1 file in conflict: src/ä b.bin.")
    session = situation.approve(card)
    assert session.summary.startswith("The merge conflicts in src/ä b.bin; its tests could not be run: ")

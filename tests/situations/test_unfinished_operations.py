"""A merge, rebase or bisect that was begun and left is the first card (SPEC 2.11, tier 1)."""

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
    assert "Theirs: tax “Sum with tax”" in transcript
    assert session.summary.endswith(
        "`git add -- cart.py 'größe neu.py'`, then `git merge --continue`. To give up: `git merge --abort`"
    )
    assert situation.git("status", "--porcelain") == status
    assert situation.git("rev-parse", "HEAD", "MERGE_HEAD") == heads

    situation.git("add", "-A")
    card = situation.predict_top_card("unfinished_operation", prompt="Test the unfinished merge as it stands")
    assert card.reasoning.endswith("was begun and is not finished.")
    settled = situation.approve(card).summary
    assert settled.startswith("No conflict is left in the merge; the tests in the present state: 1 of 1 test failed")


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
    for _ in range(2):
        shop.git("bisect", "bad")
    shop.git("bisect", "good")
    card = shop.predict_top_card("unfinished_operation")
    assert card.reasoning == f"A bisect is over and was not ended: {commits[2][:10]} is the first bad revision."
    assert shop.approve(card).summary.endswith("Step 2 is the first bad commit; to end it: `git bisect reset`")
    shop.git("bisect", "reset")
    assert "unfinished_operation" not in shop.predict_kinds()

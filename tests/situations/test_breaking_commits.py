"""A test passed before a commit and fails after it: the commit is found, and its revert offered (SPEC 2.10, 2.11)."""

import pytest

from engine.model import SessionView, Tier
from engine.prediction.kinds import FIX_BY_AGENT
from tests.situations.situation import RIGHT_TOTAL, WRONG_TOTAL, Situation

pytestmark = pytest.mark.long

TEST = "tests/test_cart.py::test_total"


def find_problem_after_decision(situation: Situation) -> str:
    """Let the cards follow the last decision, and return the problem that the status then names, or ""."""
    situation.engine.checks.follow_up()
    return situation.problem


def find_problem_after_cycle(situation: Situation) -> str:
    """Run a cycle, and return the problem that the status then names, or ""."""
    situation.predict_cards()
    return situation.problem


def break_and_rehearse_revert(shop: Situation) -> SessionView:
    """Break a test by a commit, and rehearse its revert, which then waits for you."""
    culprit = shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.01)
    shop.run_tests()
    shop.advance(minutes=1)
    return shop.approve(shop.propose(f"rehearse_revert commit={culprit} test={TEST}"))


def test_a_test_that_the_last_commit_broke_blames_it(shop: Situation):
    shop.record_test_run()
    culprit = shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.01)
    shop.record_test_run(TEST, passed=0)

    card = shop.predict_top_card("bisect", Tier.AT_RISK, "Confirm that “Faster cart” broke `test_total`")
    assert card.reasoning.startswith("It passed one commit before")
    assert "still_red" not in shop.predict_kinds(), "it would say less about the same test"

    session = shop.approve(card)
    assert session.summary.startswith(f"{culprit[:10]} “Faster cart”")
    assert "bisect" not in shop.predict_kinds()
    shop.assign_coding_agent()
    assert shop.predict_card(FIX_BY_AGENT).assignment.prompt.startswith("Make `tests/test_cart.py::test_total` pass")


def test_the_commit_that_broke_a_test_is_reverted(shop: Situation):
    shop.run_tests()
    shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.02)
    shop.commit("Describe it", {"README.md": "# Shop\n"}, days_ago=0.01)
    shop.run_tests()
    blamed = shop.approve(shop.predict_top_card("bisect"))
    assert blamed.next_step == "rehearse_revert"

    card = shop.predict_top_card(
        "rehearse_revert", Tier.AT_RISK, "Revert “Faster cart” in a worktree and run `test_total` and the whole suite"
    )
    assert not {"bisect", "still_red"} & set(shop.predict_kinds())
    session = shop.approve(card)
    assert "reverts cleanly and `tests/test_cart.py::test_total` then passes" in session.summary
    assert "+    return max(prices)" in shop.read_transcript(session)
    assert "max" in (shop.path / "cart.py").read_text()  # nothing is landed yet
    shop.land(session)
    assert "max" not in (shop.path / "cart.py").read_text()
    assert (shop.path / "README.md").exists()
    shop.run_tests()
    assert not {"bisect", "rehearse_revert", "still_red"} & set(shop.predict_kinds())


def test_a_landed_revert_whose_tests_passed_needs_no_further_run(shop: Situation):
    reverted = break_and_rehearse_revert(shop)
    assert find_problem_after_cycle(shop).endswith("has not passed since; its revert waits for you")
    shop.advance(minutes=1)
    shop.land(reverted)
    assert find_problem_after_decision(shop) == "", "it is no problem any more, before the next cycle"

    shop.write("cart.py", RIGHT_TOTAL)  # dates it by the clock of the situation
    assert not {"apply_fix", "rerun_failing", "run_tests", "still_red"} & set(shop.predict_kinds())
    assert find_problem_after_cycle(shop) == ""

    change = reverted.change_set_id
    shop.engine.changes.undo(change)
    assert find_problem_after_decision(shop).endswith(f"its revert was undone; `clawpy land {change}` lands all of it")
    shop.engine.adaptation.run_round()
    branch = shop.engine.changes.branch(change).branch
    assert find_problem_after_decision(shop).endswith(f"its revert is on the branch {branch}")
    assert "apply_fix" not in shop.predict_kinds(), "it is the change on the branch"


def test_a_revert_of_a_commit_that_others_built_on_conflicts(shop: Situation):
    shop.run_tests()
    shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.02)
    shop.commit("Whole numbers", {"cart.py": "def total(prices):\n    return int(max(prices))\n"}, days_ago=0.01)
    shop.run_tests()
    shop.approve(shop.predict_top_card("bisect"))
    session = shop.approve(shop.predict_top_card("rehearse_revert"))
    assert "conflicts in 1 file: cart.py" in session.summary
    assert session.change_set_id is None
    assert "<<<<<<<" not in (shop.path / "cart.py").read_text()
    assert "rehearse_revert" not in shop.predict_kinds()


def test_a_revert_that_your_uncommitted_lines_prevent_comes_back_without_them(shop: Situation):
    shop.run_tests()
    shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.01)
    shop.run_tests()
    shop.approve(shop.predict_top_card("bisect"))
    shop.advance(minutes=1)
    shop.write("cart.py", WRONG_TOTAL + "\n\ndef more():\n    return 1\n")
    session = shop.approve(shop.predict_card("rehearse_revert"))
    assert session.summary.endswith("is clean on HEAD, but conflicts with your uncommitted lines in 1 file: cart.py")
    assert "git stash push --include-untracked -- cart.py" in shop.read_transcript(session)
    assert session.change_set_id is None
    assert "rehearse_revert" not in shop.predict_kinds()

    shop.git("stash", "push", "--include-untracked", "--", "cart.py")
    session = shop.approve(shop.predict_card("rehearse_revert"))
    assert "reverts cleanly and `tests/test_cart.py::test_total` then passes" in session.summary
    assert "rehearse_revert" not in shop.predict_kinds()


def test_a_repository_without_tags_or_earlier_runs_is_searched_from_the_commit_of_the_test(
    situation: Situation,
):
    written = situation.commit_shop()
    situation.commit("Describe it", {"README.md": "# Shop\n"}, days_ago=3)
    culprit = situation.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=2)
    situation.commit("Praise it", {"README.md": "# The shop\n"}, days_ago=1)
    situation.run_tests()

    assert situation.approve(
        situation.predict_top_card("bisect", Tier.BLOCKS, f"Find what broke `test_total`: look back to {written[:7]}")
    ).summary.startswith(f"{culprit[:10]} “Faster cart”")

"""A test passed before a commit or a landing, and fails after it: the commit is found and its revert offered, or the
landing undone (SPEC 2.10, 2.11)."""

import pytest

from engine.model import ChangeState, Refusal, Tier
from engine.prediction import FIX_BY_AGENT
from tests.situations.situation import CART_TESTS, RIGHT_TOTAL, TOTAL_TEST, WRONG_TOTAL, Situation

pytestmark = pytest.mark.long


def test_a_test_that_the_last_commit_broke_blames_it(shop: Situation):
    shop.record_test_run()
    culprit = shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.01)
    shop.record_test_run(TOTAL_TEST, passed=0)

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


def test_a_revert_that_conflicts_leaves_no_changes(shop: Situation):
    shop.run_tests()
    shop.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=0.01)
    shop.run_tests()
    shop.approve(shop.predict_top_card("bisect"))
    shop.advance(minutes=1)
    shop.write("cart.py", WRONG_TOTAL + "\n\ndef more():\n    return 1\n")
    session = shop.approve(shop.predict_card("rehearse_revert"))
    assert session.summary.endswith("conflicts in 1 file: cart.py")
    assert session.change_set_id is None
    assert "rehearse_revert" not in shop.predict_kinds()


def test_a_repository_without_tags_or_earlier_runs_is_searched_from_the_commit_of_the_test(situation: Situation):
    written = situation.commit_shop()
    situation.commit("Describe it", {"README.md": "# Shop\n"}, days_ago=3)
    culprit = situation.commit("Faster cart", {"cart.py": WRONG_TOTAL}, days_ago=2)
    situation.commit("Praise it", {"README.md": "# The shop\n"}, days_ago=1)
    situation.run_tests()

    assert situation.approve(
        situation.predict_top_card("bisect", Tier.BLOCKS, f"Find what broke `test_total`: look back to {written[:7]}")
    ).summary.startswith(f"{culprit[:10]} “Faster cart”")


def land_breaking_revert(situation: Situation) -> str:
    """Land a revert that breaks the test, and return its change set."""
    situation.commit_shop()
    situation.commit("Slow", {"cart.py": WRONG_TOTAL, "tests/test_cart.py": "\n"}, days_ago=5)
    right = situation.commit("Right total", {"cart.py": RIGHT_TOTAL}, days_ago=4)
    situation.commit("Test", {"tests/test_cart.py": CART_TESTS}, days_ago=3)
    situation.run_tests()
    card = situation.propose(f"rehearse_revert commit={right}")
    session = situation.approve(card)
    assert "reverts cleanly, but 1 of 1 test failed" in session.summary
    assert session.change_set_id is not None
    situation.advance(minutes=1)
    situation.land(session)
    situation.advance(minutes=1)
    situation.run_tests()
    return session.change_set_id


def test_a_landing_that_broke_a_test_is_undone(situation: Situation):
    change_set = land_breaking_revert(situation)
    card = situation.predict_top_card("undo_landing", Tier.AT_RISK)
    assert card.assignment.prompt.startswith("Undo the landing of “")
    assert card.assignment.prompt.endswith("which broke `test_total`")
    assert card.reasoning.endswith("it has failed since. Between these runs, git sees no other change.")
    session = situation.approve(card)
    assert session.summary.endswith("is undone: 1 file restored")
    assert (situation.path / "cart.py").read_text() == RIGHT_TOTAL
    assert situation.engine.changes.get(change_set).state is ChangeState.UNDONE
    with pytest.raises(Refusal) as raised:
        situation.engine.cards.undo(card.id)
    assert str(raised.value).endswith("cannot be undone by this (instead: land the change again on the work screen)")
    assert session.next_step == "rerun_failing"
    situation.predict_top_card("rerun_failing")
    situation.advance(minutes=1)
    situation.run_tests()
    assert not {"undo_landing", "bisect", "still_red"} & set(situation.predict_kinds())


def test_a_landing_that_was_edited_since_is_no_card(situation: Situation):
    land_breaking_revert(situation)
    situation.write("cart.py", "def total(prices):\n    return 3\n")
    assert "undo_landing" not in situation.predict_kinds()

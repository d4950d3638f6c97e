"""Tests passed, a change was landed, and they fail since: its undo is offered, unless you edited it (SPEC 2.11)."""

import pytest

from engine.model import ChangeState, Refusal, Tier
from tests.situations.situation import RIGHT_TOTAL, TESTS, WRONG_TOTAL, Situation

pytestmark = pytest.mark.long


def land_breaking_revert(situation: Situation) -> str:
    """Land a revert that breaks the test, and return its change set."""
    situation.commit_shop()
    situation.commit("Slow", {"cart.py": WRONG_TOTAL, "tests/test_cart.py": "\n"}, days_ago=5)
    right = situation.commit("Right total", {"cart.py": RIGHT_TOTAL}, days_ago=4)
    situation.commit("Test", {"tests/test_cart.py": TESTS}, days_ago=3)
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
    with pytest.raises(Refusal) as refused:
        situation.engine.cards.undo(card.id)
    assert str(refused.value).endswith("cannot be undone by this (instead: land the change again on the work screen)")
    assert session.next_step == "rerun_failing"
    situation.predict_top_card("rerun_failing")
    situation.advance(minutes=1)
    situation.run_tests()
    assert not {"undo_landing", "bisect", "still_red"} & set(situation.predict_kinds())


TWO_FUNCTIONS = "def total(prices):\n    return {}(prices)\n\n\n# ----\n\n\ndef more():\n    return {}\n"


@pytest.mark.parametrize(
    "edited, text, is_before",
    [
        ("cart.py", WRONG_TOTAL, True),
        ("cart.py", WRONG_TOTAL, False),
        ("more.py", TWO_FUNCTIONS.format("max", 2), True),
    ],
    ids=["another file before the landing", "another file after the landing", "the landed file before the landing"],
)
def test_a_landing_beside_which_you_changed_something_is_not_blamed(
    situation: Situation, edited: str, text: str, is_before: bool
):
    situation.commit_shop()
    cart = "from more import total\n" if edited == "more.py" else RIGHT_TOTAL
    situation.commit("One", {"more.py": TWO_FUNCTIONS.format("sum", 1), "cart.py": cart}, days_ago=5)
    two = situation.commit("Two", {"more.py": TWO_FUNCTIONS.format("sum", 2)}, days_ago=4)
    situation.run_tests()
    session = situation.approve(situation.propose(f"rehearse_revert commit={two}"))
    situation.advance(minutes=1)
    if is_before:
        situation.write(edited, text)
    situation.land(session)
    situation.advance(minutes=1)
    if not is_before:
        situation.write(edited, text)
    situation.advance(minutes=1)
    assert "1 of 1 test failed" in situation.run_tests().summary
    assert "undo_landing" not in situation.predict_kinds()


def test_a_landing_that_was_edited_since_is_no_card(situation: Situation):
    land_breaking_revert(situation)
    situation.write("cart.py", "def total(prices):\n    return 3\n")
    assert "undo_landing" not in situation.predict_kinds()

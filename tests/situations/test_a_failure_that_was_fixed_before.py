"""A test was red, a change of ours turned it green, and later it fails in the same way again."""

from __future__ import annotations

import pytest

from engine.model import Card, Result, Tier
from engine.model.adaptation import FixTemplate
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long

TEST = "tests/test_cart.py::test_total"
SUM = "def total(prices):\n    return sum(prices)\n"
BROKEN = "def total(prices):\n    return sum(prices) / len([])\n"


def break_and_fix(monday: Situation) -> None:
    """The last commit broke a test; its revert turned it green and was landed."""
    monday.commit_shop()
    culprit = monday.commit("Mean price", {"cart.py": BROKEN}, days_ago=0.02)
    monday.run_tests()
    monday.advance(minutes=1)
    revert = f"rehearse_revert commit={culprit} test={TEST}"
    reverted = monday.approve(monday.propose(revert))
    monday.land(reverted)
    monday.commit("Take it back")


def offered_fix(monday: Situation) -> Card | None:
    """The card that offers a fix after a red run."""
    monday.advance(minutes=1)
    assert monday.run_tests().result is Result.FAILED
    return next((card for card in monday.cards() if card.kind == "apply_fix"), None)


def test_a_card_offers_the_fix_and_landing_it_bears_it_out(monday: Situation) -> None:
    break_and_fix(monday)
    monday.commit("A discount", {"cart.py": f"# With a discount.\n\n\n{BROKEN}"}, days_ago=0)
    card = offered_fix(monday)
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Apply the fix from 09:31 in a worktree and run `test_total`"
    assert "with “ZeroDivisionError: division by zero” as it did before “Revert" in card.reasoning
    assert "still_red" not in monday.kinds(), "it would say less of the same test"

    done = monday.approve(card)
    assert done.result is Result.SUCCEEDED
    assert done.summary.startswith(f"The fix applies and {TEST} passes")
    assert "len([])" in (monday.path / "cart.py").read_text(), "nothing is landed yet"
    monday.land(done)
    assert (monday.path / "cart.py").read_text() == f"# With a discount.\n\n\n{SUM}"

    monday.engine.adaptation.run_round()
    (fix,) = monday.engine.adaptation.candidates()
    assert isinstance(fix.effect, FixTemplate)
    assert fix.effect.causes == ("ZeroDivisionError: division by zero in cart.py",)
    assert len(fix.corroborated_by) == 1, "another session turned the same test green"


def test_a_fix_that_does_not_help_says_so(monday: Situation) -> None:
    break_and_fix(monday)
    monday.commit("A typo", {"cart.py": "def total(prices):\n    return summ(prices)\n"}, days_ago=0)
    card = offered_fix(monday)
    assert card is None, "another error of the same test"

    monday.commit("Wrong twice", {"cart.py": "def total(prices):\n    return 0 / (0 * len(prices))\n"}, days_ago=0)
    card = offered_fix(monday)
    assert card is not None
    done = monday.approve(card)
    assert (done.result, done.summary) == (Result.FAILED, "The fix does not apply: it conflicts in cart.py")
    assert done.change_set_id is None
    assert "<<<<" not in (monday.path / "cart.py").read_text()
    assert "apply_fix" not in monday.kinds(), "it was tried on these files"

    tax = "def tax(price):\n    return price / (price - price)\n\n\n"
    test = "def test_total():\n    from cart import tax, total\n    assert total([1, 2]) + tax(1) == 3\n"
    monday.commit("A tax", {"cart.py": tax + BROKEN, "tests/test_cart.py": test}, days_ago=0)
    card = offered_fix(monday)
    assert card is not None
    done = monday.approve(card)
    assert done.result is Result.FAILED
    assert done.summary.startswith(f"The fix applies, but {TEST} still fails, so the fix is discarded")
    assert done.change_set_id is None

    (fix,) = monday.engine.adaptation.candidates()
    monday.engine.adaptation.reject(fix.id, "it does not help")
    assert offered_fix(monday) is None, "it was turned down"

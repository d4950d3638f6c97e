"""A card that was dismissed stays away, whatever is committed meanwhile."""

from __future__ import annotations

import pytest

from engine.model import Card, DismissReason
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long


def test_it_stays_away_over_new_commits_and_new_files_for_seven_days(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    first = monday.first("run_tests")
    monday.engine.cards.dismiss(first.id)
    for number in range(6):
        monday.advance(days=1)
        monday.commit(
            f"Step {number}", {"cart.py": f"def total(prices):\n    return sum(prices) - {number}\n"}, days_ago=0
        )
        monday.write("other.py", f"x = {number}\n")
        assert "run_tests" not in monday.kinds()
    monday.advance(days=1, minutes=1)
    assert "run_tests" in monday.kinds()


def card_of_a_new_branch(monday: Situation, number: int) -> Card:
    """The card for the tests of an edit on another branch."""
    monday.checkout("-b", f"branch-{number}")
    monday.write("cart.py", f"def total(prices):\n    return sum(prices) + {number} - {number}\n")
    return monday.card("run_tests")


def test_three_dismissals_switch_the_kind_off_and_lifting_brings_it_back(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    for number in range(3):
        card = card_of_a_new_branch(monday, number)
        dismissed = monday.engine.cards.dismiss(card.id)
    assert "switched off" in dismissed.note
    monday.checkout("-b", "branch-3")
    assert "run_tests" not in monday.kinds()
    mute = next(one for one in monday.engine.cards.muted() if not one.subject)
    monday.engine.cards.lift(mute.id)
    assert "run_tests" in monday.kinds()


def test_dismissing_as_already_done_switches_nothing_off(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    for number in range(4):
        card = card_of_a_new_branch(monday, number)
        monday.engine.cards.dismiss(card.id, reason=DismissReason.ALREADY_DONE)
    assert all(one.subject for one in monday.engine.cards.muted())

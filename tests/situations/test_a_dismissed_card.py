"""A card that was dismissed stays away, whatever is committed meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.model import DismissReason
from tests.situations.conftest import Situation


@pytest.mark.long
def test_it_stays_away_over_new_commits_and_new_files_for_seven_days(monday: Situation) -> None:
    monday.shop()
    monday.remote()
    monday.ran()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    first = monday.first()
    assert first.kind == "run_tests"
    monday.engine.cards.dismiss(first.id)
    for number in range(6):
        monday.clock.advance(timedelta(days=1))
        monday.commit(
            f"Step {number}", {"cart.py": f"def total(prices):\n    return sum(prices) - {number}\n"}, days_ago=0
        )
        monday.write("other.py", f"x = {number}\n")
        assert "run_tests" not in monday.kinds()
    monday.clock.advance(timedelta(days=1, minutes=1))
    assert "run_tests" in monday.kinds()


@pytest.mark.long
def test_three_dismissals_switch_the_kind_off_and_lifting_brings_it_back(monday: Situation) -> None:
    monday.shop()
    monday.ran()
    for number in range(3):
        monday.git("checkout", "-q", "-b", f"branch-{number}")
        monday.write("cart.py", f"def total(prices):\n    return sum(prices) + {number} - {number}\n")
        card = next(one for one in monday.cards() if one.kind == "run_tests")
        dismissed = monday.engine.cards.dismiss(card.id)
    assert "switched off" in dismissed.note
    monday.git("checkout", "-q", "-b", "branch-3")
    assert "run_tests" not in monday.kinds()
    mute = next(one for one in monday.engine.cards.muted() if not one.subject)
    monday.engine.cards.lift(mute.id)
    assert "run_tests" in monday.kinds()


@pytest.mark.long
def test_already_done_counts_against_nothing(monday: Situation) -> None:
    monday.shop()
    monday.ran()
    for number in range(4):
        monday.git("checkout", "-q", "-b", f"branch-{number}")
        monday.write("cart.py", f"def total(prices):\n    return sum(prices) + {number} - {number}\n")
        card = next(one for one in monday.cards() if one.kind == "run_tests")
        monday.engine.cards.dismiss(card.id, reason=DismissReason.ALREADY_DONE)
    assert all(one.subject for one in monday.engine.cards.muted())

"""The day's summary comes in the evening of a day with work of your own, and at no other time."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation


@pytest.fixture
def pushed(monday: Situation) -> Situation:
    """A project of which everything is pushed and tested."""
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    return monday


def commit_and_push(monday: Situation) -> None:
    monday.commit("A coupon", {"notes.md": "Coupons\n"}, days_ago=0)
    monday.git("push", "-q", "origin", "main")


@pytest.mark.long
def test_in_the_evening_after_own_work(pushed: Situation) -> None:
    commit_and_push(pushed)
    assert "summarise_day" not in pushed.kinds()
    pushed.advance(hours=10)
    done = pushed.approve(pushed.first("summarise_day", Tier.UPKEEP))
    assert "1 commit" in done.summary
    assert "A coupon" in pushed.transcript(done)


def test_not_on_a_day_without_own_work(pushed: Situation) -> None:
    pushed.advance(hours=10)
    assert pushed.kinds() == []


def test_not_at_two_in_the_morning(pushed: Situation) -> None:
    commit_and_push(pushed)
    pushed.advance(hours=17)
    assert pushed.kinds() == []

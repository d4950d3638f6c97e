"""The day's summary comes in the evening of a day with work of your own, and at no other time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation


@pytest.mark.long
def test_in_the_evening_after_own_work(monday: Situation) -> None:
    monday.shop()
    monday.remote()
    monday.ran()
    monday.commit("A coupon", {"notes.md": "Coupons\n"}, days_ago=0)
    monday.git("push", "-q", "origin", "main")
    assert "summarise_day" not in monday.kinds()
    monday.clock.advance(timedelta(hours=10))
    card = monday.first()
    assert (card.kind, card.tier) == ("summarise_day", Tier.UPKEEP)
    done = monday.approve(card)
    assert "1 commit" in done.summary
    assert "A coupon" in monday.transcript(done)


def test_not_on_a_day_without_it(monday: Situation) -> None:
    monday.shop()
    monday.remote()
    monday.ran()
    monday.clock.advance(timedelta(hours=10))
    assert monday.kinds() == []


def test_at_two_in_the_morning_nobody_sums_up(monday: Situation) -> None:
    monday.shop()
    monday.remote()
    monday.ran()
    monday.commit("Late", {"notes.md": "Late\n"}, days_ago=0)
    monday.git("push", "-q", "origin", "main")
    monday.clock.advance(timedelta(hours=17))
    assert monday.kinds() == []

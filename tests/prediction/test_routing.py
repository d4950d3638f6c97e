"""The four steps of SPEC 2.4."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.prediction.routing import RECENTLY, Route, route
from engine.values import PartOfDay, Randomness, Refusal

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
CHANNELS = ["koji-core", "chronicle-hub", "garden"]


def to(**given: Any) -> Route:
    defaults: dict[str, Any] = {
        "twin": None,
        "affinity": "",
        "registered": CHANNELS,
        "triggered": {},
        "routed": {},
        "part": PartOfDay.MORNING,
        "now": NOW,
        "randomness": Randomness(7),
    }
    return route(**(defaults | given))


def test_the_twin_goes_first_then_affinity() -> None:
    assert to(twin="garden", affinity="koji-core") == Route("garden", "twin")
    assert to(affinity="chronicle-hub") == Route("chronicle-hub", "affinity")


@pytest.mark.parametrize("given", [{"twin": "gardn"}, {"affinity": "gardn"}, {"registered": []}])
def test_an_unregistered_channel_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        to(**given)
    assert refused.value.code == "unknown_channel"


def test_round_robin_passes_over_what_was_triggered_recently() -> None:
    just = NOW - RECENTLY + timedelta(microseconds=1)
    assert to(triggered={"koji-core": just}).channel == "chronicle-hub"
    assert to(triggered={"koji-core": NOW - RECENTLY}).channel == "chronicle-hub", "least recently triggered first"
    everywhere = {"koji-core": NOW - RECENTLY * 2, "chronicle-hub": NOW - RECENTLY * 3, "garden": just}
    assert to(triggered=everywhere) == Route("chronicle-hub", "round-robin")


def test_round_robin_goes_round_within_a_cycle() -> None:
    routed: dict[str, int] = {}
    seen = []
    for _ in range(6):
        channel = to(routed=routed).channel
        routed[channel] = routed.get(channel, 0) + 1
        seen.append(channel)
    assert seen == CHANNELS * 2


def test_the_last_step_is_a_seeded_draw_by_time_of_day() -> None:
    busy = dict.fromkeys(CHANNELS, NOW)

    def draws(part: PartOfDay) -> list[str]:
        randomness = Randomness(3)
        return [to(triggered=busy, part=part, randomness=randomness).channel for _ in range(300)]

    assert draws(PartOfDay.EVENING) == draws(PartOfDay.EVENING)
    assert Counter(draws(PartOfDay.EVENING)).most_common(1)[0][0] == "chronicle-hub"
    assert Counter(draws(PartOfDay.AFTERNOON)).most_common(1)[0][0] == "koji-core"

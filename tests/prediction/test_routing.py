"""The five steps of routing (SPEC 2.4), and the agent that gets the work (SPEC 1.1)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config import ChannelSettings, FixedSettings, Settings
from engine.model import Randomness, Refusal
from engine.prediction.routing import RECENT, Route, Router

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
CHANNELS = ["koji-core", "chronicle-hub", "garden"]
SERVING = {"koji-core": "backend_builder", "chronicle-hub": "chronicler", "garden": "gardener"}


def router(
    *, at: datetime = NOW, means: Route | None = None, randomness: Randomness | None = None, channels: Any = SERVING
) -> Router:
    settings = Settings(channels={name: ChannelSettings(agent=agent) for name, agent in channels.items()})
    place = lambda prompt, channel: means or Route(channel)  # noqa: E731
    return Router(FixedSettings(settings), FakeClock(at), randomness or Randomness(7), place)


def route_of(prose: str = "", *, by: Router | None = None, **options: Any) -> Route:
    return (by or router()).route(prose, **({"triggered": {}, "routed": {}} | options))


def test_a_named_channel_goes_first_then_affinity_and_the_channel_has_its_agent() -> None:
    assert route_of(named="garden", affinity="koji-core") == Route("garden", "gardener")
    assert route_of(affinity="chronicle-hub") == Route("chronicle-hub", "chronicler")


def test_a_prompt_goes_by_its_meaning_and_a_flow_does_not() -> None:
    means = Route("koji-core", "frontend_builder", "by meaning, 61%", b"vector")
    assert route_of("fix the menu", by=router(means=means)) == means
    assert route_of(by=router(means=means)).why == "round-robin", "a flow means what it does"


@pytest.mark.parametrize("options", [{"named": "gardn"}, {"affinity": "gardn"}, {"by": router(channels={})}])
def test_an_unregistered_channel_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        route_of(**options)
    assert refused.value.code == "unknown_channel"


def test_the_round_robin_passes_over_channels_that_were_triggered_recently() -> None:
    just = NOW - RECENT + timedelta(microseconds=1)
    assert route_of(triggered={"koji-core": just}).channel == "chronicle-hub"
    assert route_of(triggered={"koji-core": NOW - RECENT}).channel == "chronicle-hub", "least recently triggered first"
    everywhere = {"koji-core": NOW - RECENT * 2, "chronicle-hub": NOW - RECENT * 3, "garden": just}
    assert route_of(triggered=everywhere).channel == "chronicle-hub"


def test_the_last_step_is_a_seeded_draw_by_time_of_day() -> None:
    def draws(hour: int) -> list[str]:
        at = NOW.replace(hour=hour)
        asked = router(at=at, randomness=Randomness(3))
        return [route_of(by=asked, triggered=dict.fromkeys(CHANNELS, at)).channel for _ in range(300)]

    evening, afternoon = 20, 14
    assert draws(evening) == draws(evening)
    assert Counter(draws(evening)).most_common(1)[0][0] == "chronicle-hub"
    assert Counter(draws(afternoon)).most_common(1)[0][0] == "koji-core"

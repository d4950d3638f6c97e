"""The order of the steps that give work its channel, and the agent of a channel (SPEC 2.4)."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.config.settings import ChannelSettings, Settings
from engine.prediction.routing import RECENT_TRIGGER_AGE, Route, Router
from engine.randomness import Randomness
from tests.support import MONDAY_MORNING as NOW
from tests.support.checks import refused

AGENT_BY_CHANNEL = {"koji-core": "backend_builder", "chronicle-hub": "chronicler", "garden": "gardener"}


def make_router(at: datetime = NOW) -> Router:
    return Router(FakeClock(at), Randomness(3), lambda prompt, channel, settings: Route(channel))


def find_route(router: Router, *, named: str = "", affinity: str = "", triggered: Mapping[str, datetime] = {}) -> Route:
    """The route of a flow."""
    channels = {channel: ChannelSettings(agent=agent) for channel, agent in AGENT_BY_CHANNEL.items()}
    return router.route("", Settings(channels=channels), named=named, affinity=affinity, triggered=triggered, routed={})


@pytest.mark.parametrize(
    "named, affinity, route",
    [
        ("garden", "koji-core", Route("garden", "gardener")),
        ("", "chronicle-hub", Route("chronicle-hub", "chronicler")),
    ],
)
def test_a_named_channel_goes_first_then_that_of_the_kind(named: str, affinity: str, route: Route):
    assert find_route(make_router(), named=named, affinity=affinity) == route


@pytest.mark.parametrize("named, affinity", [("gardn", ""), ("", "gardn")])
def test_an_unregistered_channel_is_refused(named: str, affinity: str):
    refused("unknown_channel", lambda: find_route(make_router(), named=named, affinity=affinity))


LONG_AGO = NOW - RECENT_TRIGGER_AGE
RECENTLY = LONG_AGO + timedelta(microseconds=1)


@pytest.mark.parametrize(
    "triggered",
    [
        {"koji-core": RECENTLY},
        {"koji-core": LONG_AGO},
        {"koji-core": LONG_AGO, "chronicle-hub": LONG_AGO - RECENT_TRIGGER_AGE, "garden": RECENTLY},
    ],
    ids=["triggered recently", "never triggered goes first", "unused for longest goes first"],
)
def test_the_round_robin_passes_over_channels_that_were_triggered_recently(triggered: Mapping[str, datetime]):
    assert find_route(make_router(), triggered=triggered).channel == "chronicle-hub"


@pytest.mark.parametrize(
    "hour, channel", [(20, "chronicle-hub"), (14, "koji-core")], ids=["in the evening", "in the afternoon"]
)
def test_the_last_step_is_a_draw_by_the_time_of_day(hour: int, channel: str):
    """Of 300 draws, when all channels were triggered just now."""
    at = NOW.replace(hour=hour)
    router, triggered = make_router(at), dict.fromkeys(AGENT_BY_CHANNEL, at)
    draws = Counter(find_route(router, triggered=triggered).channel for _ in range(300))
    assert draws.most_common(1)[0][0] == channel

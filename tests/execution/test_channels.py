"""Channels come from the settings; their limits are those of SPEC 3.8."""

from __future__ import annotations

import pytest

from engine.config import ChannelSettings, FixedSettings, Settings
from engine.execution.channels import APPROVED, AUTONOMOUS, Channels, Limits
from engine.model import Refusal


def test_the_five_of_the_first_start() -> None:
    assert Channels(FixedSettings()).get("garden").agent == "gardener"


def test_limits() -> None:
    channels = Channels(FixedSettings())
    assert channels.limits("koji-core", APPROVED) == Limits(45 * 60, 10 * 60, 1_000_000)
    assert channels.limits("koji-core", AUTONOMOUS) == Limits(120, None, 1_000_000, 50_000)


def test_an_unregistered_channel_is_refused_by_name() -> None:
    settings = Settings(channels={"ops": ChannelSettings(agent="coo")})
    with pytest.raises(Refusal) as refusal:
        Channels(FixedSettings(settings)).get("koji-core")
    assert refusal.value.code == "unknown_channel"
    assert "'koji-core'" in refusal.value.message
    assert "ops" in refusal.value.fix

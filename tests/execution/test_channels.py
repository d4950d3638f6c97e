"""Channels come from the settings; their limits are those of SPEC 3.8."""

from __future__ import annotations

from engine.config import FixedSettings
from engine.execution.channels import APPROVED, AUTONOMOUS, Channels, Limits


def test_limits() -> None:
    channels = Channels(FixedSettings())
    assert channels.limits("koji-core", APPROVED) == Limits(45 * 60, 10 * 60, 1_000_000)
    assert channels.limits("koji-core", AUTONOMOUS) == Limits(120, None, 1_000_000, 50_000)

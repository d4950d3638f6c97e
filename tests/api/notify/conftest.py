"""Notifications of a fresh home."""

from __future__ import annotations

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.api.notify.world import NotifyWorld


@pytest.fixture
def world(database: Database, clock: FakeClock, bus: EventBus) -> NotifyWorld:
    return NotifyWorld(database, clock, bus)

"""Notifications of a fresh home."""

from collections.abc import Iterator

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.api.notify.notify_world import EVERYWHERE, NotifyWorld
from tests.support.notification_server import NotificationServer


@pytest.fixture
def server() -> Iterator[NotificationServer]:
    """A service that takes notifications, on loopback."""
    with NotificationServer() as server:
        yield server


@pytest.fixture
def world(database: Database, clock: FakeClock, bus: EventBus) -> NotifyWorld:
    return NotifyWorld(database, clock, bus)


@pytest.fixture
def phone_world(world: NotifyWorld) -> NotifyWorld:
    """Notifications of which only the phone has an address."""
    world.set_addresses(phone=EVERYWHERE["phone"])
    return world

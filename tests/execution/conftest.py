"""A world of sessions, closed after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.execution.session_world import World


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> Iterator[World]:
    world = World(tmp_path, database, clock, bus)
    yield world
    world.sessions.close()

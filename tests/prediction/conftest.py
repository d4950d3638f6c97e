"""Fixtures of these tests: a small world of cards."""

from __future__ import annotations

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.prediction.deciding import World


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    return World(database, clock)

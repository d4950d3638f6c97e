"""The fixture `world`: adaptation on a new database."""

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.learning.candidates.adaptation_world import AdaptationWorld


@pytest.fixture
def world(database: Database, clock: FakeClock) -> AdaptationWorld:
    return AdaptationWorld(database, clock)

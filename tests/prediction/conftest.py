"""The fixture `world`: cards with simple rails and sessions on a new database."""

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.prediction.deciding import DecisionWorld


@pytest.fixture
def world(database: Database, clock: FakeClock) -> DecisionWorld:
    return DecisionWorld(database, clock)

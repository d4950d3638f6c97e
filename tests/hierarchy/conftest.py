"""The fixture `world`: five agents, one above the other, with the real services over them."""

from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.hierarchy.guidance_world import Organisation, make_world


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> Organisation:
    return make_world(tmp_path, database, clock)

"""Fixtures of rails that allow everything by default: known pairs of channels, many decisions, autonomy on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.safety.rails import Rails, make_rails


@pytest.fixture
def rails(database: Database, clock: FakeClock, tmp_path: Path) -> Iterator[Rails]:
    rails = make_rails(database, clock, tmp_path / "data")
    rails.know_pairs(("research", "koji-core"), ("owner", "koji-core"))
    yield rails
    rails.kill_switch.close()

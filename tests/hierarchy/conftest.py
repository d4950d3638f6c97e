"""What the hierarchy's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database


@pytest.fixture
def database(tmp_path: Path, clock: FakeClock, bus: EventBus) -> Iterator[Database]:
    """One that does not wait for the disk: what is told here is thrown away."""
    base = Database(tmp_path / "clawpy.db", clock=clock, bus=bus, durable=False)
    yield base
    base.close()

"""An ACP world for each test, closed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.conftest import Repository
from tests.execution.acp.acp_world import AcpWorld

Make = Callable[..., AcpWorld]


@pytest.fixture
def make(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus, repository: Repository) -> Iterator[Make]:
    """Makes a world as the test wants it; the repository has one file."""
    repository.commit("first", {"a.txt": "one\ntwo\nthree\n"})
    worlds: list[AcpWorld] = []

    def make(**how: Any) -> AcpWorld:
        worlds.append(AcpWorld(tmp_path, database, clock, bus, repository, **how))
        return worlds[-1]

    yield make
    for world in worlds:
        world.sessions.close()


@pytest.fixture
def world(make: Make) -> AcpWorld:
    return make()

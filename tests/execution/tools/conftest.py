"""Worlds with a toolbelt, which are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.execution.tools.belt_world import BeltWorld

MakeWorld = Callable[..., BeltWorld]


@pytest.fixture
def make_belt_world(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[MakeWorld]:
    worlds: list[BeltWorld] = []

    def make_world(**options: Any) -> BeltWorld:
        worlds.append(BeltWorld(tmp_path / f"w{len(worlds)}", database, clock, **options))
        return worlds[-1]

    yield make_world
    for world in worlds:
        world.stop()
        world.live.processes.end(grace=0)
        world.live.transcript.close()


@pytest.fixture
def world(make_belt_world: MakeWorld) -> BeltWorld:
    return make_belt_world()

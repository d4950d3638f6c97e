"""Toolbelts."""

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
def make(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[MakeWorld]:
    made: list[BeltWorld] = []

    def work(**options: Any) -> BeltWorld:
        made.append(BeltWorld(tmp_path / f"w{len(made)}", database, clock, **options))
        return made[-1]

    yield work
    for world in made:
        world.stop()
        world.live.processes.end(grace=0)
        world.live.transcript.close()


@pytest.fixture
def world(make: MakeWorld) -> BeltWorld:
    return make()

"""Worlds of sessions and of change sets, closed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.execution.changesets.landing_world import LandingWorld
from tests.execution.session_world import MakeWorld, ScriptWorld, SessionWorld


@pytest.fixture
def landing_world(tmp_path: Path) -> Iterator[LandingWorld]:
    """A repository without a commit, and its change sets."""
    world = LandingWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def make_world(tmp_path: Path, database: Database, clock: FakeClock, bus: EventBus) -> Iterator[MakeWorld]:
    """Makes worlds on one database: the second one is the next engine of that home."""
    worlds = []

    def make(kind: type[SessionWorld] = ScriptWorld, **options: object) -> SessionWorld:
        worlds.append(kind(tmp_path, database, clock, bus, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.sessions.close()


@pytest.fixture
def world(make_world: MakeWorld) -> ScriptWorld:
    return make_world()

"""Worlds with a toolbelt, which are closed after each test, and a web server that they may reach."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.execution.tools.belt_world import SECRET, BeltWorld, MakeBeltWorld, open_world
from tests.support.web_server import WebServer


@pytest.fixture
def make_belt_world(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[MakeBeltWorld]:
    worlds = []

    def make_world(**options: Any) -> BeltWorld:
        worlds.append(BeltWorld(tmp_path / f"w{len(worlds)}", database, clock, **options))
        return worlds[-1]

    yield make_world
    for world in worlds:
        world.stop()
        world.live.processes.end(grace=0)
        world.live.transcript.close()


@pytest.fixture
def world(make_belt_world: MakeBeltWorld) -> BeltWorld:
    return make_belt_world()


@pytest.fixture
def outside_is_unchanged(world: BeltWorld) -> Iterator[None]:
    """After the test, the outside and the folder of git are as they were."""
    yield
    assert sorted(path.name for path in world.outside.iterdir()) == ["secret.txt"]
    assert world.secret.read_text() == SECRET
    assert (world.folder / ".git").read_text() == "gitdir: /somewhere\n"


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server on loopback that answers what a test tells it."""
    server = WebServer()
    yield server
    server.close()


@pytest.fixture
def web(make_belt_world: MakeBeltWorld, server: WebServer) -> BeltWorld:
    """A world that may reach the server, and waits for a page one second."""
    return open_world(make_belt_world, server, seconds=1.0)

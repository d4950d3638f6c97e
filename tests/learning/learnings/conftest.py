"""Fixtures of a home in which sessions learn, without a model and with one."""

from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.storage.database import Database
from tests.learning.learnings.chain_world import ChainWorld, MakeWorld


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> ChainWorld:
    """A home without a model. Statements are compared by their words."""
    return ChainWorld(tmp_path / "data", database, clock)


@pytest.fixture
def make_world(tmp_path: Path, database: Database, clock: FakeClock) -> MakeWorld:
    """Makes a home with a model."""
    return lambda model: ChainWorld(tmp_path / "data", database, clock, model=model)

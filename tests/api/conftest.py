"""A stand-in engine in a home of its own."""

from collections.abc import Iterator

import pytest

from engine.clock import FakeClock
from engine.home import Home
from tests.api.stand_in import StandIn


@pytest.fixture
def engine(home: Home, clock: FakeClock) -> Iterator[StandIn]:
    engine = StandIn(home, clock)
    yield engine
    engine.close()

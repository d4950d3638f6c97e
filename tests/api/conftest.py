"""An engine in a home of its own, on no repository."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from engine import Engine
from engine.home import Home
from tests.support.engines import open_idle_engine


@pytest.fixture
def engine(home: Home) -> Iterator[Engine]:
    with closing(open_idle_engine(home)) as engine:
        yield engine

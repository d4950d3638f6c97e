"""An engine in a home of its own, on no repository."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from engine import Engine, open_engine
from engine.home import Home


@pytest.fixture
def engine(home: Home) -> Iterator[Engine]:
    with closing(open_engine(home, workspaces=[], start_schedule=False)) as engine:
        yield engine

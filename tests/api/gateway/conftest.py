"""Fixtures of a real engine with its gateway. There is one for each module, because opening one takes a second."""

import pytest

from engine.engine import Engine
from tests.api.gateway.served import Serve, Served
from tests.api.gateway.served import serve as serve


@pytest.fixture(scope="module")
def served(serve: Serve) -> Served:
    return serve()


@pytest.fixture(scope="module")
def engine(served: Served) -> Engine:
    return served.engine

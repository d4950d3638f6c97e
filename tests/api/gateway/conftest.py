"""Fixtures of a real engine with its gateway. There is one for each module, because opening one takes a second."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from engine.home import Home
from tests.api.gateway.served import Serve, Served, open_served


@pytest.fixture(scope="module")
def serve(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Callable[[], bytes], git_config: Path
) -> Iterator[Serve]:
    """Opens engines with a gateway; closes them after the module."""
    opened = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(git_config))
        patch.delenv("CLAWPY_GATEWAY_API_KEY", raising=False)

        def open_next(**options: Any) -> Served:
            place = tmp_path_factory.mktemp("served")
            home = Home.locate(place / "home")
            home.data.mkdir(parents=True)
            home.database.write_bytes(empty_database())
            opened.append(open_served(place, **options))
            return opened[-1]

        yield open_next
        for served in opened:
            served.engine.close()


@pytest.fixture(scope="module")
def served(serve: Serve) -> Served:
    return serve()


@pytest.fixture(scope="module")
def engine(served: Served) -> Engine:
    return served.engine

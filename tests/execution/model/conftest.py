"""A scripted model, and worlds whose engine uses it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from tests.support.model_server import ModelServer
from tests.support.model_world import KEY, ModelWorld


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def kind() -> str:
    """The protocol of the provider; tests may parametrise it."""
    return "openai"


@pytest.fixture(autouse=True)
def _keys(_no_environment_of_the_developer: None, monkeypatch: pytest.MonkeyPatch):
    """Both providers have the key `KEY`."""
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"CLAWPY_{name}_API_KEY", KEY)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, server: ModelServer, kind: str, model_host: ModelHost) -> ModelWorld:
    """A world that uses the model host of all tests."""
    return ModelWorld(tmp_path, clock, server, kind=kind, host=model_host)


@pytest.fixture
def fresh_world(tmp_path: Path, clock: FakeClock, server: ModelServer) -> ModelWorld:
    """A world whose engine starts and ends a model host of its own."""
    return ModelWorld(tmp_path, clock, server)

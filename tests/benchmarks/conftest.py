"""Marks every test here as a benchmark. Benchmarks use databases as operators do: each is created anew, and writes wait
for the disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer
from tests.support.model_world import KEY


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("benchmark")


@pytest.fixture(autouse=True)
def _quick_homes():
    """Override the fixture that makes homes quick."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A provider of models on loopback, whose key is in the environment."""
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    with ModelServer() as server:
        yield server

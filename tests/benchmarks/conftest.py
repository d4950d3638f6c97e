"""Marks every test here as a benchmark. Benchmarks use databases as operators do: each is created anew, and writes wait
for the disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("benchmark")


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """Override the fixture that makes homes quick."""

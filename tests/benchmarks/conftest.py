"""Benchmarks use databases as operators do: each is created anew, and writes wait for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """Override the fixture that makes homes quick."""

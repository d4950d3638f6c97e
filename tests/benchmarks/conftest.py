"""Benchmarks run on what operators have: databases that are created anew, and writes that wait for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """Homes are not made quick."""

"""Fixtures for the same conditions as operators have: new databases, and writes that wait for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """As they are."""

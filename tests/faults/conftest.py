"""Fixtures for the same conditions as operators have: new databases, and writes that wait for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """Replaces the fixture of all tests, so that databases are made and written as in use."""

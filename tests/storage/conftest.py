"""Here the database itself is looked at: migrated afresh, and waiting for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_homes() -> None:
    """As they are."""

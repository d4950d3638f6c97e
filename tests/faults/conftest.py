"""Fixtures for the conditions that operators have (new databases, and writes that wait for the disk), and memories."""

import pytest

from tests.memory.memory_services import make_memory as make_memory


@pytest.fixture(autouse=True)
def _quick_homes():
    """Replaces the fixture of all tests, so that databases are made and written as in use."""

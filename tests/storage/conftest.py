"""Fixtures of a new database whose writes wait for the disk, because these tests are about the database itself."""

import pytest


@pytest.fixture(autouse=True)
def _quick_homes():
    """Replaces the fixture of all tests, so that databases are made and written as in use."""

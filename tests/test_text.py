"""Hostile text is made harmless (SPEC 11.1)."""

import pytest

from engine.text import sanitise
from tests.support import read_table

TABLE = read_table(__file__)


@pytest.mark.parametrize("hostile, harmless", TABLE["hostile"])
def test_escapes_and_controls_never_reach_a_terminal(hostile: str, harmless: str):
    assert sanitise(hostile) == harmless

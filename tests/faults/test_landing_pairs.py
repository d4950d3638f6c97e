"""500 random pairs of change set and later edits on real git (issue's bar for landing). `-s` prints what happened."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.execution.landing_pairs import Pair, pairs, try_pair

pytestmark = pytest.mark.faults


def test_five_hundred_pairs() -> None:
    happened: Counter[str] = Counter()

    @settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pairs)
    def try_one(pair: Pair) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ended = try_pair(pair, Path(folder))
        assume(ended != "nothing changed")  # no pair
        happened[ended] += 1

    try_one()
    print(f"\nlanding: {sum(happened.values())} pairs, as git would have it: {dict(happened)}")
    assert {"undone", "refused", "undo refused"} <= happened.keys()

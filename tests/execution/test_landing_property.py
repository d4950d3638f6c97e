"""Landing is exactly what git would do, undo exactly its reverse (SPEC 3.9): random pairs, a few here.

Five hundred of them: `pytest -m faults tests/faults/test_landing_kill.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.execution.landing_pairs import Pair, pairs, try_pair


@pytest.mark.long
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs)
def test_it_lands_as_git_would_and_undoes_exactly(pair: Pair) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try_pair(pair, Path(folder))

"""Any order of events, and nothing runs that must not (SPEC 2.5, 2.6, 3.1, 3.4, 7).

The long run, 100,000 steps:

pytest tests/safety/test_stateful.py -m faults -s
"""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.safety import stateful

LONG = 100_000
STEPS = 200


def run(examples: int, steps: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        stateful.WholeEngine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_nothing_runs_that_must_not() -> None:
    run(4, 40, derandomize=True)


@pytest.mark.faults
def test_nothing_runs_that_must_not_in_a_hundred_thousand_steps() -> None:
    began, before = time.perf_counter(), stateful.done["steps"]
    while stateful.done["steps"] - before < LONG:
        run(25, STEPS, derandomize=False)
        print(f"\n{time.perf_counter() - began:.0f} s: {dict(sorted(stateful.done.items()))}", end="", flush=True)

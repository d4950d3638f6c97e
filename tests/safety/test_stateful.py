"""In any order of events, nothing runs that must not run (SPEC 2.5, 2.6, 3.1, 3.3, 3.4, 7).

The long run, 100,000 steps in parts of 4,000, each with a seed of its own, from CLAWPY_SEED on (default 1):

CLAWPY_SEED=1 CLAWPY_STEPS=100000 pytest tests/safety/test_stateful.py -m faults -s
"""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.safety import engine_machine, stateful_world

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""The machine has the threads of sessions die, as they do with their process."""

LONG = 100_000
STEPS = 200
PART = 20
"""Machines of `STEPS` steps in one part."""


def run(examples: int, steps: int, *, number: int | None = None) -> None:
    machine = engine_machine.EngineMachine if number is None else seed(number)(engine_machine.EngineMachine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=number is None,
            phases=(Phase.generate, Phase.shrink) if number is None else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def table() -> str:
    return "\n".join(f"{count:>9,}  {what}" for what, count in sorted(stateful_world.coverage_counts.items()))


@pytest.mark.long
def test_nothing_runs_that_must_not() -> None:
    run(4, 40)


@pytest.mark.faults
def test_nothing_runs_that_must_not_in_a_hundred_thousand_steps() -> None:
    first, steps = int(os.environ.get("CLAWPY_SEED", "1")), int(os.environ.get("CLAWPY_STEPS", LONG))
    stateful_world.coverage_counts.clear()
    began, number = time.perf_counter(), first
    while stateful_world.coverage_counts["steps"] < steps:
        run(PART, STEPS, number=number)
        print(f"\nseeds {first} to {number}, {time.perf_counter() - began:.0f} s\n{table()}", flush=True)
        number += 1
    never = [
        what
        for what in (
            *stateful_world.MUST_BLOCK,
            *stateful_world.LOOPS,
            *stateful_world.CAPPED,
            *stateful_world.EXECUTED,
        )
        if not stateful_world.coverage_counts[what]
    ]
    assert not never, f"never seen: {', '.join(never)}"

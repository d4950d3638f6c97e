"""In any order of events, nothing runs that must not run (SPEC 2.5, 2.6, 3.1, 3.3, 3.4, 7).

The long run, 100,000 steps in parts of 4,000, each with a seed of its own, from CLAWPY_SEED on (default 1):

CLAWPY_SEED=1 CLAWPY_STEPS=100000 pytest tests/safety/test_stateful.py -m faults -s
"""

import os
import time

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.safety import engine_machine
from tests.safety.execution_checks import CAPPED, EXECUTED, LOOPS, MUST_BLOCK, coverage_counts

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""The machine has the threads of sessions die, as they do with their process."""

ALL_STEPS = "100000"
MACHINES_PER_PART = 20
STEPS_PER_MACHINE = 200


def run_machines(machines: int, steps: int, *, seed_number: int | None = None):
    """Run machines of so many steps each: the same ones each time, or those of a seed, which are not shrunk."""
    machine = engine_machine.EngineMachine
    run_state_machine_as_test(
        machine if seed_number is None else seed(seed_number)(machine),
        settings=settings(
            max_examples=machines,
            stateful_step_count=steps,
            database=None,
            derandomize=seed_number is None,
            phases=(Phase.generate, Phase.shrink) if seed_number is None else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def format_coverage() -> str:
    return "\n".join(f"{count:>9,}  {name}" for name, count in sorted(coverage_counts.items()))


@pytest.mark.long
def test_nothing_runs_that_must_not():
    run_machines(4, 40)


@pytest.mark.faults
def test_nothing_runs_that_must_not_in_a_hundred_thousand_steps():
    first_seed, steps = int(os.environ.get("CLAWPY_SEED", "1")), int(os.environ.get("CLAWPY_STEPS", ALL_STEPS))
    coverage_counts.clear()
    began, seed_number = time.perf_counter(), first_seed
    while coverage_counts["steps"] < steps:
        run_machines(MACHINES_PER_PART, STEPS_PER_MACHINE, seed_number=seed_number)
        elapsed = time.perf_counter() - began
        print(f"\nseeds {first_seed} to {seed_number}, {elapsed:.0f} s\n{format_coverage()}", flush=True)
        seed_number += 1
    never_seen = [name for name in (*MUST_BLOCK, *LOOPS, *CAPPED, *EXECUTED) if not coverage_counts[name]]
    assert never_seen == []

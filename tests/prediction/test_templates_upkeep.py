"""Cards for tests that got slower."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.prediction.templates.runs import slower_tests
from tests.conftest import Repository
from tests.prediction.sensing import NOW, MadeRun, World, dated_commit

TEST = "tests/test_cart.py::test_total"


def took(head: str, hours: int, seconds: float) -> MadeRun:
    return MadeRun(head, ran_at=NOW - timedelta(hours=hours), durations=((TEST, seconds),))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((3.0, 2.6, 0.5, 0.6, 0.5), "`test_total` took 2.6 s in the last two runs, and 0.5 s before."),
        ((3.0, 0.6, 0.5, 0.6, 0.5), ""),
        ((0.9, 0.9, 0.1, 0.1, 0.1), ""),
        ((3.0, 3.0, 0.5, 0.5), ""),
    ],
)
def test_twice_as_long_in_the_last_two_runs(repository: Repository, times: tuple[float, ...], expected: str) -> None:
    first = dated_commit(repository, "one", {"cart.py": "1"}, NOW - timedelta(hours=30))
    second = dated_commit(repository, "two", {"cart.py": "2"}, NOW - timedelta(hours=3))
    world = World(repository.path)
    world.runs = [took(second if number < 2 else first, number + 1, seconds) for number, seconds in enumerate(times)]
    context = world.sense()
    proposals = [proposal for part in context.parts for proposal in slower_tests(context, part)]
    assert [proposal.reasoning for proposal in proposals] == ([expected] if expected else [])
    assert all(proposal.parameters == {"tests": [TEST], "fast": first} for proposal in proposals)

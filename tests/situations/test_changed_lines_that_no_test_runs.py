"""The project measures its coverage, and a part of what changed is run by no test."""

from __future__ import annotations

import pytest

from engine.model import SessionState, Tier
from tests.situations.conftest import SHOP, Situation

pytestmark = pytest.mark.long

CART = (
    "def total(prices):\n    return sum(prices)\n\n\ndef gift(prices):\n    if not prices:\n        return 0\n"
    "    return min(prices)\n"
)


def test_two_new_lines_have_no_test(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Coverage", {"pyproject.toml": SHOP["pyproject.toml"] + "[tool.coverage.run]\nbranch = true\n"})
    monday.write("cart.py", CART, days_ago=0.01)
    assert "uncovered_lines" not in monday.kinds(), "no run yet"
    monday.run_tests()

    first = monday.card("uncovered_lines")
    assert first.tier is Tier.CHECK
    assert first.assignment.prompt == "Find the changed lines of cart.py that no test runs"

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED, done.error
    assert done.summary.startswith("cart.py 6-8: no test runs these 3 lines; the one test passed"), done.summary
    assert "uncovered_lines" not in monday.kinds(), "it is measured"
    assert not (monday.path / ".coverage").exists()


def test_without_coverage_nothing_is_offered(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", CART, days_ago=0.01)
    monday.run_tests()
    assert "uncovered_lines" not in monday.kinds()

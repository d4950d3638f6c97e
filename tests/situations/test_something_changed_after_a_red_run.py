"""The tests failed, and you changed something since: the failed ones again."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

BROKEN = "def total(prices):\n    return max(prices)\n"
MENDED = "def total(prices):\n    return sum(prices)\n"


@pytest.mark.long
def test_the_failed_tests_again(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("cart.py", BROKEN)
    monday.record_test_run("tests/test_cart.py::test_total", passed=0)
    monday.write("cart.py", MENDED + "\n", days_ago=-0.01)
    first = monday.first("rerun_failing", Tier.BLOCKS)
    assert first.assignment.prompt == "Run `test_total` again"
    assert "run_tests" not in monday.kinds(), "these are the same files"
    done = monday.approve(first)
    assert done.check.green
    assert "rerun_failing" not in monday.kinds()

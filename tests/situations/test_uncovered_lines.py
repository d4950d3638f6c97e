"""The changed lines that no test runs are found, and an agent is offered to write the tests (SPEC 2.10)."""

import pytest

from engine.model import SessionState, Tier
from engine.prediction.kinds import FIX_BY_AGENT
from tests.situations.situation import SHOP, Situation

pytestmark = pytest.mark.long

TOTAL_AND_GIFT = (
    "def total(prices):\n    return sum(prices)\n\n\ndef gift(prices):\n    if not prices:\n        return 0\n"
    "    return min(prices)\n"
)
"""`cart.py` with a function that no test runs."""

WITH_COVERAGE = SHOP["pyproject.toml"] + "[tool.coverage.run]\nbranch = true\n"
"""`pyproject.toml` of a project that measures which lines its tests run."""


def test_new_lines_that_no_test_runs_are_named(shop: Situation):
    shop.commit("Coverage", {"pyproject.toml": WITH_COVERAGE})
    shop.write("cart.py", TOTAL_AND_GIFT, days_ago=0.01)
    assert "uncovered_lines" not in shop.predict_kinds(), "no run yet"
    shop.run_tests()

    session = shop.approve(
        shop.predict_card("uncovered_lines", Tier.CHECK, "Find the changed lines of cart.py that no test runs")
    )
    assert session.state is SessionState.SUCCEEDED, session.error
    assert session.summary.startswith("cart.py 6-8: no test runs these 3 lines; the one test passed"), session.summary
    assert "uncovered_lines" not in shop.predict_kinds(), "it is measured"
    assert not (shop.path / ".coverage").exists()
    shop.assign_coding_agent()
    assert shop.predict_card(FIX_BY_AGENT).assignment.prompt == (
        "Write tests for the changed lines that none runs: `cart.py` 6-8"
    )


def test_without_coverage_nothing_is_offered(shop: Situation):
    shop.write("cart.py", TOTAL_AND_GIFT, days_ago=0.01)
    shop.run_tests()
    assert "uncovered_lines" not in shop.predict_kinds()

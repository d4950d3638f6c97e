"""A test was green before the last commit and is red after it."""

from __future__ import annotations

from engine.values import Tier
from tests.situations.conftest import Situation

TEST = "tests/test_cart.py::test_total"


def test_the_last_commit_broke_a_test(monday: Situation) -> None:
    monday.shop()
    monday.ran()
    culprit = monday.commit("Faster cart", {"cart.py": "def total(prices):\n    return max(prices)\n"}, days_ago=0.01)
    monday.ran(TEST, passed=0)

    first = monday.first()
    assert (first.kind, first.tier) == ("bisect", Tier.BROKEN)
    assert first.assignment.prompt == "Confirm that “Faster cart” broke `test_total`"
    assert first.reasoning.startswith("It passed one commit before")

    done = monday.approve(first)
    assert done.summary.startswith(f"{culprit[:10]} “Faster cart”")
    assert "bisect" not in monday.kinds()

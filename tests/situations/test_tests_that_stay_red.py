"""Tests fail, nothing changed since, and no commit is known at which they passed."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long

BROKEN = {
    "cart.py": "def total(prices):\n    return max(prices)\n\n\ndef rate(country):\n    return {}[country]\n",
    "tests/test_cart.py": (
        "import pytest\nfrom cart import rate, total\n\n\n"
        "@pytest.mark.parametrize('name', ['de', 'fr', 'nl'])\ndef test_rate(name):\n    assert rate('de') > 0\n\n\n"
        "def test_total():\n    assert total([1, 2]) == 3\n\n\n"
        "def test_fine():\n    assert True\n"
    ),
}


def test_failures_are_grouped_by_cause(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Rates", BROKEN, days_ago=2)
    monday.run_tests()

    first = monday.first("still_red", Tier.BLOCKS)
    assert first.assignment.prompt == "Run the 4 failing tests alone and group the failures by cause"

    done = monday.approve(first)
    assert done.summary == (
        "4 failures, 2 causes: KeyError: 'de', at cart.py:6 (3); assert 2 == 3, at tests/test_cart.py:11 (1)"
    )
    transcript = monday.transcript(done)
    assert "tests/test_cart.py::test_total  also fails alone" in transcript
    assert "The smallest selection that shows every cause: pytest 'tests/test_cart.py::test_rate[de]'" in transcript
    assert "still_red" not in monday.kinds()


def test_what_passes_alone_depends_on_what_runs_before(monday: Situation) -> None:
    monday.commit_shop()
    order = "seen = []\n\ndef test_a():\n    seen.append(1)\n    assert 0\n\ndef test_b():\n    assert not seen\n"
    monday.commit("Order", {"tests/test_cart.py": order}, days_ago=2)
    monday.run_tests()
    done = monday.approve(monday.first("still_red"))
    assert done.summary.endswith("tests/test_cart.py::test_b passes alone"), done.summary


def test_green_tests_need_no_narrowing(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    assert "still_red" not in monday.kinds()

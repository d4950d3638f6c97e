"""Tests fail, and no commit is known at which they passed: they run alone, and are grouped by cause (SPEC 2.11)."""

import pytest

from engine.model import Tier
from tests.situations.situation import Situation

pytestmark = pytest.mark.long

TWO_CAUSES = {
    "cart.py": "def total(prices):\n    return max(prices)\n\n\ndef rate(country):\n    return {}[country]\n",
    "tests/test_cart.py": (
        "import pytest\nfrom cart import rate, total\n\n\n"
        "@pytest.mark.parametrize('name', ['de', 'fr', 'nl'])\ndef test_rate(name):\n    assert rate('de') > 0\n\n\n"
        "def test_total():\n    assert total([1, 2]) == 3\n\n\n"
        "def test_fine():\n    assert True\n"
    ),
}
"""Files of which three tests fail by one cause, and one by another."""


def test_failures_are_grouped_by_cause(shop: Situation):
    shop.commit("Rates", TWO_CAUSES, days_ago=2)
    shop.run_tests()

    session = shop.approve(
        shop.predict_top_card("still_red", Tier.BLOCKS, "Run the 4 failing tests alone and group the failures by cause")
    )
    assert session.summary == (
        "4 failures, 2 causes: KeyError: 'de', at cart.py:6 (3); assert 2 == 3, at tests/test_cart.py:11 (1)"
    )
    transcript = shop.read_transcript(session)
    assert "tests/test_cart.py::test_total  also fails alone" in transcript
    assert "The smallest selection that shows every cause: pytest 'tests/test_cart.py::test_rate[de]'" in transcript
    assert "still_red" not in shop.predict_kinds()


def test_a_test_that_failed_in_the_whole_suite_and_alone_leads_to_neither_again(shop: Situation):
    shop.commit("Broken", {"tests/test_new.py": "def test_a():\n    assert 0\n\ndef test_b():\n    pass\n"}, days_ago=2)
    shop.run_tests()
    session = shop.approve(shop.predict_top_card("still_red"))
    assert session.check.failing == ("tests/test_new.py::test_a",)
    assert not {"still_red", "rerun_failing"} & set(shop.predict_kinds())

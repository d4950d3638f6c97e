"""The README names a function or a path which the diff renamed or removed."""

from __future__ import annotations

import pytest

from engine.model import PROBLEM_FOUND, Tier
from tests.situations.conftest import Situation

README = "# Shop\n\nCall `total(prices)` of `cart.py`.\n\nThe total is rounded.\n"
RENAMED = {
    "cart.py": "def sum_of(prices):\n    return sum(prices)\n",
    "tests/test_cart.py": "def test_total():\n    from cart import sum_of\n    assert sum_of([1, 2]) == 3\n",
}


@pytest.mark.long
def test_a_function_was_renamed(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Words", {"README.md": README}, days_ago=20)
    monday.run_tests()
    for name, text in RENAMED.items():
        monday.write(name, text, days_ago=0.01)
    monday.run_tests()

    first = monday.first("stale_docs", Tier.CHECK)
    assert first.assignment.prompt == "Show the documentation that still names total"
    assert first.reasoning == "README.md:3 names `total` (now `sum_of`), which your changes removed."

    done = monday.approve(first)
    assert done.outcome == PROBLEM_FOUND, "it ran to its end"
    assert done.summary == "1 line in 1 file of documentation still names total"
    assert "README.md:3  total (now sum_of)" in monday.transcript(done)

    then = monday.card("update_docs")
    updated = monday.approve(then)
    assert updated.summary == "1 name updated in README.md"
    assert updated.change_set_id
    assert "stale_docs" not in monday.kinds()
    monday.land(updated)
    assert monday.path.joinpath("README.md").read_text() == README.replace("`total(", "`sum_of(")
    assert {"stale_docs", "update_docs"}.isdisjoint(monday.kinds())


def test_what_is_still_there_or_history_is_not_stale(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit(
        "Words", {"README.md": README, "other.py": "def total():\n    pass\n", "CHANGES.md": README}, days_ago=20
    )
    monday.write("cart.py", RENAMED["cart.py"])
    monday.commit("Drop old", {"docs/a.md": "`unheard_of` was removed in 2.0\n"})
    assert "stale_docs" not in monday.kinds()

"""A small edit in a repository that you work in leads to its tests, and to nothing trivial beside them."""

from __future__ import annotations

import pytest

from tests.situations.conftest import Situation


def test_a_text_that_changed_asks_for_nothing(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("README.md", "# Shop\n")
    assert monday.kinds() == []


def test_one_edited_module_leads_to_its_tests_and_its_lint(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    assert monday.kinds() == ["run_tests", "lint"]


@pytest.mark.long
def test_a_check_of_head_alone_changes_nothing_about_your_own_files(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Prices have a module", {"cart.py": "from prices import total\n"}, days_ago=0.1)
    monday.write("prices.py", "def total(prices):\n    return sum(prices)\n")
    monday.record_test_run()
    card = monday.card("check_clean_head")
    done = monday.approve(card)
    assert not done.check.green
    assert not {"run_tests", "rerun_failing", "still_red"} & set(monday.kinds()), "they ran on just these files"

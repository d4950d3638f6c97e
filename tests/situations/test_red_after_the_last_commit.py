"""A test was green before the last commit and is red after it."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long

TEST = "tests/test_cart.py::test_total"


def test_the_last_commit_broke_a_test(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    culprit = monday.commit("Faster cart", {"cart.py": "def total(prices):\n    return max(prices)\n"}, days_ago=0.01)
    monday.record_test_run(TEST, passed=0)

    first = monday.first("bisect", Tier.BROKEN)
    assert first.assignment.prompt == "Confirm that “Faster cart” broke `test_total`"
    assert first.reasoning.startswith("It passed one commit before")
    assert "still_red" not in monday.kinds(), "it would say less of the same test"

    done = monday.approve(first)
    assert done.summary.startswith(f"{culprit[:10]} “Faster cart”")
    assert "bisect" not in monday.kinds()


def test_the_commit_that_broke_it_is_taken_back(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    monday.commit("Faster cart", {"cart.py": "def total(prices):\n    return max(prices)\n"}, days_ago=0.02)
    monday.commit("Describe it", {"README.md": "# Shop\n"}, days_ago=0.01)
    monday.run_tests()
    blamed = monday.approve(monday.first("bisect"))
    assert blamed.next_step == "rehearse_revert"

    first = monday.first("rehearse_revert", Tier.BROKEN)
    assert first.assignment.prompt == "Revert “Faster cart” in a worktree and run `test_total` and the whole suite"
    assert not {"bisect", "still_red"} & set(monday.kinds())
    done = monday.approve(first)
    assert "reverts cleanly and `tests/test_cart.py::test_total` then passes" in done.summary
    assert "+    return max(prices)" in monday.transcript(done)
    assert "max" in (monday.path / "cart.py").read_text()  # nothing is landed yet
    monday.land(done)
    assert "max" not in (monday.path / "cart.py").read_text()
    assert (monday.path / "README.md").exists()
    monday.run_tests()
    assert not {"bisect", "rehearse_revert", "still_red"} & set(monday.kinds())


def test_what_was_built_on_the_commit_conflicts(monday: Situation) -> None:
    monday.commit_shop()
    monday.run_tests()
    monday.commit("Faster cart", {"cart.py": "def total(prices):\n    return max(prices)\n"}, days_ago=0.02)
    monday.commit("Whole numbers", {"cart.py": "def total(prices):\n    return int(max(prices))\n"}, days_ago=0.01)
    monday.run_tests()
    monday.approve(monday.first("bisect"))
    done = monday.approve(monday.first("rehearse_revert"))
    assert "conflicts in 1 file: cart.py" in done.summary
    assert done.change_set_id is None
    assert "<<<<<<<" not in (monday.path / "cart.py").read_text()
    assert "rehearse_revert" not in monday.kinds()

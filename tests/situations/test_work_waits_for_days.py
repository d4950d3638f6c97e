"""Commits that were never pushed, or changes that were never committed, since days."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation


@pytest.mark.long
def test_changes_of_last_week_are_in_no_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) or 0\n", days_ago=4)
    monday.write("price list.py", "def price(name):\n    return 1\n", days_ago=3.5)
    monday.write(
        "tests/test_cart.py", "def test_total():\n    from cart import total\n    assert not total([])\n", days_ago=3
    )
    monday.write("README.md", "# Shop\n", days_ago=3)

    first = monday.first("waiting_work", Tier.BLOCKS)
    assert first.assignment.prompt == (
        "Look at what is not committed yet: README.md, cart.py, price list.py and 1 more"
    )
    assert first.reasoning == "4 files changed since Thursday are in no commit."
    done = monday.approve(first)
    assert (
        done.summary
        == "4 files not committed; could be 3 commits: cart, documentation and price list; no tests for price list.py"
    )
    assert "git add -- cart.py tests/test_cart.py && git commit" in monday.transcript(done)
    assert done.next_step == "run_tests"
    assert monday.git("status", "--porcelain").count("\n") == 3  # it only looked


def test_commits_that_were_never_pushed(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "faster", "--no-track")
    monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=5)
    first = monday.first("waiting_work")
    assert first.assignment.prompt == "Look through the commit to push"
    assert monday.approve(first).summary == "1 unpushed commit, nothing that should not be pushed"


def test_what_nobody_waits_for(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=5)  # no remote
    monday.write("out.log", "x\n", days_ago=9)
    monday.write(".idea/shop.xml", "x\n", days_ago=9)
    monday.write("cart.py", "def total(prices):\n    return sum(prices)\n", days_ago=1)  # of yesterday
    assert "waiting_work" not in monday.kinds()

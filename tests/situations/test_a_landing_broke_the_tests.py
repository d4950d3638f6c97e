"""Tests passed, a change of ours was landed, and they fail since."""

from __future__ import annotations

import pytest

from engine.model import ChangeState, Tier
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long

GOOD = "def total(prices):\n    return sum(prices)\n"


def land_breaking_revert(monday: Situation) -> str:
    """A revert that breaks the test is landed; its change set."""
    monday.commit_shop()
    monday.commit(
        "Slow", {"cart.py": "def total(prices):\n    return max(prices)\n", "tests/test_cart.py": "\n"}, days_ago=5
    )
    right = monday.commit("Right total", {"cart.py": GOOD}, days_ago=4)
    monday.commit(
        "Test",
        {"tests/test_cart.py": "def test_total():\n    from cart import total\n    assert total([1, 2]) == 3\n"},
        days_ago=3,
    )
    monday.run_tests()
    card = monday.propose(f"rehearse_revert commit={right}")
    done = monday.approve(card)
    assert "reverts cleanly; but 1 of 1 test failed" in done.summary
    assert done.change_set_id is not None
    monday.advance(minutes=1)
    monday.land(done)
    monday.advance(minutes=1)
    monday.run_tests()
    return done.change_set_id


def test_it_is_undone(monday: Situation) -> None:
    change = land_breaking_revert(monday)
    first = monday.first("undo_landing", Tier.BROKEN)
    assert first.assignment.prompt.startswith("Undo the landing of “")
    assert first.assignment.prompt.endswith("which broke `test_total`")
    done = monday.approve(first)
    assert done.summary.endswith("is undone: 1 file restored")
    assert (monday.path / "cart.py").read_text() == GOOD
    assert monday.engine.changes.get(change).state is ChangeState.UNDONE
    assert done.next_step == "rerun_failing"
    monday.first("rerun_failing")
    monday.advance(minutes=1)
    monday.run_tests()
    assert not {"undo_landing", "bisect", "still_red"} & set(monday.kinds())


def test_it_was_edited_since(monday: Situation) -> None:
    land_breaking_revert(monday)
    monday.write("cart.py", "def total(prices):\n    return 3\n")
    assert "undo_landing" not in monday.kinds()

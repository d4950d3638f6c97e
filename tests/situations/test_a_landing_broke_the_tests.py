"""Tests passed, a change of ours was landed, and they fail since."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.model import ChangeState, Tier
from tests.situations.conftest import Situation

GOOD = "def total(prices):\n    return sum(prices)\n"


def landed(monday: Situation) -> str:
    """A revert that breaks the test is landed; its change set."""
    monday.shop()
    monday.commit(
        "Slow", {"cart.py": "def total(prices):\n    return max(prices)\n", "tests/test_cart.py": "\n"}, days_ago=5
    )
    right = monday.commit("Right total", {"cart.py": GOOD}, days_ago=4)
    monday.commit(
        "Test",
        {"tests/test_cart.py": "def test_total():\n    from cart import total\n    assert total([1, 2]) == 3\n"},
        days_ago=3,
    )
    monday.tested()
    card = monday.engine.cards.propose(f"rehearse_revert commit={right}", workspace=str(monday.path))
    done = monday.approve(card)
    assert "reverts cleanly; but 1 of 1 test failed" in done.summary
    assert done.change_set_id is not None
    monday.clock.advance(timedelta(minutes=1))
    monday.engine.changes.land(done.change_set_id)
    monday.clock.advance(timedelta(minutes=1))
    monday.tested()
    return done.change_set_id


@pytest.mark.long
def test_it_is_undone(monday: Situation) -> None:
    change = landed(monday)
    first = monday.first()
    assert (first.kind, first.tier) == ("undo_landing", Tier.BROKEN)
    assert first.assignment.prompt.startswith("Undo the landing of “")
    assert first.assignment.prompt.endswith("which broke `test_total`")
    done = monday.approve(first)
    assert done.summary.endswith("is undone: 1 file restored")
    assert (monday.path / "cart.py").read_text() == GOOD
    assert monday.engine.changes.get(change).state is ChangeState.UNDONE
    assert done.next_step == "rerun_failing"
    assert monday.first().kind == "rerun_failing"
    monday.clock.advance(timedelta(minutes=1))
    monday.tested()
    assert not {"undo_landing", "bisect", "still_red"} & set(monday.kinds())


@pytest.mark.long
def test_it_was_edited_since(monday: Situation) -> None:
    landed(monday)
    monday.write("cart.py", "def total(prices):\n    return 3\n")
    assert "undo_landing" not in monday.kinds()

"""One thing of a repository cannot be seen: its cards stay as they are, and all others come and go as usual."""

from __future__ import annotations

import pytest

from tests.situations.conftest import Situation


@pytest.mark.long
def test_only_the_cards_of_what_was_not_seen_stay(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("notes.txt", "x\n", days_ago=40)
    monday.git("add", "notes.txt")
    monday.git("stash", "push", "-q", "-m", "notes", days_ago=40)
    monday.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices)\n", days_ago=0.01)
    assert {"leftovers", "old_stash"} <= {card.kind for card in monday.cards()}

    blob = monday.git("rev-parse", "HEAD:cart.py")
    lost = monday.path / ".git/objects" / blob[:2] / blob[2:]
    content = lost.read_bytes()
    lost.unlink()
    monday.git("stash", "drop", "-q")
    monday.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices) + 0\n", days_ago=0.005)
    report = monday.engine.predictions.run_cycle(requested=False)
    assert any("own: git diff" in error for error in report.errors), report.errors
    kinds = {card.kind for card in monday.engine.cards.pending()}
    assert "leftovers" in kinds, "nobody could see whether it is gone"
    assert "old_stash" not in kinds, "it was seen that it is gone"

    lost.write_bytes(content)
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    assert "leftovers" not in {card.kind for card in monday.cards()}

"""What you committed may need what you did not commit."""

from __future__ import annotations

import pytest

from engine.model import Tier
from tests.situations.conftest import Situation


@pytest.mark.long
def test_head_does_not_pass_without_the_uncommitted_file(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.commit("Prices have a module", {"cart.py": "from prices import add\ntotal = add\n"}, days_ago=0)
    monday.write("prices.py", "def add(prices):\n    return sum(prices)\n")
    card = monday.card("check_clean_head")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Does HEAD pass without prices.py?"
    done = monday.approve(card)
    assert not done.check.green
    assert "pass with the uncommitted files" in done.summary or "error" in done.summary

"""A flow found what no flow can mend, and a coding agent of the operator's takes prose."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.prediction.kinds import HANDED_OVER
from engine.values import Tier
from tests.situations.conftest import Situation

AGENT = Path(__file__).parents[1] / "support" / "acp_agent.py"
BROKEN = "def total(prices):\n    return max(prices)\n"


@pytest.mark.parametrize("hired", [True, False])
def test_failing_tests(monday: Situation, hired: bool) -> None:
    if hired:
        monday.engine.settings.set("acp.helper.command", [sys.executable, str(AGENT)])
        monday.engine.settings.set("channels.koji-core.runner", "acp:helper")
    monday.shop()
    monday.commit("Max", {"cart.py": BROKEN}, days_ago=2)
    monday.tested()
    monday.approve(monday.first())

    cards = [card for card in monday.cards() if card.kind == HANDED_OVER]
    if not hired:
        assert not cards, "nobody could take it"
        return
    (card,) = cards
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Make `tests/test_cart.py::test_total` pass, by the cause and not by the test"
    assert card.assignment.runner == "acp:helper"
    assert card.reasoning.startswith("helper can do what no flow can: 1 failure, 1 cause: "), card.reasoning

    monday.write("cart.py", "def total(prices):\n    return sum(prices)\n", days_ago=-0.01)
    assert HANDED_OVER not in monday.kinds(), "somebody is at it"

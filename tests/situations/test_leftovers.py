"""A breakpoint or conflict markers in what nobody else has yet are shown, and removed (SPEC 2.11, 3.9)."""

import pytest

from engine.model import PROBLEM_FOUND, Tier
from tests.situations.situation import Situation

TOTAL_WITH_BREAKPOINT = "def total(prices):\n    breakpoint()\n    return sum(prices)\n"


@pytest.mark.long
def test_an_uncommitted_breakpoint_is_named(shop: Situation):
    shop.run_tests()
    shop.write("cart.py", TOTAL_WITH_BREAKPOINT, days_ago=0.01)

    card = shop.predict_top_card("leftovers", Tier.CHECK, "Show what is left in cart.py:2")
    assert card.reasoning == "You added a breakpoint in cart.py:2, not committed yet."

    session = shop.approve(card)
    assert session.outcome == PROBLEM_FOUND, "it ran to its end"
    assert session.summary == "1 breakpoint: cart.py:2"
    assert "breakpoint()" in shop.read_transcript(session)

    removed = shop.approve(shop.predict_top_card("remove_leftovers"))
    assert removed.summary.startswith("1 line removed from cart.py; the one test passed"), removed
    assert removed.change_set_id
    assert shop.path.joinpath("cart.py").read_text() == TOTAL_WITH_BREAKPOINT, "it waits as a diff"
    assert {"leftovers", "remove_leftovers"}.isdisjoint(shop.predict_kinds())


def test_staged_conflict_markers_block_others_and_are_not_removed(shop: Situation):
    shop.write("rates.py", "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n", days_ago=0.01)
    shop.git("add", "rates.py")
    session = shop.approve(shop.predict_top_card("leftovers", Tier.BLOCKS))
    assert session.summary == "1 conflict marker: rates.py:1"
    assert "Next: resolve rates.py:1 in your editor" in shop.read_transcript(session)
    assert "remove_leftovers" not in shop.predict_kinds()

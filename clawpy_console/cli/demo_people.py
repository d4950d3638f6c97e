"""What the demo's made-up organisation knows: patterns of leaders, and findings of workers that met the gates.

Told to the real engine by its ports: what goes up, and what is refused at which gate, is its own word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.model import Learning, Score, Trust

if TYPE_CHECKING:
    from engine import Engine

PATTERNS = (
    ("cto", "measure_first", "Measure before tuning: keep the figure and the command that prints it."),
    ("cto", "small_changes", "One purpose per change; keep refactoring separate."),
    ("backend_lead", "money_in_cents", "Money is whole cents from the cart to the receipt; never a float."),
    ("backend_lead", "red_first", "A bug gets a failing test before it gets a fix."),
    ("coo", "write_it_down", "Decisions go into the change log on the same day."),
)

CONFIRMED = Score(0.9, ("tests confirmed it",))
ONCE = Score(0.5, ("it was observed once",))
WEIGHTY = Score(0.76, ("a failure was avoided: +0.40", "24 minutes of work: +0.16", "it concerns 4 things: +0.20"))
LIGHT = Score(0.41, ("9 minutes of work: +0.06", "$0.35 spent on it: +0.10", "it concerns 5 things: +0.25"))

ARRIVED = "Round a discount once, at the end: tests/test_discount.py saw a cent go missing when each line was rounded"


def _found(number: int, text: str, about: str, *evidence: str, by: str = "backend_builder", sure: Score = CONFIRMED,
           weight: Score = WEIGHTY) -> Learning:  # fmt: skip
    return Learning(f"demo:{number}", text, about, by, "", sure, weight, evidence, trust=Trust.MEASURED)


FIRST = _found(1, ARRIVED, "tests discount", "failed at first, passed after 2 attempts")

FOUND = (
    _found(2, "Reserve stock before the payment, or two carts sell the last tea", "backend stock",
           "two orders for one tea in tests/test_stock.py"),
    _found(3, "make test takes four seconds less with one process", "tests", "4.1 s instead of 8.3 s", weight=LIGHT),
    _found(4, ARRIVED.replace("saw", "sees"), "tests"),
    _found(5, "Readers stop at the second paragraph of the change log", "writing", "one look at the page views",
           by="chronicler", sure=ONCE),
    _found(6, "Gift wrapping needs its own price list", "pricing", "three shops compared", by="researcher"),
)  # fmt: skip


def tell(engine: Engine) -> None:
    """Have the organisation of a fresh home know something. Raises `Refusal` when a port refuses."""
    for leader, key, text in PATTERNS:
        engine.wisdom.edit_profile(leader, "patterns", key=key, value=text)
    engine.hierarchy.add(
        "pricing_analyst", reports_to="cfo", title="Pricing analyst", archetype="specialist", domain="finance prices"
    )
    engine.hierarchy.add("night_watch", reports_to="coo", title="Night watch", archetype="junior")
    engine.hierarchy.retire("night_watch")
    engine.hierarchy.assign_tier("junior_frontend", 4)
    engine.wisdom.offer(FIRST)
    engine.wisdom.flush()
    for one in FOUND:
        engine.wisdom.offer(one)

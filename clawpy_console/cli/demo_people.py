"""What the demo's made-up organisation knows: patterns of leaders, and findings of workers that met the gates.

Told to the real engine by its ports: what goes up, and what is refused at which gate, is its own word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.values import Learning, Score, Trust

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

FIRST = Learning(
    "demo:1", ARRIVED, "tests discount", "backend_builder", "", CONFIRMED, WEIGHTY,
    ("failed at first, passed after 2 attempts",), trust=Trust.MEASURED,
)  # fmt: skip

FOUND = (
    Learning(
        "demo:2", "Reserve stock before the payment, or two carts sell the last tea", "backend stock",
        "backend_builder", "", CONFIRMED, WEIGHTY, ("two orders for one tea in tests/test_stock.py",),
        trust=Trust.MEASURED,
    ),
    Learning(
        "demo:3", "make test takes four seconds less with one process", "tests", "backend_builder", "", CONFIRMED,
        LIGHT, ("4.1 s instead of 8.3 s",), trust=Trust.MEASURED,
    ),
    Learning(
        "demo:4", ARRIVED.replace("saw", "sees"), "tests", "backend_builder", "", CONFIRMED, WEIGHTY,
        trust=Trust.MEASURED,
    ),
    Learning(
        "demo:5", "Readers stop at the second paragraph of the change log", "writing", "chronicler", "", ONCE, WEIGHTY,
        ("one look at the page views",), trust=Trust.MEASURED,
    ),
    Learning(
        "demo:6", "Gift wrapping needs its own price list", "pricing", "researcher", "", CONFIRMED, WEIGHTY,
        ("three shops compared",), trust=Trust.MEASURED,
    ),
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

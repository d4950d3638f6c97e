"""What `clawpy simulate` prints: a month in tables, and every action that a rail stopped."""

from __future__ import annotations

from collections.abc import Iterator

from clawpy_console.cli.printing.style import Document, Lines, bold, count, dim, printed, table
from clawpy_console.fields import Field
from clawpy_console.screens.safety.standing import HOLDS


def simulate(document: Document) -> Lines:
    """The whole month. The same document gives the same text, whatever the machine."""
    cards = document["cards"]
    fates = ", ".join(f"{cards[name]} {name}" for name in ("approved", "dismissed", "expired", "withdrawn", "pending"))
    yield bold(f"{count(document['days'], 'day')} from {document['from'][:10]}, seed {document['seed']}")
    yield dim(f"real: {document['real']}")
    yield dim(f"made up: {'; '.join(document['madeUp'])}\n")
    yield f"cards    {cards['made']} made, {cards['followUps']} of them follow-ups: {fates}"
    yield f"executed {cards['executed']}, {cards['executedByAutonomy']} of them by itself\n"
    kinds = [
        (one["kind"], one["approved"], one["dismissed"],
         "–" if one["confidence"] is None else f"{one['confidence']:.0%}")
        for one in document["kinds"]
    ]  # fmt: skip
    yield from table(("kind", "approved", "dismissed", "confidence of its newest card"), kinds)
    days = [
        (one["day"], one["made"], one["approved"], one["dismissed"], one["byAutonomy"], one["blocked"],
         _money(one["cost"]), ", ".join(one["odd"]))
        for one in document["perDay"]
    ]  # fmt: skip
    yield ""
    yield from table(("day", "made", "approved", "dismissed", "by itself", "blocked", "cost", "unusual"), days)
    rails = [(one["rail"], one["blocked"], _example(one["example"], "prompt")) for one in document["rails"]]
    yield ""
    yield from table(("rail", "blocked", "for example"), rails)
    gates = [
        (f"{one['gate']} {one['name']}", one["refused"], _example(one["example"], "text")) for one in document["gates"]
    ]
    yield ""
    yield from table(("gate", "refused", "for example"), gates)
    yield f"{document['wentUp']} went up to a leader\n"
    yield from printed(_totals(document))
    blocked = [
        (_when(one["at"]), one["rail"], one["by"], f"{one['prompt']}: {one['reason']}") for one in document["blocked"]
    ]
    yield ""
    yield from table(("blocked", "rail", "by", "what, and why"), blocked)
    if not blocked:
        yield "Nothing was blocked."


def _totals(document: Document) -> Iterator[Field]:
    cost, cycles = document["cost"], document["cycles"]
    hours = ", ".join(f"{state} {spent:.1f} h" for state, spent in document["states"].items())
    yield Field("states", f"{hours}, laptop asleep {document['asleepHours']:.1f} h")
    yield Field("checks", f"{cycles['cards']} for cards, {cycles['act']} to act by itself")
    yield Field("phases", ", ".join(f"{one['phase']} from {_when(one['at'])}" for one in document["phases"]))
    peaks = ", ".join(f"{name} {_money(cost['peaks'][name])} of {_money(cap)}" for name, cap in cost["caps"].items())
    yield Field("cost", f"{_money(cost['total'])} in all; highest, reserved included: {peaks}")
    if cost["endedByCap"]:
        yield Field(
            "", f"{count(len(cost['endedByCap']), 'session')} stopped before a call that would have exceeded a cap"
        )
    for one in document["holds"]:
        yield Field(HOLDS[one["word"]], f"{_when(one['at'])}: {one['reason']}")


def _example(one: Document | None, key: str) -> str:
    return f"“{one[key]}”: {one['reason']}" if one else "–"


def _when(at: str) -> str:
    return at[:16].replace("T", " ")


def _money(amount: float) -> str:
    return f"${amount:.2f}"

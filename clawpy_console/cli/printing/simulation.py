"""What `clawpy simulate` prints: a month in tables, and every action that a rail stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawpy_console.cli.printing.style import Style, count, printed, table
from clawpy_console.fields import Field
from clawpy_console.screens.safety.standing import HOLDS


def simulation(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """The whole month. The same document gives the same text, whatever the machine."""
    cards = document["cards"]
    lines = [
        style.bold(f"{count(document['days'], 'day')} from {document['from'][:10]}, seed {document['seed']}"),
        style.dim(f"real: {document['real']}"),
        style.dim(f"made up: {'; '.join(document['madeUp'])}"),
        "",
        f"cards    {cards['made']} made, {cards['followUps']} of them follow-ups: "
        + ", ".join(f"{cards[name]} {name}" for name in ("approved", "dismissed", "expired", "withdrawn", "pending")),
        f"executed {cards['executed']}, {cards['executedByAutonomy']} of them by itself",
    ]
    kinds = [
        (
            one["kind"],
            one["approved"],
            one["dismissed"],
            "–" if one["confidence"] is None else f"{one['confidence']:.0%}",
        )
        for one in document["kinds"]
    ]
    days = [
        (one["day"], one["made"], one["approved"], one["dismissed"], one["byAutonomy"], one["blocked"],
         _money(one["cost"]), ", ".join(one["odd"]))
        for one in document["perDay"]
    ]  # fmt: skip
    rails = [(one["rail"], one["blocked"], _example(one["example"], "prompt")) for one in document["rails"]]
    gates = [
        (f"{one['gate']} {one['name']}", one["refused"], _example(one["example"], "text")) for one in document["gates"]
    ]
    blocked = [
        (_when(one["at"]), one["rail"], one["by"], f"{one['prompt']}: {one['reason']}") for one in document["blocked"]
    ]
    day = ("day", "made", "approved", "dismissed", "by itself", "blocked", "cost", "what was odd")
    for heads, rows in (
        (("kind", "approved", "dismissed", "confidence of its newest card"), kinds),
        (day, days),
        (("rail", "blocked", "for example"), rails),
        (("gate of a finding", "refused", "for example"), gates),
    ):
        lines += ["", *table(heads, rows, style)]
    lines += [f"{document['wentUp']} went up to a leader", "", *printed(_totals(document), style)]
    stopped = table(("blocked", "rail", "by", "what, and why"), blocked, style) or ["Nothing was blocked."]
    return "\n".join([*lines, "", *stopped])


def _totals(document: Mapping[str, Any]) -> Iterator[Field]:
    cost, cycles = document["cost"], document["cycles"]
    hours = ", ".join(f"{state} {spent:.1f} h" for state, spent in document["states"].items())
    yield Field("states", f"{hours}, laptop asleep {document['asleepHours']:.1f} h")
    yield Field("checks", f"{cycles['cards']} for cards, {cycles['act']} to act by itself")
    yield Field("phases", ", ".join(f"{one['phase']} from {_when(one['at'])}" for one in document["phases"]))
    peaks = ", ".join(f"{name} {_money(cost['peaks'][name])} of {_money(cap)}" for name, cap in cost["caps"].items())
    yield Field("cost", f"{_money(cost['total'])} in all; highest, reserved included: {peaks}")
    if cost["endedByCap"]:
        yield Field("", f"{count(len(cost['endedByCap']), 'session')} ended before a call that would have passed a cap")
    for one in document["holds"]:
        yield Field(HOLDS[one["word"]], f"{_when(one['at'])}: {one['reason']}")


def _example(one: Mapping[str, Any] | None, key: str) -> str:
    return f"“{one[key]}”: {one['reason']}" if one else "–"


def _when(at: str) -> str:
    return at[:16].replace("T", " ")


def _money(amount: float) -> str:
    return f"${amount:.2f}"

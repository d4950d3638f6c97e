"""What `clawpy simulate` prints: a month in tables, and every action that a rail stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Style, count

HOLDS = {"pause": "paused", "stop": "stopped", "month": "month stop"}


def simulation(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """The whole month. The same document gives the same text, whatever the machine."""
    return "\n".join(
        [
            *_head(document, style),
            *_kinds(document, style),
            *_days(document, style),
            *_rails(document, style),
            *_gates(document, style),
            *_standing(document, style),
            *_blocked(document, style),
        ]
    )


def _head(document: Mapping[str, Any], style: Style) -> list[str]:
    cards = document["cards"]
    return [
        style.bold(f"{count(document['days'], 'day')} from {document['from'][:10]}, seed {document['seed']}"),
        style.dim(f"real: {document['real']}"),
        style.dim(f"made up: {'; '.join(document['madeUp'])}"),
        "",
        f"cards    {cards['made']} made, {cards['followUps']} of them follow-ups: "
        f"{cards['approved']} approved, {cards['dismissed']} dismissed, {cards['expired']} expired, "
        f"{cards['withdrawn']} withdrawn, {cards['pending']} pending",
        f"executed {cards['executed']}, {cards['executedByAutonomy']} of them by autonomy",
    ]


def _kinds(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = ["", style.bold("kind                  approved  dismissed  confidence of its newest card")]
    for one in document["kinds"]:
        stated = "-" if one["confidence"] is None else f"{one['confidence']:.0%}"
        lines.append(f"{one['kind']:<20}  {one['approved']:>8}  {one['dismissed']:>9}  {stated:>10}")
    return lines


def _days(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = ["", style.bold("day  made  approved  dismissed  by autonomy  blocked    cost  what was odd")]
    lines += [
        f"{day['day']:>3}  {day['made']:>4}  {day['approved']:>8}  {day['dismissed']:>9}  {day['byAutonomy']:>11}  "
        f"{day['blocked']:>7}  {_money(day['cost'])}  {', '.join(day['odd'])}".rstrip()
        for day in document["perDay"]
    ]
    return lines


def _rails(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = ["", style.bold("rail     blocked  for example")]
    for rail in document["rails"]:
        example = rail["example"]
        told = f"“{example['prompt']}”: {example['reason']}" if example else "-"
        lines.append(f"{rail['rail']:<8} {rail['blocked']:>7}  {told}")
    return lines


def _gates(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = ["", style.bold("gate of a lesson  refused  for example")]
    for gate in document["gates"]:
        example = gate["example"]
        told = f"“{example['text']}”: {example['reason']}" if example else "-"
        lines.append(f"{gate['gate']} {gate['name']:<15} {gate['refused']:>7}  {told}")
    return [*lines, f"{document['wentUp']} went up to a leader"]


def _standing(document: Mapping[str, Any], style: Style) -> list[str]:
    cost, states = document["cost"], document["states"]
    hours = ", ".join(f"{state} {spent:.1f} h" for state, spent in states.items())
    lines = ["", f"{style.bold('states')}   {hours}, laptop asleep {document['asleepHours']:.1f} h"]
    cycles = document["cycles"]
    lines.append(f"{style.bold('cycles')}   {cycles['cards']} of cards, {cycles['act']} autonomous")
    phases = ", ".join(f"{one['phase']} from {_when(one['at'])}" for one in document["phases"])
    lines.append(f"{style.bold('phases')}   {phases}")
    peaks = ", ".join(
        f"{window} {_money(cost['peaks'][window]).strip()} of {_money(cost['caps'][window]).strip()}"
        for window in ("hour", "day", "month")
    )
    lines.append(
        f"{style.bold('cost')}     {_money(cost['total']).strip()} in all; highest, reserved included: {peaks}"
    )
    if cost["endedByCap"]:
        ended = count(len(cost["endedByCap"]), "session")
        lines.append(f"         {ended} ended before a call that would have passed a cap")
    lines += [
        f"{style.bold('holds') if not number else '     '}    {_when(one['at'])}  {HOLDS[one['word']]}: {one['reason']}"
        for number, one in enumerate(document["holds"])
    ]
    return lines


def _blocked(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = ["", style.bold("what was blocked, by which rail, and why")]
    lines += [
        f"{_when(one['at'])}  {one['rail']:<7}  {one['by']:<8}  {one['prompt']}  -  {one['reason']}"
        for one in document["blocked"]
    ]
    return lines if document["blocked"] else [*lines, "nothing"]


def _when(at: str) -> str:
    return at[:16].replace("T", " ")


def _money(amount: float) -> str:
    return f"{f'${amount:.2f}':>7}"

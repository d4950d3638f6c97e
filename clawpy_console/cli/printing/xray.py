"""What `clawpy xray` prints: a session's calls, and the prompt of one with the source of each line in a gutter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Style, clean, count

GUTTER = 14
TRUST = 15
"""Cells for a source, and for how far its lines may be followed."""


def xray(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """The list of calls, or one call whole."""
    session, name = document["session"], clean(document["id"])
    lines = [f"{style.bold(name)}  {clean(session['prompt'] if session else 'what of the day is kept')}"]
    if "call" in document:
        return "\n".join([*lines, *_whole(document, style)])
    for number, call in enumerate(document["calls"], 1):
        lines.append(f"  {number:>3}  {_call(call, style)}")
    if not document["calls"]:
        lines.append(style.dim(f"  {_no_call(session)}"))
    else:
        lines.append(style.dim(f"  `clawpy xray {name} --call 1` shows what was sent"))
    return "\n".join(lines)


def _no_call(session: Mapping[str, Any] | None) -> str:
    if session is None:
        return "it made no call: `model` of [memory] names none, or that day is not over"
    if session["flow"]:
        return "no model was asked: a flow runs without one"
    return "no model was asked" if session["state"] not in ("queued", "running") else "no model was asked yet"


def replied(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """That it was told."""
    return f"told {clean(document['session']['id'])}; it reads it at its next turn"


def _call(call: Mapping[str, Any], style: Style) -> str:
    paint = {"done": style.good, "running": style.wants}.get(call["state"], style.bad)
    cost = f"{'' if call['priceKnown'] else '~'}${call['cost']:.4f}"
    took = "" if call["seconds"] is None else f"  {call['seconds']:.1f} s"
    figures = f"{call['inputTokens']:,} → {call['outputTokens']:,} tokens  {cost}{took}"
    error = f"  {clean(call['error'])}" if call["error"] else ""
    return f"{clean(call['model']):24}  {paint(call['state'])}  {style.dim(figures)}{error}"


def _whole(document: Mapping[str, Any], style: Style) -> list[str]:
    lines = [f"  {_call(document['call'], style)}"]
    lines += [f"  {style.wants('!')} {clean(note)}" for note in document["call"]["notes"]]
    for part in document["prompt"]:
        lines += ["", style.dim(f"{part['role']} · {clean(part['name'])} · ~{count(part['tokens'], 'token')}")]
        before = None
        for line in part["lines"]:
            source = clean(line["label"] or line["source"])
            shown = source if source != before else ""
            before = source
            lead = style.dim(f"{shown[:GUTTER]:>{GUTTER}} {clean(line['trust']):{TRUST}} │")
            hostile = style.bad(f"▲ hostile, {clean(line['hostile'])}: ") if line["hostile"] else ""
            lines.append(f"{lead} {hostile}{clean(line['text'])}")
    if document["reply"]:
        lines += [
            "",
            style.dim("answered"),
            *(f"{'':>{GUTTER + 1 + TRUST}} │ {clean(one)}" for one in _lines(document["reply"])),
        ]
    return lines


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")

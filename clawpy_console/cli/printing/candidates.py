"""What `clawpy candidates` prints: proposed changes of behaviour, their evidence, what would change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, printed
from clawpy_console.screens.learning import candidate

NEXT = {
    "promoted": "`clawpy candidates rollback {id}` rolls it back",
    "rejected": "It is proposed again only if new evidence outweighs your decision.",
    "rolled_back": "`clawpy candidates approve {id}` activates it again",
}


def candidates(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """A list, one with all about it, what became of one, what a check found, or records."""
    now = datetime.now(UTC)
    if "candidates" in document:
        return _list(document, style)
    if "drafted" in document:
        lines = [_head(one, style) for one in document["drafted"]] or ["Nothing new was found."]
        lines += [style.dim(f"not drafted: {clean(key)}: {clean(why)}") for key, why in document["notDrafted"].items()]
        return "\n".join(lines)
    if "candidate" not in document:
        lines = [line for one in document["records"] for line in printed(candidate.record(one, now), style)]
        return "\n".join(lines) or "Nothing was recorded yet."
    one = document["candidate"]
    lines = [_head(one, style)]
    if "stations" in document:
        lines += printed(candidate.candidate(document, now), style)[1:]
        for name, title in candidate.EVIDENCE.items():
            records = [each for each in document["records"] if each["id"] in one[name]]
            lines += ["", style.bold(title)] if records else []
            lines += [line for each in records for line in printed(candidate.record(each, now), style)]
    told = NEXT.get(one["status"], "").format(id=clean(one["id"]))
    return "\n".join([*lines, *([style.dim(told)] if told else [])])


def _list(document: Document, style: Style) -> str:
    """Those that need your decision first."""
    lines = []
    for one in sorted(document["candidates"], key=lambda one: one["status"] != "review"):
        told = f"{candidate.TYPES[one['type']][1]}, for {candidate.where(one)}; {candidate.evidence(one)}"
        lines += [_head(one, style), "    " + style.dim(clean(told))]
    if not lines:
        known = document["records"]
        said = f"{count(known, 'record')}, none calls for a change" if known else "nothing was recorded yet"
        return f"No candidates: {said}. `clawpy candidates digest` checks now, instead of within ten minutes."
    if waiting := document["counts"]["review"]:
        told = "`clawpy candidates show ID` shows one, `approve ID` and `reject ID` decide"
        lines.append(style.dim(f"{waiting} need{'s' if waiting == 1 else ''} your decision: {told}"))
    if document["mode"] == "autonomous":
        lines.append(style.wants("adaptation.mode is autonomous: candidates with enough evidence become active"))
    return "\n".join(lines)


def _head(one: Document, style: Style) -> str:
    sign, tone, said = candidate.STATUS[one["status"]]
    state = style.paint(tone, f"{sign} {said}")
    return f"{style.bold(clean(one['id']))}  {state}  score {one['score']:.0f}  {clean(one['title'])}"

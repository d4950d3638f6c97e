"""What `clawpy candidates` prints: proposed changes of behaviour, their evidence, what would change."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, time

SIGNS = {"done": "✓", "now": "◐", "ahead": "○", "failed": "✗"}

AROUND = 2
"""Lines that stay as they are, shown before and after those that change."""

LEFT_OUT = "  …"

NEXT = {
    "review": "it needs your decision",
    "promoted": "it is active; `clawpy candidates rollback {id}` undoes it",
    "rejected": "it is proposed again only if new evidence outweighs that",
    "rolled_back": "its changes are removed; `clawpy candidates approve {id}` activates it again",
}


def candidates(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """A list, one with all about it, what became of one, what a look found, or records."""
    if "stations" in document:
        return _whole(document, style)
    if "candidates" in document:
        return _list(document, style)
    if "drafted" in document:
        return _digest(document, style)
    if "records" in document:
        return "\n".join(_record(one, style) for one in document["records"]) or "nothing was recorded yet"
    one = document["candidate"]
    word = style.good(_words(one["status"])) if one["status"] == "promoted" else style.wants(_words(one["status"]))
    told = NEXT.get(one["status"], "").format(id=clean(one["id"]))
    lines = [f"{word}  {style.bold(clean(one['id']))}  {clean(one['title'])}"]
    return "\n".join([*lines, *([style.dim(told)] if told else [])])


def _list(document: Document, style: Style) -> str:
    """What waits for the operator first."""
    lines = []
    for one in sorted(document["candidates"], key=lambda one: one["status"] != "review"):
        lines.append(_head(one, style))
        lines.append("    " + style.dim(_evidence(one)))
    if not lines:
        known = document["records"]
        said = f"of {count(known, 'record')} none calls for a change yet" if known else "nothing was recorded yet"
        return f"No candidates: {said}; `clawpy candidates digest` looks now, instead of within ten minutes"
    waiting = document["counts"]["review"]
    if waiting:
        told = "`clawpy candidates show ID` shows one, `approve ID` and `reject ID` decide"
        lines.append(style.dim(f"{waiting} wait{'s' if waiting == 1 else ''} for you: {told}"))
    if document["mode"] == "autonomous":
        lines.append(
            style.wants("adaptation.mode is autonomous: candidates with enough evidence are promoted automatically")
        )
    return "\n".join(lines)


def _head(one: Document, style: Style) -> str:
    paint = {"review": style.wants, "promoted": style.good}.get(one["status"], style.dim)
    state = paint(_words(one["status"]))
    return f"{style.bold(clean(one['id']))}  {one['score']:3.0f}  {state}  {clean(one['title'])}"


def _evidence(one: Document) -> str:
    borne = f"drafted from {count(len(one['draftedFrom']), 'record')}, evidence for: {len(one['corroboratedBy'])}"
    against = f", against: {len(one['against'])}" if one["against"] else ""
    return clean(f"{one['type']}, {one['scopeId'] or 'everybody'}, {borne}{against}")


def _whole(document: Document, style: Style) -> str:
    one = document["candidate"]
    lines = [_head(one, style), "    " + style.dim(clean(f"{one['type']}  {one['dedupeKey']}"))]
    applies = [one["targetAgent"] or "every agent", *([one["runKind"]] if one["runKind"] else []), one["workspace"]]
    lines.append("    " + style.dim(clean("applies to " + ", ".join(word for word in applies if word))))
    lines.append("")
    for each in document["stations"]:
        when = f"{time(each['at'])}  " if each["at"] else ""
        lines.append(f"  {SIGNS[each['state']]} {each['name']:<11} {style.dim(when + clean(each['words']))}".rstrip())
    lines += ["", style.bold("what would change" if one["status"] != "promoted" else "what changed")]
    lines += [f"  {line}" for line in changes(document["preview"]["before"], document["preview"]["after"], style)]
    if document["lift"]:
        lines += ["", f"{style.bold('lift')}  {_lift(document['lift'])}"]
    for name, title in (
        ("draftedFrom", "drafted from"),
        ("corroboratedBy", "evidence for"),
        ("against", "evidence against"),
    ):
        found = [_record(each, style) for each in document["records"] if each["id"] in one[name]]
        lines += ["", style.bold(title), *("  " + line.replace("\n", "\n  ") for line in found)] if found else []
    told = NEXT.get(one["status"], "").format(id=clean(one["id"]))
    return "\n".join([*lines, *(["", style.dim(told)] if told else [])])


def changes(before: Sequence[str], after: Sequence[str], style: Style) -> list[str]:
    """The lines that go (`-`) and come (`+`), with a few around them that stay."""
    paint = {"-": style.bad, "+": style.good}
    told = [clean(line) for line in difflib.ndiff(list(before), list(after)) if not line.startswith("?")]
    moved = [at for at, line in enumerate(told) if line[0] in paint]
    lines: list[str] = []
    for at, line in enumerate(told):
        if any(abs(at - one) <= AROUND for one in moved):
            lines.append(paint[line[0]](line) if line[0] in paint else style.dim(line))
        elif not lines or lines[-1] != LEFT_OUT:
            lines.append(LEFT_OUT)
    return lines if moved else [style.dim("  nothing: it is already so")]


def _lift(one: Document) -> str:
    runs = f"{one['withGood']} of {one['withRuns']} went well with it"
    others = f"{one['withoutGood']} of {one['withoutRuns']} without"
    span = f"{one['difference']:+.0%}, 80 % interval {one['low']:+.0%} to {one['high']:+.0%}"
    return clean(f"{one['verdict']}: {span}; {runs}, {others}")


def _record(one: Document, style: Style) -> str:
    head = f"{one['score']:3.0f}  {clean(one['sourceLabel'])}"
    about = " · ".join(word for word in (time(one["createdAt"]), one["scopeId"], one["session"]) if word)
    told = clean(f"{about} | {one['reason']}")
    return f"{head}\n     {style.dim(told)}"


def _digest(document: Document, style: Style) -> str:
    lines = [_head(one, style) for one in document["drafted"]] or ["nothing new was drafted"]
    lines += [style.dim(f"not drafted: {clean(key)}: {clean(why)}") for key, why in document["notDrafted"].items()]
    return "\n".join(lines)


def _words(status: str) -> str:
    return status.replace("_", " ")

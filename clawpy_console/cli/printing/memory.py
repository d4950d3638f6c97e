"""What the verbs of memory print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count

RECALLED_MOST = 300
"""Characters of a memory that are shown; --json has all of it."""


def remember(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """How much was remembered; bad lines were told as they came."""
    said = f"{document['remembered']:,} remembered"
    if document["known"]:
        said += f", {document['known']:,} known before"
    if document["badLines"]:
        said += style.wants(f", {count(document['badLines'], 'bad line')}")
    lines = [f"{said}, {document['seconds']:.1f} s"]
    if document["trouble"]:
        lines.append(style.wants(f"found by words alone: {clean(document['trouble'])}"))
    elif missing := document["missing"]:
        lines.append(style.dim(f"{count(missing, 'memory', 'memories')} can be found by meaning a little later"))
    return "\n".join(lines)


def recall(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was found, each line with its layer, its source and why."""
    lines = []
    for one in document["results"]:
        who = " · ".join(word for word in (one["speaker"], (one["timestamp"] or "")[:10], one["source"]) if word)
        text = clean(one["text"])
        shown = text if len(text) <= RECALLED_MOST else text[: RECALLED_MOST - 1] + "…"
        lines.append(f"{one['score']:.2f}  {one['layer']}  {shown}")
        lines.append(style.dim(f"         {clean(who)} | {clean(one['reason'])}"))
    lines += [style.wants(f"left out: {clean(words)}") for words in document["leftOut"]]
    return "\n".join(lines) if lines else "nothing is known about it"


SHOWN = 10
"""Places that are shown; --json has more."""


def drafts(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """Drafts of facts, or what became of one."""
    if "fact" in document:
        fact = document["fact"]
        return f"{style.good('kept')}  {style.bold(clean(fact['id']))}  {clean(fact['fact'])}"
    lines = []
    for one in document["drafts"]:
        state = "" if one["state"] == "waiting" else f"  {clean(one['state'])}"
        lines.append(f"{style.bold(clean(one['id']))}{state}  {clean(one['fact'])}")
        instead = f", in the place of {one['supersedes']}" if one["supersedes"] else ""
        lines.append("    " + style.dim(clean(f"{one['bucket']}/{one['group']} | {one['reason']}{instead}")))
    if document["drafts"] and document["drafts"][0]["state"] == "waiting":
        lines.append(style.dim("`clawpy drafts promote ID` keeps one as a fact, `clawpy drafts dismiss ID` does not"))
    return "\n".join(lines) or "No drafts. They are made at night."


def forget(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """What forgetting touches, or touched, and what it leaves."""
    counts = ", ".join(f"{number:,} in {clean(store)}" for store, number in document["counts"].items())
    head = style.good("forgotten") if document["forgotten"] else style.wants("would be forgotten")
    lines = [f"{head}  {count(sum(document['counts'].values()), 'place')}: {counts}"]
    if not document["forgotten"]:
        for one in document["places"][:SHOWN]:
            lines.append(f"  {clean(one['store'])}  {style.dim(clean(one['id']))}  {clean(one['text'])}")
        if len(document["places"]) > SHOWN:
            lines.append(style.dim(f"  and {len(document['places']) - SHOWN} more"))
    lines += [f"  {style.dim('stays')}  {clean(one)}" for one in document["left"]]
    if not document["forgotten"]:
        lines.append(f"Nothing changed yet. Add `{style.bold('--yes')}` to forget it; this cannot be undone.")
    return "\n".join(lines)

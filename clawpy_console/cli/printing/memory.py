"""What the verbs of memory print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.style import Document, Style, clean, count, printed
from clawpy_console.screens.memory import entry as told


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
    lines = [line for one in document["results"] for line in printed(told.recalled(one), style)]
    lines += [style.wants(f"left out: {clean(words)}") for words in document["leftOut"]]
    return "\n".join(lines) or "Nothing is known about it."


def drafts(document: Document, options: Mapping[str, Any], style: Style) -> str:
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


def forget(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What forgetting touches, or touched, and what it leaves."""
    lines = [style.good("forgotten") if document["forgotten"] else style.wants("would be forgotten")]
    lines += printed(told.forgetting(document), style)
    if not document["forgotten"]:
        lines.append(f"Nothing changed yet. Add `{style.bold('--yes')}` to forget it.")
    return "\n".join(lines)

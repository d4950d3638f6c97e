"""What `clawpy drafts` and `clawpy forget` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.values import sanitise

if TYPE_CHECKING:
    from clawpy_console.output import Style

SHOWN = 10
"""Places that are shown; --json has more."""


def drafts(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """Drafts of facts, or what became of one."""
    if "fact" in document:
        fact = document["fact"]
        return f"{style.good('kept')}  {style.bold(_clean(fact['id']))}  {_clean(fact['fact'])}"
    lines = []
    for one in document["drafts"]:
        state = "" if one["state"] == "waiting" else f"  {_clean(one['state'])}"
        lines.append(f"{style.bold(_clean(one['id']))}{state}  {_clean(one['fact'])}")
        instead = f", in the place of {one['supersedes']}" if one["supersedes"] else ""
        lines.append("    " + style.dim(_clean(f"{one['bucket']}/{one['group']} | {one['reason']}{instead}")))
    if document["drafts"] and document["drafts"][0]["state"] == "waiting":
        lines.append(style.dim("`clawpy drafts promote ID` keeps one as a fact, `clawpy drafts dismiss ID` does not"))
    return "\n".join(lines) or "no draft waits for you; the night makes them"


def forget(document: Mapping[str, Any], options: Mapping[str, Any], style: Style) -> str:
    """What forgetting touches, or touched, and what it leaves."""
    counts = ", ".join(f"{number:,} in {_clean(store)}" for store, number in document["counts"].items())
    head = style.good("forgotten") if document["forgotten"] else style.wants("would be forgotten")
    lines = [f"{head}  {words.count(sum(document['counts'].values()), 'place')}: {counts}"]
    if not document["forgotten"]:
        for one in document["places"][:SHOWN]:
            lines.append(f"  {_clean(one['store'])}  {style.dim(_clean(one['id']))}  {_clean(one['text'])}")
        if len(document["places"]) > SHOWN:
            lines.append(style.dim(f"  and {len(document['places']) - SHOWN} more"))
    lines += [f"  {style.dim('stays')}  {_clean(one)}" for one in document["left"]]
    if not document["forgotten"]:
        lines.append(f"nothing was changed yet: `{style.bold('--yes')}` forgets it, and cannot be taken back")
    return "\n".join(lines)


def _clean(text: Any) -> str:
    return sanitise(str(text))

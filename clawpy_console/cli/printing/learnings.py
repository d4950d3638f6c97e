"""What the verb of learnings prints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from clawpy_console.cli.printing.cards import cards
from clawpy_console.cli.printing.style import Document, Style, clean, count, printed, time
from clawpy_console.fields import Field
from clawpy_console.screens.learning import entry


def learnings(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was learned, one learning, the scopes, or what became of one."""
    if "predictions" in document:
        left = document["leftOut"]
        told = [style.dim(f"{count(left, 'older one')} left out: a card takes no more")] if left else []
        return "\n".join([cards(document, options, style), *told])
    if "learning" in document:
        one = document["learning"]
        return "\n".join([_head(one, style), *printed((*entry.learning(one, datetime.now(UTC)), *_links(one)), style)])
    if "scopes" in document:
        return "\n".join(line for one in document["scopes"] for line in _scope(one, style)) or "Nothing learned yet."
    if "retired" in document:
        return "\n".join(_retracted(document, style))
    for key, said in (("kept", "It stays valid."), ("promoted", "It now applies in all projects.")):
        if key in document and "judged" not in document:
            return f"{style.good(said)}  {_head(document[key], style)}"
    if "judged" in document:
        return "\n".join(_chain(document, style))
    lines = [line for one in document["learnings"] for line in _listed(one, style)]
    return "\n".join(lines) or "Nothing learned here yet beyond single sessions: see `clawpy learnings scopes`"


def _listed(one: Document, style: Style) -> list[str]:
    if one["scope"] == "leadership":
        way = f"{one['targetAgent']} → {one['leader']}, {time(one['at'])}  {one['session']}"
        return [clean(one["text"]), "    " + style.dim(clean(way))]
    told = [entry.where(one), entry.KINDS[one["kind"]][1], f"confidence {one['confidence']:.2f}"]
    sessions = {source["session"] for source in one["promotedFrom"]} - {""}
    told += [f"from {count(len(sessions), 'session')}"] if sessions else []
    told += [f"repeated {count(one['reinforcementCount'], 'time')}"] if one["reinforcementCount"] else []
    lines = [_head(one, style), "    " + style.dim(clean(", ".join([*told, *filter(None, [one["session"]])])))]
    return [*lines, "    " + style.wants(clean(one["review"]))] if one["review"] else lines


def _head(one: Document, style: Style) -> str:
    _, tone, said = entry.STATUS[one["status"]]
    gone = f"  {style.paint(tone, said)}" if one["status"] != "active" else ""
    return f"{style.bold(clean(one['id']))}{gone}  {clean(one['text']).strip() or style.dim('forgotten')}"


def _links(one: Document) -> list[Field]:
    """Where a learning came from and went, and where else its lesson stands."""
    told = [Field(name, f"{each['id']}  {entry.where(each)}: {entry.title(each)}")
            for name, key in (("came from", "from"), ("became", "became")) for each in one[key]]  # fmt: skip
    told += [Field("came from", f"{id}, no longer in any file", "wants") for id in one["gone"]]
    told += [Field("sessions", ", ".join(one["sessions"]))] if one["sessions"] else []
    stands = [f"{leader}'s patterns" for leader in one["leaders"]] + [f"candidate {id}" for id in one["candidates"]]
    where = "retracted" if one["retracted"] else f"also in {', '.join(stands)}" if stands else "nowhere else"
    told.append(Field("lesson", f"{one['lesson']}  {where}"))
    return told + [Field("in prompt", f"{call['call']}  {call['targetAgent']}  {time(call['at'])}", "grey")
                   for call in one["reached"]]  # fmt: skip


def _scope(one: Document, style: Style) -> list[str]:
    told = f"{one['institutional']} how things are done, {one['tasks']} about work, {one['proxy']} about you"
    gone = f", {one['retired']} retracted" if one["retired"] else ""
    name = entry.scope(one["scope"], one["scopeId"], one["workspace"])
    lines = [f"{style.bold(clean(name))}  {told}{gone}", "    " + style.dim(clean(one["path"]))]
    return lines + ["    " + style.bad(clean(fault)) for fault in one["faults"]]


def _retracted(document: Document, style: Style) -> list[str]:
    lines = [f"{style.good('Retracted')}  {clean(', '.join(document['retired']))}"]
    if document["queued"]:
        lines.append(f"{count(len(document['queued']), 'learning')} promoted from it needs your decision:")
        lines += [f"  {style.bold(clean(id))}" for id in document["queued"]]
        lines.append(style.dim("`clawpy learnings keep ID` keeps one, `clawpy learnings retract ID` retracts it"))
    return lines


def _chain(document: Document, style: Style) -> list[str]:
    new = sum(document["extracted"].values())
    told = f"{style.good('found')}  {count(new, 'learning')} in {count(len(document['extracted']), 'session')}"
    names = {"promoted": "promoted", "reinforced": "repeated", "compacted": "merged"}
    done = [(name, document[key]) for key, name in names.items() if document[key]]
    lines = [told] if new else []
    lines += [f"{style.good(name)}  {clean(', '.join(ids))}" for name, ids in done]
    lines += [f"{style.bold(clean(one['id']))}  {clean(one['verdict'])}" for one in document["judged"]]
    lines += [style.bad(clean(fault)) for fault in document["faults"]]
    return lines or ["Nothing was promoted."]

"""What the verb of learnings prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpy_console.cli.printing.cards import cards
from clawpy_console.cli.printing.style import Document, Style, clean, count, time

STATES = {"retired": "retracted", "compacted": "folded into another"}


def learnings(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was learnt, one of it, where it is kept, or what became of it."""
    if "predictions" in document:
        left = document["leftOut"]
        told = [style.dim(f"{count(left, 'older one')} left out: a card takes no more")] if left else []
        return "\n".join([cards(document, options, style), *told])
    if "learning" in document:
        return "\n".join(_one(document["learning"], style))
    if "scopes" in document:
        return "\n".join(line for one in document["scopes"] for line in _scope(one, style)) or "Nothing learned yet."
    if "retired" in document:
        return "\n".join(_retracted(document, style))
    if "kept" in document:
        return f"{style.good('It stays valid.')}  {_head(document['kept'], style)}"
    if "judged" in document:
        return "\n".join(_chain(document, style))
    if "promoted" in document:
        return f"{style.good('now applies in all projects')}  {_head(document['promoted'], style)}"
    lines = [line for one in document["learnings"] for line in _listed(one, style)]
    return "\n".join(lines) or "Nothing learned here yet beyond single sessions: see `clawpy learnings scopes`"


def _listed(one: Document, style: Style) -> list[str]:
    if one["scope"] == "leadership":
        way = f"{one['targetAgent']} → {one['leader']}, {time(one['at'])}"
        return [clean(one["text"]), "    " + style.dim(clean(f"{way}  {one['session']}"))]
    told = [f"{one['scope']}, {one['kind']}, {one['type']}", f"confidence {one['confidence']:.2f}"]
    told.append(f"importance {one['importance']:.2f}")
    if one["promotedFrom"]:
        sessions = {source["session"] for source in one["promotedFrom"]} - {""}
        told.append(f"from {count(len(sessions), 'session')}")
    if one["reinforcementCount"]:
        told.append(f"said again {count(one['reinforcementCount'], 'time')}")
    if one["session"]:
        told.append(one["session"])
    lines = [_head(one, style), "    " + style.dim(clean(", ".join(told)))]
    return [*lines, "    " + style.wants(clean(one["review"]))] if one["review"] else lines


def _head(one: Document, style: Style) -> str:
    state = STATES.get(one["status"], "")
    gone = f"  {style.dim(state)}" if state else ""
    return f"{style.bold(clean(one['id']))}{gone}  {clean(one['text']).strip() or style.dim('forgotten')}"


def _one(one: Document, style: Style) -> list[str]:
    lines = [*_listed(one, style), *(f"    {style.dim(clean(reason))}" for reason in one["reasons"])]
    lines.append(f"  {style.dim('kept in')}  {clean(one['path'])}")
    lines += [f"  {style.dim('because')}  {clean(one['because'])}"] if one["because"] else []
    lines += [f"  {style.dim('from')}  {_short(source, style)}" for source in one["from"]]
    lines += [f"  {style.dim('from')}  {clean(id)}, in no file any more" for id in one["gone"]]
    lines += [f"  {style.dim('became')}  {_short(entry, style)}" for entry in one["became"]]
    lines += [f"  {style.dim('owed to')}  {clean(', '.join(one['sessions']))}"] if one["sessions"] else []
    stands = [f"{leader}'s patterns" for leader in one["leaders"]] + [f"candidate {id}" for id in one["candidates"]]
    where = "retracted" if one["retracted"] else f"also {', '.join(stands)}" if stands else "nowhere else"
    lines.append(f"  {style.dim('lesson')}  {clean(one['lesson'])}  {style.dim(clean(where))}")
    lines.append(f"  {style.dim('reached')}  {count(one['prompts'], 'prompt')}")
    for call in one["reached"]:
        lines.append(style.dim(clean(f"    {call['call']}  {call['targetAgent']}  {time(call['at'])}")))
    return lines


def _short(one: Document, style: Style) -> str:
    where = f"{one['scope']} {one['session'] or one['scopeId']}".strip()
    return f"{style.bold(clean(one['id']))}  {clean(one['title'])}  {style.dim(clean(where))}"


def _scope(one: Document, style: Style) -> list[str]:
    name = " ".join(word for word in (one["scope"], one["scopeId"]) if word)
    told = f"{one['institutional']} institutional, {one['tasks']} of tasks, {one['proxy']} about you"
    gone = f", {one['retired']} that hold no longer" if one["retired"] else ""
    lines = [f"{style.bold(clean(name))}  {told}{gone}", "    " + style.dim(clean(one["path"]))]
    return lines + ["    " + style.bad(clean(fault)) for fault in one["faults"]]


def _retracted(document: Document, style: Style) -> list[str]:
    lines = [f"{style.good('retracted')}  {clean(', '.join(document['retired']))}"]
    if document["queued"]:
        lines.append(f"{count(len(document['queued']), 'learning')} promoted from it wait for your word:")
        lines += [f"  {style.bold(clean(id))}" for id in document["queued"]]
        lines.append(style.dim("`clawpy learnings keep ID` lets one hold, `clawpy learnings retract ID` does not"))
    return lines


def _chain(document: Document, style: Style) -> list[str]:
    new = sum(document["extracted"].values())
    sessions = count(len(document["extracted"]), "session")
    told = f"{style.good('written')}  {count(new, 'learning')} of {sessions}"
    done = [(name, document[name]) for name in ("promoted", "reinforced", "compacted") if document[name]]
    lines = [told] if new else []
    lines += [f"{style.good(name)}  {clean(', '.join(ids))}" for name, ids in done]
    lines += [f"{style.bold(clean(one['id']))}  {clean(one['verdict'])}" for one in document["judged"]]
    lines += [style.bad(clean(fault)) for fault in document["faults"]]
    return lines or ["nothing was to be promoted"]

"""What the verb of learnings prints."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console.cli.printing.cards import cards
from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    count,
    dim,
    good,
    paint,
    printed,
    time,
    wants,
)
from clawpy_console.fields import Field
from clawpy_console.screens.learning import entry


def learnings(document: Document) -> Lines:
    """What was learned, one learning, the scopes, or what became of one."""
    if "predictions" in document:
        yield from cards(document)
        if left := document["leftOut"]:
            yield dim(f"{count(left, 'older one')} left out: the card is full")
    elif "learning" in document:
        one = document["learning"]
        yield _head(one)
        yield from printed((*entry.learning(one, datetime.now(UTC)), *_links(one)))
    elif "scopes" in document:
        for one in document["scopes"]:
            yield from _scope(one)
        if not document["scopes"]:
            yield "Nothing learned yet."
    elif "retired" in document:
        yield from _retracted(document)
    elif "judged" in document:
        yield from _chain(document)
    elif "kept" in document:
        yield f"{good('It stays valid.')}  {_head(document['kept'])}"
    elif "promoted" in document:
        yield f"{good('It now applies in all projects.')}  {_head(document['promoted'])}"
    else:
        for one in document["learnings"]:
            yield from _listed(one)
        if not document["learnings"]:
            yield "Nothing learned here yet beyond single sessions: see `clawpy learnings scopes`"


def _listed(one: Document) -> Lines:
    if one["scope"] == "leadership":
        yield one["text"]
        yield "    " + dim(f"{one['targetAgent']} → {one['leader']}, {time(one['at'])}  {one['session']}")
        return
    told = [entry.where(one), entry.KINDS[one["kind"]][1], f"confidence {one['confidence']:.2f}"]
    sessions = {source["session"] for source in one["promotedFrom"]} - {""}
    told += [f"from {count(len(sessions), 'session')}"] if sessions else []
    told += [f"repeated {count(one['reinforcementCount'], 'time')}"] if one["reinforcementCount"] else []
    told += [one["session"]] if one["session"] else []
    yield _head(one)
    yield "    " + dim(", ".join(told))
    if one["review"]:
        yield "    " + wants(one["review"])


def _head(one: Document) -> str:
    _, tone, said = entry.STATUS[one["status"]]
    gone = f"  {paint(tone, said)}" if one["status"] != "active" else ""
    return f"{bold(one['id'])}{gone}  {one['text'].strip() or dim('forgotten')}"


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


def _scope(one: Document) -> Lines:
    told = f"{one['institutional']} how things are done, {one['tasks']} about work, {one['proxy']} about you"
    gone = f", {one['retired']} retracted" if one["retired"] else ""
    yield f"{bold(entry.scope(one['scope'], one['scopeId'], one['workspace']))}  {told}{gone}"
    yield "    " + dim(one["path"])
    yield from ("    " + bad(fault) for fault in one["faults"])


def _retracted(document: Document) -> Lines:
    yield f"{good('Retracted')}  {', '.join(document['retired'])}"
    if document["queued"]:
        yield f"{count(len(document['queued']), 'learning')} promoted from it needs your decision:"
        yield from (f"  {bold(id)}" for id in document["queued"])
        yield dim("`clawpy learnings keep ID` keeps one, `clawpy learnings retract ID` retracts it")


def _chain(document: Document) -> Lines:
    new = sum(document["extracted"].values())
    done = {name: document[key] for key, name in CHAINED.items() if document[key]}
    if new:
        yield f"{good('found')}  {count(new, 'learning')} in {count(len(document['extracted']), 'session')}"
    yield from (f"{good(name)}  {', '.join(ids)}" for name, ids in done.items())
    yield from (f"{bold(one['id'])}  {one['verdict']}" for one in document["judged"])
    yield from (bad(fault) for fault in document["faults"])
    if not (new or done or document["judged"] or document["faults"]):
        yield "Nothing was promoted."


CHAINED = {"promoted": "promoted", "reinforced": "repeated", "compacted": "merged"}
"""What became of learnings on their way up, and how it is called."""

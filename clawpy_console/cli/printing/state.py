"""What `clawpy status`, `resume`, `dnd` and `stop` print."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console import words
from clawpy_console.cli.printing.style import (
    Document,
    Lines,
    bad,
    bold,
    count,
    dim,
    good,
    how_it_ended,
    paint,
    printed,
    span,
    time,
    wants,
)
from clawpy_console.fields import Field
from clawpy_console.screens.mission.since import since
from clawpy_console.screens.safety import standing

MOST = 5
"""Sessions that ran since you were away, and that were blocked, which are listed: the last ones."""


def status(document: Document) -> Lines:
    """State, caps, what waits."""
    held = document["holds"]
    tone = "wrong" if held or document["state"] == "DISABLED" else "good"
    since = f"since {time(document['stateSince'])}, {document['cause']}"
    runs = document["engine"] != "none"
    if runs:
        yield f"{paint(tone, '●')} {bold(document['state'])} {since}"
    else:
        yield f"{paint(tone, '○')} {bold('No engine is running.')} `clawpy` or `clawpy run` starts one."
        yield f"  last state: {document['state']} {since}"
    yield from printed(map(_hold, held))
    yield from _cost(document["crossPollStatus"])
    phase = document["phase"]
    if phase["number"] > 0:
        yield f"  phase {phase['number']}, {count(phase['decisions'], 'decision')}; {phase['reason']}"
    elif phase["learning"]:
        yield f"  {phase['learning']}"
    if document.get("byItself"):
        yield f"  {document['byItself']['words']}"
    silent, coming = document["silenceSeconds"], document["nextCycleAt"]
    if runs:
        yield f"  inactive for {span(silent)}" + (f", next check {time(coming)}" if coming else "")
    yield f"  {count(document['pending'], 'card')} pending"
    gateway = document.get("gateway") or {}
    if gateway.get("url"):
        listen = f", {count(gateway['clients'], 'client')}" if gateway["clients"] else ""
        yield f"  gateway {gateway['url']}  {dim(gateway['words'] + listen)}"
    elif gateway.get("words", "off") != "off":
        yield f"  {wants('gateway')} {gateway['words']}"
    if document["keysInFile"]:
        yield f"  {wants(document['keysInFile'])}"
    yield from _since(document["since"])
    yield from (f"  running  {one['id']}  {words.one_line(one['prompt'])}" for one in document["running"])
    yield from (f"  {wants('needs you')}  {one['id']}  {one['title']}" for one in document["waiting"])
    for one in document["decisions"]:
        said = words.DECISIONS.get(one["signal"], one["signal"])
        yield dim(f"  {time(one['decidedAt'])}  {said}  {words.one_line(one['prompt'])}")


def _cost(spent: Document) -> Lines:
    """What was spent of each cap; nothing when nothing was spent this month."""
    windows = (("hour", "ThisHour", "PerHour"), ("day", "Today", "PerDay"), ("month", "ThisMonth", "PerMonth"))
    told = (f"{name} ${spent[f'cost{now}']:.2f}/{spent[f'costCap{cap}']:g}" for name, now, cap in windows)
    if spent["costThisMonth"]:
        yield f"  cost  {'  '.join(told)}"


def _hold(one: Document) -> Field:
    """A stop or a pause, and how it ends."""
    until, now = one["until"] and datetime.fromisoformat(one["until"]), datetime.now(UTC)
    left = words.duration(until - now) if until and until > now else ""
    return standing.hold(one["word"], one["reason"], time(one["since"]), f"`clawpy resume {one['word']}`", left)


def _since(then: Document) -> Lines:
    """What happened since you were last away; nothing when nothing did."""
    fields, ran, blocked = list(since(then)), then["ran"], then["blocked"]
    if not fields:
        return
    yield bold(f"since {time(then['at'])}")
    yield from printed(fields)
    if len(ran) > MOST:
        yield dim(f"    and {len(ran) - MOST} earlier ones; `clawpy work` lists them")
    for one in ran[-MOST:]:
        yield f"    {time(one['endedAt'])}  {how_it_ended(one)}  {words.one_line(one['prompt'])}"
    if len(blocked) > MOST:
        yield dim(f"    and {len(blocked) - MOST} earlier blocked ones")
    for one in blocked[-MOST:]:
        rail = f"{wants('blocked')} by {one['rail']}"
        yield f"    {time(one['createdAt'])}  {rail}  {words.one_line(one['prompt'])}: {one['reason']}"


def dnd(document: Document) -> Lines:
    """Until when nobody is disturbed."""
    if document["dndUntil"]:
        yield f"{wants('do not disturb')} until {time(document['dndUntil'])}; `clawpy dnd --off` ends it"
    else:
        yield "Do not disturb is off." + ("; quiet hours still apply" if document["quiet"] else "")


def resume(document: Document) -> Lines:
    """What ended, and how everything stands now."""
    for one in document.get("lifted", ()):
        yield f"{good('▶')} Resumed after the {standing.HOLDS[one['word']]} of {time(one['since'])}: {one['reason']}"
    yield from status(document)


def stop(document: Document) -> Lines:
    """What was stopped."""
    ended = document["stopped"]
    first = f"stopped; {count(len(ended), 'session')} ended" if ended else "stopped; nothing was running"
    if not document["reached"]:
        first = "stopped; no engine answered. A running engine will find the stop file; the next one starts stopped"
    yield f"{bad('■')} {first}"
    if document["killed"]:
        yield f"  {count(document['killed'], 'process', 'processes')} ended"
    if document["left"]:
        yield f"  {bad('still running')}: {', '.join(document['left'])}; end them with `kill -9`"
    yield "  Resume with `clawpy resume`."

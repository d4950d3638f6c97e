"""What `clawpy status`, `resume`, `dnd` and `stop` print."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from clawpy_console import words
from clawpy_console.cli.printing.style import (
    Document,
    Style,
    clean,
    count,
    how_it_ended,
    one_line,
    printed,
    span,
    time,
)
from clawpy_console.fields import Field
from clawpy_console.screens.safety import standing


def status(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """State, caps, what waits; or one line for a status bar."""
    if options.get("format") in ("short", "long"):
        return _bar(document, str(options["format"]))
    held = document["holds"]
    paint = style.bad if held or document["state"] == "DISABLED" else style.good
    since = f"since {time(document['stateSince'])}, {clean(document['cause'])}"
    runs = document["engine"] != "none"
    lines = [f"{paint('●' if runs else '○')} {style.bold(document['state'])} {since}"]
    if not runs:
        lines[0] = f"{paint('○')} {style.bold('No engine is running.')} `clawpy` or `clawpy run` starts one."
        lines.append(f"  last state: {document['state']} {since}")
    lines += printed((_hold(one) for one in held), style)
    lines += _cost(document["crossPollStatus"])
    phase = document["phase"]
    if phase["number"] > 0:
        lines.append(f"  phase {phase['number']}, {count(phase['decisions'], 'decision')}; {clean(phase['reason'])}")
    elif phase["learning"]:
        lines.append(f"  {phase['learning']}")
    if document.get("byItself"):
        lines.append(f"  {clean(document['byItself']['words'])}")
    silent, coming = document["silenceSeconds"], document["nextCycleAt"]
    if runs:
        lines.append(f"  inactive for {span(silent)}" + (f", next check {time(coming)}" if coming else ""))
    lines.append(f"  {count(document['pending'], 'card')} pending")
    gateway = document.get("gateway") or {}
    if gateway.get("url"):
        listen = f", {count(gateway['clients'], 'client')}" if gateway["clients"] else ""
        lines.append(f"  gateway {clean(gateway['url'])}  {style.dim(clean(gateway['words']) + listen)}")
    elif gateway.get("words", "off") != "off":
        lines.append(f"  {style.wants('gateway')} {clean(gateway['words'])}")
    if document["keysInFile"]:
        lines.append(f"  {style.wants(clean(document['keysInFile']))}")
    lines += _since(document["since"], style, most=5)
    lines += [f"  running  {clean(one['id'])}  {one_line(one['prompt'])}" for one in document["running"]]
    waits = style.wants("needs you")
    lines += [f"  {waits}  {clean(one['id'])}  {clean(one['title'])}" for one in document["waiting"]]
    for one in document["decisions"]:
        said = words.DECISIONS.get(one["signal"], one["signal"])
        lines.append(style.dim(f"  {time(one['decidedAt'])}  {said}  {one_line(one['prompt'])}"))
    return "\n".join(lines)


def _cost(spent: Document) -> list[str]:
    """What was spent of each cap; nothing when nothing was spent this month."""
    windows = (("hour", "ThisHour", "PerHour"), ("day", "Today", "PerDay"), ("month", "ThisMonth", "PerMonth"))
    told = [f"{name} ${spent[f'cost{now}']:.2f}/{spent[f'costCap{cap}']:g}" for name, now, cap in windows]
    return [f"  cost  {'  '.join(told)}"] if spent["costThisMonth"] else []


def _hold(one: Document) -> Field:
    """A stop or a pause, and how it ends."""
    until, now = one["until"] and datetime.fromisoformat(one["until"]), datetime.now(UTC)
    left = words.duration(until - now) if until and until > now else ""
    return standing.hold(one["word"], one["reason"], time(one["since"]), f"`clawpy resume {one['word']}`", left)


def _since(then: Document, style: Style, most: int) -> list[str]:
    """What happened since you were last away, the last `most` of each; nothing when nothing did."""
    ran, blocked, known = then["ran"], then["blocked"], then["learnt"]
    told = learnt(known["learnings"], known["facts"], known["proposed"], known["inForceByItself"])
    if not (ran or blocked or then["approved"] or then["rejected"] or told):
        return []
    itself = f" ({then['approvedByItself']} by itself)" if then["approvedByItself"] else ""
    lines = [
        f"  since {time(then['at'])}  {count(len(ran), 'session')}, {len(blocked)} blocked, "
        f"{then['approved']} approved{itself}, {then['rejected']} dismissed, ${then['spent']:.2f} spent"
    ]
    lines += [f"    learned  {told}"] if told else []
    if len(ran) > most:
        lines.append(style.dim(f"    and {len(ran) - most} earlier ones; `clawpy work` lists them"))
    for one in ran[-most:]:
        lines.append(f"    {time(one['endedAt'])}  {how_it_ended(one, style)}  {one_line(one['prompt'])}")
    if len(blocked) > most:
        lines.append(style.dim(f"    and {len(blocked) - most} earlier blocked ones"))
    for one in blocked[-most:]:
        rail = f"{style.wants('blocked')} by {clean(one['rail'])}"
        lines.append(f"    {time(one['createdAt'])}  {rail}  {one_line(one['prompt'])}: {clean(one['reason'])}")
    return lines


def learnt(learnings: int, facts: int, proposed: int, by_itself: int) -> str:
    """What was learnt, in words; "" for nothing. See `engine.views.Learnt`."""
    told = (
        (learnings, "learning promoted", "learnings promoted"),
        (facts, "fact kept", "facts kept"),
        (proposed, "candidate to review", "candidates to review"),
        (by_itself, "candidate activated without you", "candidates activated without you"),
    )
    return ", ".join(f"{number:,} {one if number == 1 else many}" for number, one, many in told if number)


def _bar(document: Document, form: str) -> str:
    if document["holds"]:
        return f"⏸ {document['holds'][0]['word']}"
    top = document["top"]
    if form == "short" or top is None:
        return f"🔮 {document['pending']}"
    age = datetime.now(UTC) - datetime.fromisoformat(top["createdAt"])
    sure = f"{top['confidence']:.0%}" if top["stated"] else top["tierWord"]
    told = f"{one_line(top['prompt'])} · {clean(top['targetChannel'])}"
    return f"🔮 {told} · {sure} · {span(age.total_seconds())}"


def dnd(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """Until when nobody is disturbed."""
    if document["dndUntil"]:
        return f"{style.wants('do not disturb')} until {time(document['dndUntil'])}; `clawpy dnd --off` ends it"
    return "Do not disturb is off." + ("; quiet hours still apply" if document["quiet"] else "")


def resume(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What ended, and how everything stands now."""
    ended = [
        f"{style.good('▶')} Resumed after the {standing.HOLDS[one['word']]} of {time(one['since'])}: "
        f"{clean(one['reason'])}"
        for one in document.get("lifted", ())
    ]
    return "\n".join([*ended, status(document, options, style)])


def stop(document: Document, options: Mapping[str, Any], style: Style) -> str:
    """What was stopped."""
    ended = document["stopped"]
    if document["reached"]:
        first = f"stopped; {count(len(ended), 'session')} ended" if ended else "stopped; nothing was running"
    else:
        first = "stopped; no engine answered: a running one finds the stop file, the next one starts stopped"
    lines = [f"{style.bad('■')} {first}"]
    if document["killed"]:
        lines.append(f"  {count(document['killed'], 'process', 'processes')} ended")
    if document["left"]:
        lines.append(
            f"  {style.bad('still running')}: {', '.join(map(clean, document['left']))}; end them by `kill -9`"
        )
    return "\n".join([*lines, "  `clawpy resume stop` to resume"])

"""The rows of the lists on mission control: cards, work, what waits for you, tasks, agents. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.mission.card import kind_of_work, tier_label
from clawpy_console.state import AppState
from clawpy_console.widgets.rows import Row
from clawpy_console.widgets.session import ended
from engine.model import Card, Result, SessionState, SessionView, Tier

WAITING_MARKS = {"change_set": "▼", "interrupted": "✗", "notification": "✗"}

RECENT = 20
"""Sessions in the list of work."""


def card_rows(cards: Sequence[Card], several: bool) -> list[Row]:
    """The pending cards: tier, workspace if there are `several`, what is proposed, the kind of work."""
    room = min(12, max((len(words.name(one.assignment.workspace)) for one in cards), default=0)) if several else 0
    return [
        Row(
            one.id,
            (words.fit(words.name(one.assignment.workspace), room) + "  " if room else "")
            + words.one_line(one.assignment.prompt),
            words.fit(tier_label(one), 7),
            kind_of_work(one),
            "grey",
            "wrong" if one.tier is Tier.BROKEN else "wants" if words.risk(one) else "faint",
        )
        for one in cards
    ]


def work_rows(known: AppState, now: datetime, width: int) -> list[Row]:
    """What runs now, then what finished, the newest first; under each when, how long, and with which result."""
    sessions = sorted(known.sessions, key=lambda one: (not one.state.over, event_time(one)), reverse=True)
    several = len({one.workspace for one in sessions}) > 1
    rows = []
    for one in sessions[:RECENT]:
        place = f"{words.name(one.workspace)}: " if several else ""
        mark, style, _ = ended(one)
        ink = "grey" if one.state.over else "ink"
        rows.append(Row(one.id, place + words.one_line(one.prompt), mark, "", ink, style))
        rows += _below(result_words(one, now), width)
    return rows


def event_time(session: SessionView) -> datetime:
    """When the last thing happened to it: discarded, ended, started, made."""
    return session.discarded_at or session.ended_at or session.started_at or session.created_at


def result_words(session: SessionView, now: datetime) -> str:
    """`14:08 · 58s · 3 files changed`: when it ended, how long it ran and how it ended, as far as that is known."""
    took = ""
    if session.started_at and session.state is not SessionState.INTERRUPTED:  # nobody saw when that one ended
        took = words.duration((session.ended_at or now) - session.started_at)
    said = ended(session)[2]
    detail = words.one_line(session.error or session.summary)
    if session.result is Result.SUCCEEDED and session.discarded_at is None:
        said, detail = detail or "finished", ""
    elif session.state is SessionState.SUCCEEDED:
        detail = ""  # the word says it: discarded, or how many tests failed
    said = f"{said}: {detail}" if detail else said
    at = words.moment(event_time(session), now) if session.state.over else ""
    return " · ".join(part for part in (at, took, said) if part)


def live_title(session: SessionView | None, now: datetime) -> str:
    """The heading over the output of `session`."""
    if session is None:
        return "LIVE"
    about = f"{words.name(session.workspace)} · {words.one_line(session.prompt)}"
    return f"LAST OUTPUT  {words.moment(event_time(session), now)}  {about}" if session.state.over else f"LIVE  {about}"


def waiting_rows(known: AppState, now: datetime, width: int) -> list[Row]:
    """What waits for you, with how long it has waited; a long title goes on below."""
    rows = []
    for one in known.waiting:
        mark, age = WAITING_MARKS.get(one.kind, "▲"), words.span(now - one.since)
        first, *_ = Content(title := words.one_line(one.title)).wrap(max(8, width - 4 - len(age)))
        rows.append(Row(one.id, first.plain, mark, age, "ink", "wants", "wants"))
        rows += _below(title[len(first.plain) :].strip(), width)
    return rows


def _below(text: str, width: int) -> list[Row]:
    """`text` in rows of `width` cells that the cursor passes over, three at most."""
    found = Content(text).wrap(max(8, width - 4)) if text else []
    return [Row("", f"   {line.plain.rstrip()}") for line in found[:3]]


def task_rows(known: AppState, now: datetime, width: int) -> list[Row]:
    """Open tasks that no session runs: those are in the list of work."""
    found = [one for one in known.tasks if one.state == "open" and not one.session_id]
    return [Row(one.id, words.one_line(one.title), "○") for one in found]


def agent_rows(known: AppState, now: datetime, width: int) -> list[Row]:
    """Agents whose folder is broken, and those of a channel that is served, by that channel, with what serves it."""
    rows = [Row(one.id, one.id, "✗", "broken", "wrong", "wrong", "wrong") for one in known.agents if one.broken]
    busy = {one.channel for one in known.running if one.flow is None}
    for channel, by in known.served:
        for one in known.agents:
            if channel in one.channels and not one.broken:
                used = f"{by}  {words.tokens(one.tokens)}" if one.tokens else by
                mark, style = ("●", "accent") if channel in busy else ("○", "faint")
                rows.append(Row(one.id, channel, mark, used, "grey", style))
    return rows

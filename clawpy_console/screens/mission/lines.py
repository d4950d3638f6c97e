"""The rows of the lists on mission control: cards, work, what waits for you, tasks, agents. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.mission.card import kind_of_work, tier_label
from clawpy_console.state import AppState
from clawpy_console.widgets.rows import Row
from clawpy_console.widgets.session import session_outcome
from engine.model import Card, Result, SessionState, SessionView, Tier

WAITING_MARKS = {"change_set": "▼", "interrupted": "✗", "notification": "✗"}

MAX_SESSIONS = 20
"""Sessions in the list of work."""


def card_rows(cards: Sequence[Card], several: bool) -> list[Row]:
    """The pending cards: tier, workspace if there are `several`, what is proposed, the kind of work."""
    room = (
        min(12, max((len(words.workspace_name(card.assignment.workspace)) for card in cards), default=0))
        if several
        else 0
    )
    return [
        Row(
            card.id,
            (words.fit_to_width(words.workspace_name(card.assignment.workspace), room) + "  " if room else "")
            + words.one_line(card.assignment.prompt),
            words.fit_to_width(tier_label(card), 7),
            kind_of_work(card),
            "grey",
            "wrong" if card.tier is Tier.BROKEN else "wants" if words.approval_risk(card) else "faint",
        )
        for card in cards
    ]


def work_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """What runs now, then what finished, the newest first; under each when, how long, and with which result."""
    sessions = sorted(state.sessions, key=lambda session: (not session.state.over, event_time(session)), reverse=True)
    several = len({session.workspace for session in sessions}) > 1
    rows = []
    for session in sessions[:MAX_SESSIONS]:
        place = f"{words.workspace_name(session.workspace)}: " if several else ""
        mark, style, _ = session_outcome(session)
        ink = "grey" if session.state.over else "ink"
        rows.append(Row(session.id, place + words.one_line(session.prompt), mark, "", ink, style))
        rows += _below(result_words(session, now), width)
    return rows


def event_time(session: SessionView) -> datetime:
    """When the last thing happened to it: discarded, ended, started, made."""
    return session.discarded_at or session.ended_at or session.started_at or session.created_at


def result_words(session: SessionView, now: datetime) -> str:
    """`14:08 · 58s · 3 files changed`: when it ended, how long it ran and how it ended, as far as that is known."""
    took = ""
    if session.started_at and session.state is not SessionState.INTERRUPTED:  # nobody saw when that one ended
        took = words.duration((session.ended_at or now) - session.started_at)
    label = session_outcome(session)[2]
    detail = words.one_line(session.error or session.summary)
    if session.result is Result.SUCCEEDED and session.discarded_at is None:
        label, detail = detail or "finished", ""
    elif session.discarded_at or (session.has_problem and session.flow in words.TEST_RUNS):
        detail = ""  # the word says it: discarded, or how many tests failed
    label = f"{label}: {detail}" if detail else label
    at = words.moment(event_time(session), now) if session.state.over else ""
    return " · ".join(part for part in (at, took, label) if part)


def live_title(session: SessionView | None, now: datetime) -> str:
    """The heading over the output of `session`."""
    if session is None:
        return "LIVE"
    about = f"{words.workspace_name(session.workspace)} · {words.one_line(session.prompt)}"
    return f"LAST OUTPUT  {words.moment(event_time(session), now)}  {about}" if session.state.over else f"LIVE  {about}"


def waiting_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """What waits for you, with how long it has waited; a long title goes on below."""
    rows = []
    for waiting in state.waiting:
        mark, age = WAITING_MARKS.get(waiting.kind, "▲"), words.span(now - waiting.since)
        first, *_ = Content(title := words.one_line(waiting.title)).wrap(max(8, width - 4 - len(age)))
        rows.append(Row(waiting.id, first.plain, mark, age, "ink", "wants", "wants"))
        rows += _below(title[len(first.plain) :].strip(), width)
    return rows


def _below(text: str, width: int) -> list[Row]:
    """`text` in rows of `width` cells that the cursor passes over, three at most."""
    lines = Content(text).wrap(max(8, width - 4)) if text else []
    return [Row("", f"   {line.plain.rstrip()}") for line in lines[:3]]


def task_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """Open tasks that no session runs: those are in the list of work."""
    tasks = [task for task in state.tasks if task.state == "open" and not task.session_id]
    return [Row(item.id, words.one_line(item.title), "○") for item in tasks]


def agent_rows(state: AppState, now: datetime, width: int) -> list[Row]:
    """Agents whose folder is broken, and those of a channel that is served, by that channel, with what serves it."""
    rows = [Row(agent.id, agent.id, "✗", "broken", "wrong", "wrong", "wrong") for agent in state.agents if agent.broken]
    busy = {session.channel for session in state.running if session.flow is None}
    for channel, by in state.served:
        for agent in state.agents:
            if channel in agent.channels and not agent.broken:
                used = f"{by}  {words.tokens(agent.tokens)}" if agent.tokens else by
                mark, style = ("●", "accent") if channel in busy else ("○", "faint")
                rows.append(Row(agent.id, channel, mark, used, "grey", style))
    return rows

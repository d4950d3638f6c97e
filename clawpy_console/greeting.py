"""A few lines above the stack: what happened while nobody looked, and the three optional steps of a first run."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import words
from engine.values import DecidedBy, SessionState, Status

if TYPE_CHECKING:
    from engine import Engine

AGENTS = ("claude", "codex", "gemini", "opencode", "qwen", "vibe")


def first_run() -> list[Content]:
    """The first-run line: three optional steps. Any key hides it for good."""
    return [
        Content.styled("Cards about this repository come by themselves.", "bold $ink"),
        Content.assemble(
            ("if you like  ", "$faint"),
            "--workspace DIR adds folders · an agent or a key can come later · autonomy stays off  ",
            ("esc", "$accent"),
            (" hides this", "$faint"),
        ),
    ]


def found_agents() -> list[str]:
    """Coding agents that are installed on this machine. Blocking: call it in a thread."""
    return [name for name in AGENTS if shutil.which(name)]


def since_then(engine: Engine, since: datetime, now: datetime) -> list[Content]:
    """Five lines: done, approved, rejected, learnt, spent since `since`; none when nothing happened. Blocking."""
    cards = [one for one in engine.cards.recent(limit=500) if one.decided_at and one.decided_at > since]
    sessions = [one for one in engine.sessions.list(limit=500) if one.ended_at and one.ended_at > since]
    approved = [one for one in cards if one.status in (Status.CONFIRMED, Status.EXECUTED)]
    rejected = [one for one in cards if one.status is Status.REJECTED]
    if not cards and not sessions:
        return []
    well = sum(1 for one in sessions if one.state is SessionState.SUCCEEDED)
    itself = sum(1 for one in approved if one.decided_by is DecidedBy.AUTONOMY)
    decisions = sum(1 for one in (*approved, *rejected) if one.decided_by is not DecidedBy.AUTONOMY)

    def line(label: str, text: str) -> Content:
        return Content.assemble((f"{label:<9}", "$faint"), (text, "$ink"))

    bad = len(sessions) - well
    return [
        Content.styled(f"While you were away, {words.span(now - since)}", "bold $accent"),
        line("done", f"{words.count(len(sessions), 'session')}" + (f", {bad} not well" if bad else "")),
        line("approved", f"{len(approved)}" + (f", {itself} by itself" if itself else "")),
        line("rejected", f"{len(rejected)}"),
        line("learnt", f"from {words.count(decisions, 'decision')}" if decisions else "nothing new"),
        line("spent", words.money(sum(one.cost for one in sessions))),
    ]

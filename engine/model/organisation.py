"""Agents and their tasks (SPEC 1.1)."""

from __future__ import annotations

from datetime import datetime

from engine.frozen import frozen


@frozen
class Task:
    """One entry of the task board. state: open, running, done, failed. It needs other tasks done first: `needs` are all
    of them, `waits_for` those that are not done yet."""

    id: str
    title: str
    state: str
    channel: str
    workspace: str
    source: str
    created_at: datetime
    updated_at: datetime
    session_id: str | None = None
    note: str = ""
    needs: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()


@frozen
class AgentActivity:
    """The current work of an agent, and the totals of all its sessions."""

    state: str = "idle"
    """"idle", "queued", "running", "waiting" (for the operator's word), "broken" or "retired"."""
    current_tokens: int = 0
    """The tokens of its current work."""
    sessions: int = 0
    total_tokens: int = 0
    total_cost: int = 0
    """In micro-dollars."""


@frozen
class AgentView:
    """An agent as its folder says, and its activity. `broken` holds the reason when the folder cannot be read."""

    id: str
    title: str
    reports_to: str
    tier: int
    tier_rule: str
    domain: str
    channels: tuple[str, ...]
    activity: AgentActivity = AgentActivity()
    broken: str = ""
    archetype: str = ""

"""Agents and their tasks (SPEC 1.1), and the layers of memory and their state (SPEC 4), which the first frame needs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen

# -- layers of memory


class Layer(StrEnum):
    """The seven layers (SPEC 4.1-4.7)."""

    MARKDOWN = "A"
    LEDGER = "B"
    VECTORS = "C"
    CAPTURE = "D"
    CONTEXT = "E"
    GRAPH = "F"
    PARA = "G"


@frozen
class LayerState:
    """The state of a layer: ready, building, degraded or off. `progress` is from 0 to 1, `fresh_at` the time of its
    newest entry."""

    layer: Layer
    count: int
    fresh_at: datetime | None
    state: str
    words: str = ""
    progress: float = 1.0


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
class AgentView:
    """A member of the hierarchy as its folder says. `broken` holds the reason when the folder cannot be read.

    `state` is "idle", "queued", "running", "waiting" (for the operator's word), "broken" or "retired". `tokens` are
    those of what it does now; `used` those of all its `sessions`, which cost `spent` micro-dollars.
    """

    id: str
    title: str
    reports_to: str
    tier: int
    tier_rule: str
    domain: str
    channels: tuple[str, ...]
    state: str = "idle"
    tokens: int = 0
    broken: str = ""
    archetype: str = ""
    sessions: int = 0
    used: int = 0
    spent: int = 0


@frozen
class Doing:
    """What an agent does now, and what all its sessions took: see `AgentView`."""

    state: str = "idle"
    tokens: int = 0
    sessions: int = 0
    used: int = 0
    spent: int = 0

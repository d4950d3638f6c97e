"""Tasks that an agent's heartbeat made due (SPEC 4.1): each goes the ordinary way, as a card on that agent's channel.

Words that name a flow become it; others are prose for whoever takes prose, and the card says so when nobody does.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from engine.prediction.collectors.time_of_day import Activity
from engine.prediction.context import WorkspaceContext
from engine.prediction.flow_names import ALIASES, named_flow
from engine.prediction.templates.history import day_begin
from engine.prediction.templates.making import offer
from engine.prediction.words import moment
from engine.values import Proposal, Task

HEARTBEAT = "heartbeat"
"""The source of such tasks, and how the kinds of their cards begin."""


def is_heartbeat(kind: str) -> bool:
    """Whether cards of this kind come from a heartbeat."""
    return kind.startswith(f"{HEARTBEAT}-")


def heartbeat(context: WorkspaceContext) -> list[Proposal]:
    """A card for each open task of a heartbeat that is about this workspace, the oldest first."""
    due = [
        task
        for task in context.tasks
        if (task.source, task.state, task.workspace) == (HEARTBEAT, "open", context.workspace)
    ]
    return [_card(context, task) for task in sorted(due, key=lambda task: (task.created_at, task.id))]


def _card(context: WorkspaceContext, task: Task) -> Proposal:
    named = named_flow(task.title, (*ALIASES, *context.learned))
    flow = named[0] if named and not named[1] else None
    parameters: dict[str, Any] = {"since": day_begin(context.local).isoformat()} if flow == "summarise_day" else {}
    proposal = offer(
        context,
        HEARTBEAT,
        task.title,
        f"Due since {moment(task.created_at, context.local)}, by the heartbeat of its agent.",
        subject=task.id,
        facts={"task": task.id},
        parameters=parameters,
        activities=(Activity.REPAIR,),
        strength=0.0,
        evidence="not about git",
        channel=task.channel,
        evidence_at=task.created_at,
        usual_hours=12,
        about=task.title,
    )
    # Each item earns trust for itself: approving one every morning lets no other run by itself (SPEC 2.5).
    kind = f"{HEARTBEAT}-{hashlib.sha256(task.title.encode()).hexdigest()[:8]}"
    return replace(proposal, kind=kind, flow=flow, channel=task.channel, task_id=task.id)

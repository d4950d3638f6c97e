"""Tasks that an agent's heartbeat made due (SPEC 4.1): each goes the ordinary way, as a card on that agent's channel.

Words that name a flow become it; others are prose for whoever takes prose, and the card says so when nobody does.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from engine.execution.runners.flow_names import ALIASES, named_flow
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import HEARTBEAT
from engine.prediction.templates.history import day_begin
from engine.prediction.templates.making import offer
from engine.values import Proposal, Task
from engine.values.words import moment


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
    # Each item earns trust for itself: approving one every morning lets no other run by itself (SPEC 2.5).
    kind = f"{HEARTBEAT}-{hashlib.sha256(task.title.encode()).hexdigest()[:8]}"
    proposal = offer(
        context,
        kind,
        task.title,
        f"Due since {moment(task.created_at, context.local)}, by the heartbeat of its agent.",
        subject=task.id,
        facts={"task": task.id},
        parameters=parameters,
        evidence_at=task.created_at,
        about=task.title,
    )
    return replace(proposal, flow=flow, channel=task.channel, task_id=task.id)

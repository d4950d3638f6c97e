"""Tasks of the board as cards (SPEC 2.1, 4.1): what a heartbeat made due; what is open, left alone, or holds up others.

Words that name a flow become it; others are prose for whoever takes prose, and the card says so when nobody does.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from engine.execution.runners.flow_names import ALIASES, named_flow
from engine.model import Proposal, Task
from engine.model.words import moment, plain, span
from engine.prediction.collectors.tasks import STALE, open_tasks
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import BLOCKED_TASK, HEARTBEAT, KINDS, OPEN_TASK, RUN, STALE_TASK
from engine.prediction.tasks import HEARTBEAT as DUE
from engine.prediction.tasks import ORDER
from engine.prediction.templates.history import implied
from engine.prediction.templates.making import (
    Offer,
    proposed,
)

DUE_SOURCES = (DUE, ORDER)

MOST_TASKS = 3
"""So many tasks of the board are offered at once, the one left alone longest first."""


def heartbeat(context: WorkspaceContext) -> list[Proposal]:
    """A card for each open task of a heartbeat that is about this workspace, the oldest first."""
    due = [
        task
        for task in context.tasks
        if task.source in DUE_SOURCES and task.state == "open" and _is_here(context, task)
    ]
    return [_due(context, task) for task in sorted(due, key=lambda task: (task.created_at, task.id))]


def open_task(context: WorkspaceContext) -> list[Proposal]:
    """A card for each of the first `MOST_TASKS` tasks that can be begun: those of a week, then those that others wait
    for, then the rest, each the one left alone longest first."""
    found = []
    for task in open_tasks(context.tasks):
        if task.source in DUE_SOURCES or not _is_here(context, task):
            continue
        waiting = [one for one in context.tasks if one.state == "open" and task.id in one.waits_for]
        age = context.now - task.updated_at
        if age >= STALE:
            kind, why = STALE_TASK, f"Nobody has touched it for {span(age)}."
        elif waiting:
            kind, why = BLOCKED_TASK, f"“{plain(waiting[0].title, 60)}” waits for it."
        else:
            kind, why = OPEN_TASK, f"On the task board for {span(context.now - task.created_at)}."
        if task.note:
            why += f" The last try: {plain(task.note, 120)}."
        found.append((kind, why, task))
    found.sort(key=lambda one: KINDS[one[0]].place)
    return [_card(context, kind, why, task) for kind, why, task in found[:MOST_TASKS]]


def _is_here(context: WorkspaceContext, task: Task) -> bool:
    """A task of no workspace is offered in the first one alone."""
    return task.workspace == context.workspace or (not task.workspace and context.first)


def _due(context: WorkspaceContext, task: Task) -> Proposal:
    # Each item earns trust for itself: approving one every morning lets no other run by itself (SPEC 2.5).
    kind = f"{HEARTBEAT}-{hashlib.sha256(task.title.encode()).hexdigest()[:8]}"
    orders = task.source == ORDER
    why = f"Due since {moment(task.created_at, context.local)}, by the heartbeat of its agent"
    return _card(context, kind, f"{why}{'; you marked it to run' if orders else ''}.", task, run=orders)


def _card(context: WorkspaceContext, kind: str, why: str, task: Task, *, run: bool = False) -> Proposal:
    named = named_flow(task.title, (*ALIASES, *context.learned))
    flow = named[0] if named and not named[1] else None
    offer = Offer(
        task.title,
        why,
        subject=task.id,
        facts={"task": task.id} | ({RUN: True} if run else {}),
        parameters=implied(flow, context.local),
        evidence_at=task.updated_at,
        about=task.title,
    )
    proposal = proposed(context, kind, offer)
    return replace(proposal, flow=flow, channel=task.channel or proposal.channel, task_id=task.id)

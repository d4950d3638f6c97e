"""Cards for what was written down or done before: open tasks, of heartbeats and of the board, and learned flows.

Unlike those of other templates, the prompts of tasks are texts of people or agents, and only some become a flow
(`find_named_flow`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from engine.execution.runners.flows import ALIASES, find_named_flow
from engine.frozen import frozen
from engine.model import Proposal, Task, TaskState
from engine.prediction import BLOCKING_TASK, HEARTBEAT_PREFIX, KINDS, OPEN_TASK, RUN_FACT, STALE_TASK
from engine.prediction.context import WorkspaceContext
from engine.prediction.signals import FULLY_STALE, list_open_tasks
from engine.prediction.tasks import HEARTBEAT, HEARTBEAT_ORDER
from engine.prediction.templates.offers import (
    Offer,
    find_last_change_time,
    make_default_parameters,
    make_proposal,
    template,
)
from engine.text import hex_hash, plain
from engine.wording import count, moment

DUE_SOURCES = (HEARTBEAT, HEARTBEAT_ORDER)
"""Sources of tasks that `heartbeat` offers."""

MAX_TASKS = 3
"""Maximum number of tasks of the board that are offered at once."""


@template
def heartbeat(context: WorkspaceContext) -> Iterator[Offer]:
    """A card for each open task of a heartbeat that is about this workspace, the oldest first."""
    for task in sorted(context.tasks, key=lambda task: (task.created_at, task.id)):
        if task.source not in DUE_SOURCES or task.state != TaskState.OPEN or not _belongs_to_workspace(context, task):
            continue
        # Each item is a kind of its own: approving one item every morning lets no other one run by itself (SPEC 2.5).
        kind = f"{HEARTBEAT_PREFIX}-{hex_hash(task.title, 8)}"
        is_ordered = task.source == HEARTBEAT_ORDER
        order = "; you marked it to run" if is_ordered else ""
        why = f"Due since {moment(task.created_at, context.local)}, by the heartbeat of its agent{order}."
        yield _make_task_offer(context, kind, why, task, runs_by_itself=is_ordered)


@template
def open_task(context: WorkspaceContext) -> Iterator[Offer]:
    """A card for each of the first `MAX_TASKS` tasks that can be begun: first tasks that nobody touched for a week,
    then those that others wait for, then the rest. Within each group, the one untouched for longest comes first."""
    candidates = []
    for task in list_open_tasks(context.tasks):
        if task.source in DUE_SOURCES or not _belongs_to_workspace(context, task):
            continue
        waiting = [other for other in context.tasks if other.state == TaskState.OPEN and task.id in other.waits_for]
        age = context.now - task.updated_at
        if age >= FULLY_STALE:
            kind, why = STALE_TASK, f"Nobody has touched it since {moment(task.updated_at, context.local)}."
        elif waiting:
            kind, why = BLOCKING_TASK, f"“{plain(waiting[0].title, 60)}” waits for it."
        else:
            kind, why = OPEN_TASK, f"On the task board since {moment(task.created_at, context.local)}."
        if task.note:
            why += f" The last try: {plain(task.note, 120)}."
        candidates.append((kind, why, task))
    candidates.sort(key=lambda candidate: KINDS[candidate[0]].place)
    return (_make_task_offer(context, *candidate) for candidate in candidates[:MAX_TASKS])


def _belongs_to_workspace(context: WorkspaceContext, task: Task) -> bool:
    """Whether a task belongs to this workspace. A task without a workspace belongs to the first one."""
    return task.workspace == context.workspace or (not task.workspace and context.is_first)


def _make_task_offer(
    context: WorkspaceContext, kind: str, why: str, task: Task, *, runs_by_itself: bool = False
) -> Offer:
    """The offer of a task, which the operator may have ordered to run by itself."""
    flow_and_parameters = find_named_flow(task.title, (*ALIASES, *context.learned_flows), context.workspace)
    flow = flow_and_parameters[0] if flow_and_parameters and not flow_and_parameters[1] else None
    return Offer(
        task.title,
        why,
        subject=task.id,
        facts={"task": task.id} | ({RUN_FACT: True} if runs_by_itself else {}),
        parameters=make_default_parameters(flow, context.local),
        evidence_at=task.updated_at,
        kind=kind,
        flow=flow,
        channel=task.channel,
        task_id=task.id,
    )


@frozen
class LearnedFlowOffer:
    """A learned flow that is active, as a card offers it."""

    name: str
    prompt: str
    """What the flow runs."""
    since: datetime
    """When it was activated."""
    workspace: str = ""
    """"" for all workspaces."""


def propose_learned_flows(context: WorkspaceContext, flows: Iterable[LearnedFlowOffer]) -> list[Proposal]:
    """A card for each learned flow that has not run since the last commit or the last change of a file."""
    git = context.git
    if git is None or not git.head or git.operation:
        return []
    return [
        proposal
        for flow in flows
        if flow.workspace in ("", context.workspace) and (proposal := _propose_learned_flow(context, flow)) is not None
    ]


def _propose_learned_flow(context: WorkspaceContext, flow: LearnedFlowOffer) -> Proposal | None:
    """The card for a learned flow, None if it ran since the last change."""
    git = context.repository
    changed = find_last_change_time(git) or flow.since
    began = [session.created_at for session in context.sessions if session.flow == flow.name]
    last = max(began, default=None)
    if last is not None and last >= changed:
        return None
    dirty = len(git.files) + git.more_files
    news = f"There {'are' if dirty > 1 else 'is'} {count(dirty, 'uncommitted file') if dirty else 'a new commit'}."
    ran = f"It ran last {moment(last, context.local)}. {news}" if last else "It was learned, and has not run here yet."
    offer = Offer(
        flow.prompt,
        f"{ran} Agents ran these commands one after the other again and again.",
        subject=flow.name,
        facts={"flow": flow.name, "head": git.head, "dirty": bool(dirty)},
        evidence_at=changed,
    )
    return make_proposal(context, flow.name, offer)

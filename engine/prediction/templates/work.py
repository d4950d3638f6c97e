"""Cards for work that comes from elsewhere: open tasks, learned flows, findings of a flow that an agent may fix, and a
disk that is nearly full.

Unlike other templates they propose what somebody ordered or wrote down, so their prompts are texts of people, and only
some become a flow (`find_named_flow`). A prompt that is made here for an agent has names only, see `AFTER_FLOW`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from engine.execution.runners.flow_runner import ALIASES, find_named_flow
from engine.execution.runners.flows.testing import format_line_ranges
from engine.frozen import frozen
from engine.model import Proposal, SessionState, SessionView, Task, TaskState, Tier
from engine.model.base import hex_hash
from engine.model.text import count, moment, plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import BLOCKED_TASK, HEARTBEAT_PREFIX, KINDS, OPEN_TASK, RUN_FACT, STALE_TASK
from engine.prediction.signals import FULLY_STALE, list_open_tasks
from engine.prediction.tasks import HEARTBEAT, HEARTBEAT_ORDER
from engine.prediction.templates.offers import (
    Offer,
    find_last_change_time,
    find_last_success,
    make_default_parameters,
    make_proposal,
    select_usable_paths,
    template,
)

DUE_SOURCES = (HEARTBEAT, HEARTBEAT_ORDER)
"""Sources of tasks that `heartbeat` offers."""

MAX_TASKS = 3
"""Maximum number of tasks of the board that are offered at once."""

MIN_FREE_BYTES = 100_000_000
"""Bytes that could be freed, below which there is no card."""

MAX_FREE_RATIO = 10
"""There is no card if the disk has more than this many times as many free bytes as could be freed."""


@template
def heartbeat(context: WorkspaceContext) -> Iterator[Offer]:
    """A card for each open task of a heartbeat that is about this workspace, the oldest first."""
    for task in sorted(context.tasks, key=lambda task: (task.created_at, task.id)):
        if task.source not in DUE_SOURCES or task.state != TaskState.OPEN or not _is_here(context, task):
            continue
        # Each item is a kind of its own: approving one item every morning lets no other one run by itself (SPEC 2.5).
        kind = f"{HEARTBEAT_PREFIX}-{hex_hash(task.title, 8)}"
        orders = task.source == HEARTBEAT_ORDER
        why = f"Due since {moment(task.created_at, context.local)}, by the heartbeat of its agent"
        yield _make_task_offer(context, kind, f"{why}{'; you marked it to run' if orders else ''}.", task, run=orders)


@template
def open_task(context: WorkspaceContext) -> Iterator[Offer]:
    """A card for each of the first `MAX_TASKS` tasks that can be begun: first tasks that nobody touched for a week,
    then those that others wait for, then the rest. Within each group, the one untouched for longest comes first."""
    candidates = []
    for task in list_open_tasks(context.tasks):
        if task.source in DUE_SOURCES or not _is_here(context, task):
            continue
        waiting = [other for other in context.tasks if other.state == TaskState.OPEN and task.id in other.waits_for]
        age = context.now - task.updated_at
        if age >= FULLY_STALE:
            kind, why = STALE_TASK, f"Nobody has touched it since {moment(task.updated_at, context.local)}."
        elif waiting:
            kind, why = BLOCKED_TASK, f"“{plain(waiting[0].title, 60)}” waits for it."
        else:
            kind, why = OPEN_TASK, f"On the task board since {moment(task.created_at, context.local)}."
        if task.note:
            why += f" The last try: {plain(task.note, 120)}."
        candidates.append((kind, why, task))
    candidates.sort(key=lambda candidate: KINDS[candidate[0]].place)
    return (_make_task_offer(context, *candidate) for candidate in candidates[:MAX_TASKS])


def _is_here(context: WorkspaceContext, task: Task) -> bool:
    """Whether a task belongs to this workspace. A task without a workspace belongs to the first one."""
    return task.workspace == context.workspace or (not task.workspace and context.is_first)


def _make_task_offer(context: WorkspaceContext, kind: str, why: str, task: Task, *, run: bool = False) -> Offer:
    """The offer of a task. `run` says that the operator ordered it to run by itself."""
    flow_and_parameters = find_named_flow(task.title, (*ALIASES, *context.learned_flows), context.workspace)
    flow = flow_and_parameters[0] if flow_and_parameters and not flow_and_parameters[1] else None
    return Offer(
        task.title,
        why,
        subject=task.id,
        facts={"task": task.id} | ({RUN_FACT: True} if run else {}),
        parameters=make_default_parameters(flow, context.local),
        evidence_at=task.updated_at,
        kind=kind,
        flow=flow,
        channel=task.channel,
        task_id=task.id,
    )


@frozen
class LearnedWork:
    """A learned flow that is active."""

    name: str
    prompt: str
    """What the flow runs."""
    since: datetime
    """When it was activated."""
    workspace: str = ""
    """"" for all workspaces."""


def propose_learned(context: WorkspaceContext, works: Iterable[LearnedWork]) -> list[Proposal]:
    """A card for each learned flow that has not run since the last commit or the last change of a file."""
    git = context.git
    if git is None or not git.head or git.operation:
        return []
    return [
        proposal
        for work in works
        if work.workspace in ("", context.workspace) and (proposal := _propose_work(context, work)) is not None
    ]


def _propose_work(context: WorkspaceContext, work: LearnedWork) -> Proposal | None:
    """The card for a learned flow, None if it ran since the last change."""
    git = context.repository
    changed = find_last_change_time(git) or work.since
    began = [session.created_at for session in context.sessions if session.flow == work.name]
    last = max(began, default=None)
    if last is not None and last >= changed:
        return None
    dirty = len(git.files) + git.more_files
    news = f"There is {count(dirty, 'uncommitted file') if dirty else 'a new commit'}."
    ran = f"It ran last {moment(last, context.local)}. {news}" if last else "It was learned, and has not run here yet."
    offer = Offer(
        work.prompt,
        f"{ran} Agents ran these commands one after the other again and again.",
        subject=work.name,
        facts={"flow": work.name, "head": git.head, "dirty": bool(dirty)},
        evidence_at=changed,
    )
    return make_proposal(context, work.name, offer)


MAX_NAMES = 10
"""Maximum number of names in a prompt for an agent."""


def _quote_names(names: Iterable[str]) -> str:
    """Names of files, tests or branches in backquotes, "" without any. The quotes keep a name that reads like an order
    from being taken for one."""
    fit = [name for name in select_usable_paths(names) if "`" not in name]
    return ", ".join(f"`{plain(name, 120)}`" for name in fit[:MAX_NAMES])


# The prompts of `AFTER_FLOW`: what an agent shall do after a session, "" if nothing is left to do.


def _describe_conflicts(context: WorkspaceContext, session: SessionView) -> str:
    git = context.repository
    branches = {branch.tip: branch.name for branch in git.branches} | {git.head: git.branch}
    sides = [_quote_names([branches.get(session.facts.get(side, ""), "")]) for side in ("source", "target")]
    files = _quote_names(session.facts.get("conflicts", ()))
    if not files or not all(sides):
        return ""
    return f"Merge {' into '.join(sides)} and resolve the conflicts in {files}; keep what both sides meant"


def _describe_unfinished(context: WorkspaceContext, session: SessionView) -> str:
    files = _quote_names(file.path for file in context.repository.files if file.conflicted)
    return f"Resolve the conflicts in {files}; keep what both sides meant" if files else ""


def _describe_lint(context: WorkspaceContext, session: SessionView) -> str:
    """Only if the linter cannot fix its findings itself, or `fix_lint` changed nothing."""
    last = find_last_success(context, session.project, "lint")
    if last is None or session.facts.get("changed") or session.facts.get("next") == "fix_lint":
        return ""
    files = _quote_names(item["path"] for item in last.facts.get("findings", ()))
    return f"Fix what the linter found and cannot fix itself in {files}, changing no behaviour" if files else ""


def _describe_uncovered(context: WorkspaceContext, session: SessionView) -> str:
    uncovered = session.facts.get("uncovered", {})
    files = [
        f"{name} {format_line_ranges(uncovered[path])}" for path in sorted(uncovered) if (name := _quote_names([path]))
    ]
    return f"Write tests for the changed lines that none runs: {', '.join(files[:5])}" if files else ""


def _describe_failed_tests(context: WorkspaceContext, session: SessionView) -> str:
    last = context.runs[0] if context.runs else None
    if last is None or last.session_id != session.id:
        return ""
    if not last.check.failing and (last.check.failed or last.check.errors):
        return "Make the whole suite pass, by the cause and not by the tests"
    tests = _quote_names(last.check.failing[:5])
    return f"Make {tests} pass, by the cause and not by the test" if tests else ""


AFTER_FLOW: Mapping[str, tuple[Tier, Callable[[WorkspaceContext, SessionView], str]]] = {
    "rehearse_merge": (Tier.BLOCKS, _describe_conflicts),
    "unfinished_operation": (Tier.BLOCKS, _describe_unfinished),
    "run_tests": (Tier.BLOCKS, _describe_failed_tests),
    "narrow_failures": (Tier.BLOCKS, _describe_failed_tests),
    "bisect": (Tier.BLOCKS, _describe_failed_tests),
    "lint": (Tier.CHECK, _describe_lint),
    "fix_lint": (Tier.CHECK, _describe_lint),
    "uncovered_lines": (Tier.CHECK, _describe_uncovered),
}
"""For each flow whose findings an agent may fix: the tier of the card, and the function that writes the agent's prompt,
"" if there is nothing to fix. A prompt contains names only. It quotes no text of a commit, a test or a file, because an
agent could take that text for an order."""


def _may_need_agent(session: SessionView) -> bool:
    """Whether an agent may fix what the session found. Several failing tests are grouped by cause before."""
    if session.flow == "run_tests":
        return session.check is not None and len(session.check.faults) == 1
    return session.flow in AFTER_FLOW


@template
def let_agent_fix(context: WorkspaceContext) -> Iterator[Offer]:
    """The newest of these flows had findings, and they still hold: nothing was written or committed since it began."""
    ended = (session for session in context.sessions if session.state.over and _may_need_agent(session))
    session = next(ended, None)
    if not context.prompt_runner or session is None or session.state is not SessionState.SUCCEEDED:
        return
    changed = find_last_change_time(context.repository)
    tier, describe = AFTER_FLOW[session.flow or ""]
    prompt = describe(context, session)
    if not prompt or (changed is not None and changed > session.created_at):
        return
    yield Offer(
        prompt,
        f"{plain(context.prompt_runner, 40)} can do what no flow can: {plain(session.summary, 120)}.",
        subject=" ".join([session.flow or "", *prompt.split("`")[1::2]]),
        facts={"session": session.id, "after": session.flow},
        evidence_at=session.ended_at,
        tier=tier,
        flow=None,
    )


@template
def reclaim_space(context: WorkspaceContext) -> Iterator[Offer]:
    """The disk with the home is nearly full, and clawpy can free a good share of what is left."""
    disk = context.disk
    if disk is None or disk.ours < MIN_FREE_BYTES or disk.ours * MAX_FREE_RATIO < disk.free:
        return
    free, ours = _format_gigabytes(disk.free), _format_gigabytes(disk.ours)
    yield Offer(
        f"Remove {ours} of old worktrees and caches of clawpy",
        f"Only {free} of {_format_gigabytes(disk.total)} is free on this disk. Undecided work is kept.",
        subject="disk",
        facts={"urgent": disk.urgent},
        evidence_at=disk.since,
        tier=Tier.AT_RISK if disk.urgent else Tier.BLOCKS,
    )


def _format_gigabytes(size: int) -> str:
    """`0.4 GB`, `120 GB`."""
    return f"{size / 1_000_000_000:.{1 if size < 10_000_000_000 else 0}f} GB"

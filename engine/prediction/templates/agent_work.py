"""Cards for the work of agents, which no flow of the program does: findings of a flow that none can fix, open tasks of
heartbeats and of the board, and learned flows, which repeat what agents did.

A prompt that is made here contains names of files, tests and branches only. It quotes no text of a commit, a test or a
file, because an agent could take that text for an order. The prompts of tasks are texts of people or agents, and only
some become a flow (`find_named_flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from engine.execution.runners.flows import ALIASES, find_named_flow
from engine.execution.runners.flows.testing import format_line_ranges
from engine.frozen import frozen
from engine.model import Proposal, SessionState, SessionView, Task, TaskState, Tier
from engine.prediction import BLOCKING_TASK, HEARTBEAT_PREFIX, KINDS, OPEN_TASK, RUN_FACT, STALE_TASK
from engine.prediction.context import WorkspaceContext
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
from engine.text import hex_hash, plain
from engine.wording import count, moment

MAX_QUOTED_NAMES = 10
"""Maximum number of files or branches in a prompt."""

MAX_QUOTED_TESTS = 5
"""Maximum number of tests, and of files whose lines no test runs, in a prompt."""


@frozen
class AgentPrompt:
    """What an agent shall do."""

    text: str
    names: tuple[str, ...] = ()
    """The names in the text, in its order."""


def _select_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names that a prompt may contain."""
    fitting = [name for name in select_usable_paths(names) if "`" not in name]
    return tuple(plain(name, 120) for name in fitting)


def _quote(names: Sequence[str]) -> str:
    """The first names in backquotes, which keep a name that reads like an order from being taken for one, and the
    number of the others."""
    return ", ".join(f"`{name}`" for name in names[:MAX_QUOTED_NAMES]) + _count_more(names, MAX_QUOTED_NAMES)


def _count_more(items: Sequence[object], limit: int) -> str:
    return f" and {len(items) - limit} more" if len(items) > limit else ""


# What an agent shall do after a session; None if nothing is left to do.


def _describe_conflicts(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    git = context.repository
    branches = {branch.tip: branch.name for branch in git.branches} | {git.head: git.branch}
    source, target = (_select_names([branches.get(session.facts.get(side, ""), "")]) for side in ("source", "target"))
    files = _select_names(session.facts.get("conflicts", ()))
    if not (source and target and files):
        return None
    merge = f"Merge {_quote(source)} into {_quote(target)}"
    text = f"{merge} and resolve the conflicts in {_quote(files)}; keep what both sides meant"
    return AgentPrompt(text, (*source, *target, *files[:MAX_QUOTED_NAMES]))


def _describe_unfinished(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    files = _select_names(file.path for file in context.repository.files if file.conflicted)
    text = f"Resolve the conflicts in {_quote(files)}; keep what both sides meant"
    return AgentPrompt(text, files[:MAX_QUOTED_NAMES]) if files else None


def _describe_lint(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    """Only if the linter cannot fix its findings itself, or `fix_lint` changed nothing."""
    last = find_last_success(context, session.project, "lint")
    if last is None or session.facts.get("changed") or session.facts.get("next") == "fix_lint":
        return None
    files = _select_names(item["path"] for item in last.facts.get("findings", ()))
    text = f"Fix what the linter found and cannot fix itself in {_quote(files)}, changing no behaviour"
    return AgentPrompt(text, files[:MAX_QUOTED_NAMES]) if files else None


def _describe_uncovered(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    uncovered = session.facts.get("uncovered", {})
    files = [(name, uncovered[path]) for path in sorted(uncovered) for name in _select_names([path])]
    places = ", ".join(f"{_quote([name])} {format_line_ranges(lines)}" for name, lines in files[:MAX_QUOTED_TESTS])
    text = f"Write tests for the changed lines that none runs: {places}{_count_more(files, MAX_QUOTED_TESTS)}"
    return AgentPrompt(text, tuple(name for name, _ in files[:MAX_QUOTED_TESTS])) if files else None


def _describe_failed_tests(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    last = context.runs[0] if context.runs else None
    if last is None or last.session_id != session.id:
        return None
    if not last.check.failing and (last.check.failed or last.check.errors):
        return AgentPrompt("Make the whole suite pass, by the cause and not by the tests")
    tests = _select_names(last.check.failing[:MAX_QUOTED_TESTS])
    more = _count_more(last.check.failing, MAX_QUOTED_TESTS)
    return AgentPrompt(f"Make {_quote(tests)}{more} pass, by the cause and not by the test", tests) if tests else None


@frozen
class AgentFix:
    """How a card lets an agent fix what a flow found."""

    tier: Tier
    describe: Callable[[WorkspaceContext, SessionView], AgentPrompt | None]
    """Says what the agent shall do after a session of the flow."""


AGENT_FIXES: Mapping[str, AgentFix] = {
    "rehearse_merge": AgentFix(Tier.BLOCKS, _describe_conflicts),
    "unfinished_operation": AgentFix(Tier.BLOCKS, _describe_unfinished),
    "run_tests": AgentFix(Tier.BLOCKS, _describe_failed_tests),
    "narrow_failures": AgentFix(Tier.BLOCKS, _describe_failed_tests),
    "bisect": AgentFix(Tier.BLOCKS, _describe_failed_tests),
    "lint": AgentFix(Tier.CHECK, _describe_lint),
    "fix_lint": AgentFix(Tier.CHECK, _describe_lint),
    "uncovered_lines": AgentFix(Tier.CHECK, _describe_uncovered),
}
"""The flows whose findings an agent may fix."""


def _may_need_agent(session: SessionView) -> bool:
    """Whether an agent may fix what the session found. Several failing tests are grouped by cause before."""
    if session.flow == "run_tests":
        return session.check is not None and len(session.check.faults) == 1
    return session.flow in AGENT_FIXES


@template
def let_agent_fix(context: WorkspaceContext) -> Iterator[Offer]:
    """A card to let an agent fix what the newest of these sessions found, if nothing was written or committed since it
    began."""
    ended = (session for session in context.sessions if session.state.is_over and _may_need_agent(session))
    session = next(ended, None)
    if not context.prompt_runner or session is None or session.state is not SessionState.SUCCEEDED:
        return
    changed = find_last_change_time(context.repository)
    fix = AGENT_FIXES[session.flow or ""]
    prompt = fix.describe(context, session)
    if prompt is None or (changed is not None and changed > session.created_at):
        return
    yield Offer(
        prompt.text,
        f"{plain(context.prompt_runner, 40)} can do what no flow can: {plain(session.summary, 120)}.",
        subject=" ".join([session.flow or "", *prompt.names]),
        facts={"session": session.id, "after": session.flow},
        evidence_at=session.ended_at,
        tier=fix.tier,
        flow=None,
    )


# -- open tasks

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


# -- learned flows


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
    uncommitted_count = len(git.files) + git.more_files
    files = f"There {'is' if uncommitted_count == 1 else 'are'} {count(uncommitted_count, 'uncommitted file')}."
    news = files if uncommitted_count else "There is a new commit."
    ran = f"It ran last {moment(last, context.local)}. {news}" if last else "It was learned, and has not run here yet."
    offer = Offer(
        flow.prompt,
        f"{ran} Agents ran these commands one after the other again and again.",
        subject=flow.name,
        facts={"flow": flow.name, "head": git.head, "dirty": bool(uncommitted_count)},
        evidence_at=changed,
    )
    return make_proposal(context, flow.name, offer)

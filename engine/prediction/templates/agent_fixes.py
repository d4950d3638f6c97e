"""Cards that let an agent or a model fix what a session of a flow found, and what no flow can fix.

A prompt for an agent contains names of files, tests and branches only. It quotes no text of a commit, a test or a file,
because an agent could take that text for an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from engine.execution.runners.flows.testing import format_line_ranges
from engine.frozen import frozen
from engine.model import SessionState, SessionView, Tier
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.offers import (
    Offer,
    find_last_change_time,
    find_last_success,
    select_usable_paths,
    template,
)
from engine.text import plain

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
    return tuple(plain(name, 120) for name in fitting[:MAX_QUOTED_NAMES])


def _quote(names: Iterable[str]) -> str:
    """Names in backquotes, which keep a name that reads like an order from being taken for one."""
    return ", ".join(f"`{name}`" for name in names)


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
    return AgentPrompt(text, (*source, *target, *files))


def _describe_unfinished(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    files = _select_names(file.path for file in context.repository.files if file.conflicted)
    text = f"Resolve the conflicts in {_quote(files)}; keep what both sides meant"
    return AgentPrompt(text, files) if files else None


def _describe_lint(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    """Only if the linter cannot fix its findings itself, or `fix_lint` changed nothing."""
    last = find_last_success(context, session.project, "lint")
    if last is None or session.facts.get("changed") or session.facts.get("next") == "fix_lint":
        return None
    files = _select_names(item["path"] for item in last.facts.get("findings", ()))
    text = f"Fix what the linter found and cannot fix itself in {_quote(files)}, changing no behaviour"
    return AgentPrompt(text, files) if files else None


def _describe_uncovered(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    uncovered = session.facts.get("uncovered", {})
    files = [(name, uncovered[path]) for path in sorted(uncovered) for name in _select_names([path])][:MAX_QUOTED_TESTS]
    places = ", ".join(f"{_quote([name])} {format_line_ranges(lines)}" for name, lines in files)
    text = f"Write tests for the changed lines that none runs: {places}"
    return AgentPrompt(text, tuple(name for name, _ in files)) if files else None


def _describe_failed_tests(context: WorkspaceContext, session: SessionView) -> AgentPrompt | None:
    last = context.runs[0] if context.runs else None
    if last is None or last.session_id != session.id:
        return None
    if not last.check.failing and (last.check.failed or last.check.errors):
        return AgentPrompt("Make the whole suite pass, by the cause and not by the tests")
    tests = _select_names(last.check.failing[:MAX_QUOTED_TESTS])
    return AgentPrompt(f"Make {_quote(tests)} pass, by the cause and not by the test", tests) if tests else None


AGENT_PROMPTS_AFTER_FLOW: Mapping[str, tuple[Tier, Callable[[WorkspaceContext, SessionView], AgentPrompt | None]]] = {
    "rehearse_merge": (Tier.BLOCKS, _describe_conflicts),
    "unfinished_operation": (Tier.BLOCKS, _describe_unfinished),
    "run_tests": (Tier.BLOCKS, _describe_failed_tests),
    "narrow_failures": (Tier.BLOCKS, _describe_failed_tests),
    "bisect": (Tier.BLOCKS, _describe_failed_tests),
    "lint": (Tier.CHECK, _describe_lint),
    "fix_lint": (Tier.CHECK, _describe_lint),
    "uncovered_lines": (Tier.CHECK, _describe_uncovered),
}
"""For each flow whose findings an agent may fix: the tier of the card, and what describes what an agent shall do."""


def _may_need_agent(session: SessionView) -> bool:
    """Whether an agent may fix what the session found. Several failing tests are grouped by cause before."""
    if session.flow == "run_tests":
        return session.check is not None and len(session.check.faults) == 1
    return session.flow in AGENT_PROMPTS_AFTER_FLOW


@template
def let_agent_fix(context: WorkspaceContext) -> Iterator[Offer]:
    """A card to let an agent fix what the newest of these sessions found, if nothing was written or committed since it
    began."""
    ended = (session for session in context.sessions if session.state.over and _may_need_agent(session))
    session = next(ended, None)
    if not context.prompt_runner or session is None or session.state is not SessionState.SUCCEEDED:
        return
    changed = find_last_change_time(context.repository)
    tier, describe = AGENT_PROMPTS_AFTER_FLOW[session.flow or ""]
    prompt = describe(context, session)
    if prompt is None or (changed is not None and changed > session.created_at):
        return
    yield Offer(
        prompt.text,
        f"{plain(context.prompt_runner, 40)} can do what no flow can: {plain(session.summary, 120)}.",
        subject=" ".join([session.flow or "", *prompt.names]),
        facts={"session": session.id, "after": session.flow},
        evidence_at=session.ended_at,
        tier=tier,
        flow=None,
    )

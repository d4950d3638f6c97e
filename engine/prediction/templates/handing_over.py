"""What a flow found and no flow can mend: offered to the operator's agent or model, where one takes prose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.execution.runners.flows.uncovered_lines import spans
from engine.model import Proposal, SessionState, SessionView, Tier
from engine.model.words import plain
from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import HANDED_OVER
from engine.prediction.templates.making import (
    Offer,
    proposed,
    usable_names,
)
from engine.prediction.templates.quality import last_lint

MOST_NAMED: Final = 10


def _named(names: Iterable[str]) -> str:
    """Names of files, tests or branches, marked as names, so that one which reads like an order is none; "" without."""
    fit = [name for name in usable_names(names) if "`" not in name]
    return ", ".join(f"`{plain(name, 120)}`" for name in fit[:MOST_NAMED])


def _conflicts(context: WorkspaceContext, session: SessionView) -> str:
    git = context.seen
    branches = {branch.tip: branch.name for branch in git.branches} | {git.head: git.branch}
    sides = [_named([branches.get(session.facts.get(side, ""), "")]) for side in ("source", "target")]
    files = _named(session.facts.get("conflicts", ()))
    if not files or not all(sides):
        return ""
    return f"Merge {' into '.join(sides)} and resolve the conflicts in {files}; keep what both sides meant"


def _unfinished(context: WorkspaceContext, session: SessionView) -> str:
    files = _named(file.path for file in context.seen.files if file.conflicted)
    return f"Resolve the conflicts in {files}; keep what both sides meant" if files else ""


def _lint(context: WorkspaceContext, session: SessionView) -> str:
    """Of a lint whose linter can mend nothing itself, and of a tidying up that mended nothing."""
    last = last_lint(context, session.project)
    if last is None or session.facts.get("changed") or session.facts.get("next") == "fix_lint":
        return ""
    files = _named(one["path"] for one in last.facts.get("findings", ()))
    return f"Fix what the linter found and cannot fix itself in {files}, changing no behaviour" if files else ""


def _uncovered(context: WorkspaceContext, session: SessionView) -> str:
    found = session.facts.get("uncovered", {})
    files = [f"{name} {spans(found[path])}" for path in sorted(found) if (name := _named([path]))]
    return f"Write tests for the changed lines that none runs: {', '.join(files[:5])}" if files else ""


def _red(context: WorkspaceContext, session: SessionView) -> str:
    last = context.runs[0] if context.runs else None
    tests = _named(last.check.failing[:5]) if last is not None and last.session_id == session.id else ""
    return f"Make {tests} pass, by the cause and not by the test" if tests else ""


AFTER_FLOW: Final[Mapping[str, tuple[Tier, Callable[[WorkspaceContext, SessionView], str]]]] = MappingProxyType(
    {
        "rehearse_merge": (Tier.BLOCKS, _conflicts),
        "unfinished_operation": (Tier.BLOCKS, _unfinished),
        "narrow_failures": (Tier.BLOCKS, _red),
        "bisect": (Tier.BLOCKS, _red),
        "lint": (Tier.CHECK, _lint),
        "fix_lint": (Tier.CHECK, _lint),
        "uncovered_lines": (Tier.CHECK, _uncovered),
    }
)
"""By the flow that found something: the tier, and the assignment in prose, "" where there is nothing to hand over. Only
names go into it, no text that a commit, a test or a file says: an agent would take that for orders."""


def let_agent_fix(context: WorkspaceContext) -> list[Proposal]:
    """The newest finding that still holds: nothing was written or committed since that flow began."""
    git = context.seen
    if not context.prose:
        return []
    session = next((one for one in context.sessions if one.flow in AFTER_FLOW and one.state.over), None)
    if session is None or session.state not in (SessionState.SUCCEEDED, SessionState.FAILED):
        return []
    moments = [file.modified_at for file in git.files if file.modified_at] + [one.at for one in git.recent[:1]]
    if any(moment > session.created_at for moment in moments):
        return []
    tier, words = AFTER_FLOW[session.flow or ""]
    prompt = words(context, session)
    if not prompt:
        return []
    who = plain(context.prose, 40)
    offer = Offer(
        prompt,
        f"{who} can do what no flow can: {plain(session.summary, 120)}.",
        subject=" ".join([session.flow or "", *prompt.split("`")[1::2]]),
        facts={"session": session.id, "after": session.flow},
        parameters={},
        evidence_at=session.ended_at,
        tier=tier,
    )
    return [replace(proposed(context, HANDED_OVER, offer), flow=None)]

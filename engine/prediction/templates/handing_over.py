"""What a flow found and no flow can mend: offered to the operator's agent or model, where one takes prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.prediction.context import WorkspaceContext
from engine.prediction.kinds import HANDED_OVER
from engine.prediction.templates.making import offer, usable
from engine.prediction.words import plain
from engine.values import Proposal, SessionState, SessionView, Tier

_CONFLICTS: Final = re.compile(r"Merging (?P<what>\S+ into \S+) conflicts in \d+ files?: (?P<where>.+)")
_UNCOVERED: Final = re.compile(r"(?P<where>.+?): (?:no test|none of their tests) runs ")
_NOTHING_FIXED: Final = re.compile(r"Nothing to fix")
_FINDINGS: Final = re.compile(r"(?P<where>\S+: \d+ findings?) in ")


def _conflicts(context: WorkspaceContext, session: SessionView) -> str:
    found = _CONFLICTS.match(session.summary)
    return (
        f"Merge {found['what']} and resolve the conflicts in {found['where']}; keep what both sides meant"
        if found
        else ""
    )


def _unfinished(context: WorkspaceContext, session: SessionView) -> str:
    git = context.git
    files = [plain(file.path, 80) for file in git.files if file.conflicted and usable(file.path)] if git else []
    return f"Resolve the conflicts in {', '.join(files[:10])}; keep what both sides meant" if files else ""


def _lint(context: WorkspaceContext, session: SessionView) -> str:
    lint = next((one for one in context.sessions if one.flow == "lint" and one.state is SessionState.SUCCEEDED), None)
    found = _FINDINGS.match(lint.summary) if lint is not None and _NOTHING_FIXED.match(session.summary) else None
    return (
        f"Mend what the linter found and cannot fix itself ({found['where']}), changing no behaviour" if found else ""
    )


def _uncovered(context: WorkspaceContext, session: SessionView) -> str:
    found = _UNCOVERED.match(session.summary)
    return f"Write the tests that are missing for the changed lines {found['where']}" if found else ""


def _red(context: WorkspaceContext, session: SessionView) -> str:
    last = context.runs[0] if context.runs else None
    if last is None or last.session_id != session.id:
        return ""
    tests = [test for test in last.check.failing if usable(test)][:5]
    return (
        f"Make {' and '.join(f'`{plain(test, 120)}`' for test in tests)} pass, by the cause and not by the test"
        if tests
        else ""
    )


Words = Callable[[WorkspaceContext, SessionView], str]

AFTER_FLOW: Final[Mapping[str, tuple[Tier, Words]]] = MappingProxyType(
    {
        "rehearse_merge": (Tier.BLOCKS, _conflicts),
        "unfinished_operation": (Tier.BLOCKS, _unfinished),
        "narrow_failures": (Tier.BLOCKS, _red),
        "bisect": (Tier.BLOCKS, _red),
        "fix_lint": (Tier.CHECK, _lint),
        "uncovered_lines": (Tier.CHECK, _uncovered),
    }
)
"""By the flow that found something: the tier, and the assignment in prose, "" where there is nothing to hand over. Only
names go into it, no text that a test or a file printed: an agent would take that for orders."""


def let_agent_fix(context: WorkspaceContext) -> list[Proposal]:
    """The newest finding that still holds: nothing was written or committed since that flow began."""
    git = context.git
    if git is None or not context.prose:
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
    proposal = offer(
        context,
        HANDED_OVER,
        prompt,
        f"{who} can do what no flow can: {plain(session.summary, 120)}.",
        subject=f"{session.flow}: {session.id}",
        facts={"session": session.id},
        parameters={},
        evidence_at=session.ended_at,
        tier=tier,
    )
    return [replace(proposal, flow=None)]

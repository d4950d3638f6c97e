"""What is stored of a session that ended: its state, summary, cost and facts, without secrets; and what became of its
worktree (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.execution.live_session import LiveSession, Stop
from engine.execution.runners.runner import RunnerResult
from engine.execution.session_store import NOT_BEGUN, SessionResult
from engine.model import HAS_PROBLEM, UNDONE, SessionState, SessionView, sanitise
from engine.model.secrets import redact, redact_json

MAX_SUMMARY = 4_000
"""Characters of a summary that a row keeps; the transcript has it whole."""


def session_result(
    outcome: Stop | RunnerResult, live: LiveSession | None, *, secrets: Iterable[str], abandoned: bool
) -> SessionResult:
    """The result of a session: what its runner returned, or why it was stopped. `live` is None when it never ran.

    `abandoned`: its thread did not come back to say what its last call cost, so that counts as all that was
    reserved for it (SPEC 3.4). What is secret is cut out (SPEC 11.1)."""
    known = tuple(secrets)

    def clean(text: str) -> str:
        return redact(sanitise(text), known).strip()[:MAX_SUMMARY]

    if isinstance(outcome, RunnerResult):
        result = SessionResult(
            state=SessionState.SUCCEEDED,
            summary=clean(outcome.summary),
            check=outcome.check,
            facts=redact_json({**outcome.facts, **({} if outcome.sound else {HAS_PROBLEM: True})}, known),
        )
    else:
        reason = clean(outcome.reason)
        facts = {NOT_BEGUN: True} if outcome.not_begun else {}
        result = SessionResult(outcome.state, reason, error=reason, facts=facts)
    if live is None:
        return result
    cost = live.cost_at_most if abandoned else live.cost
    return replace(result, cost=cost, tokens=live.tokens, seconds=live.seconds)


def with_worktree_fate(view: SessionView) -> SessionView:
    """The view, saying what became of the folder of a session that is over. Looks whether it is there."""
    if not view.state.over or view.cwd == view.workspace or Path(view.cwd).is_dir():
        return view
    if view.change_set_id:
        fate = "its changes are in its change set"
    elif view.error == UNDONE:
        fate = "its changes were discarded with its card"
    else:
        fate = "it made no changes"
    return replace(view, gone=f"its worktree is gone; {fate}")

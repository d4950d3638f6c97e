"""Makes the stored result of a session that ended: state, summary, cost and facts, without secrets (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.execution.live_session import LiveSession, StopRequest
from engine.execution.runners.runner import RunnerResult
from engine.execution.session_store import NOT_BEGUN, SessionResult
from engine.model import HAS_PROBLEM, UNDONE, SessionState, SessionView, sanitise
from engine.model.secrets import redact, redact_json

MAX_SUMMARY = 4_000
"""Maximum number of characters of a summary in a row; the transcript has all of it."""


def session_result(
    outcome: StopRequest | RunnerResult, live: LiveSession | None, *, secrets: Iterable[str], abandoned: bool
) -> SessionResult:
    """The result of a session, without secrets (SPEC 11.1). `live` is None when it never ran.

    `abandoned`: its thread did not return with the cost of its last call, so the whole reservation counts (SPEC
    3.4)."""
    known_secrets = tuple(secrets)

    def clean(text: str) -> str:
        return redact(sanitise(text), known_secrets).strip()[:MAX_SUMMARY]

    if isinstance(outcome, RunnerResult):
        result = SessionResult(
            state=SessionState.SUCCEEDED,
            summary=clean(outcome.summary),
            check=outcome.check,
            facts=redact_json({**outcome.facts, **({} if outcome.sound else {HAS_PROBLEM: True})}, known_secrets),
        )
    else:
        reason = clean(outcome.reason)
        facts = {NOT_BEGUN: True} if outcome.not_begun else {}
        result = SessionResult(outcome.state, reason, error=reason, facts=facts)
    if live is None:
        return result
    cost = live.max_cost if abandoned else live.cost
    return replace(result, cost=cost, tokens=live.tokens, seconds=live.seconds)


def with_worktree_fate(view: SessionView) -> SessionView:
    """The view, with a note if the worktree of a finished session is gone. Reads the disk."""
    if not view.state.over or view.cwd == view.workspace or Path(view.cwd).is_dir():
        return view
    if view.change_set_id:
        fate = "its changes are in its change set"
    elif view.error == UNDONE:
        fate = "its changes were discarded with its card"
    else:
        fate = "it made no changes"
    return replace(view, gone=f"its worktree is gone; {fate}")

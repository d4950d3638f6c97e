"""How a session ended, as its row keeps it (SPEC 3.8). Pure but for the counts of the session itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution.live import LiveSession, Stop
from engine.execution.runners.base import RunnerResult
from engine.execution.sessions_store import NOT_BEGUN, SessionResult
from engine.model import UNDONE, SessionState, SessionView, sanitise
from engine.model.secrets import redact, redact_json

SUMMARY_CAP = 4_000
"""Characters of a summary that a row keeps; the transcript has it whole."""


def result_of(
    outcome: Stop | RunnerResult, live: LiveSession | None, *, abandoned: bool = False, secrets: Sequence[str] = ()
) -> SessionResult:
    """What came of a session: what its runner found, or why it was stopped. `live` is None when it never ran.

    `abandoned`: its thread did not come back to say what its last call cost, so that counts as all that was reserved
    for it (SPEC 3.4). `secrets` are cut out, and what looks like one (SPEC 11.1)."""
    cost, tokens, seconds = (live.cost, live.tokens, live.seconds) if live else (0, 0, 0.0)
    if live and abandoned:
        cost = live.cost_at_most
    if isinstance(outcome, RunnerResult):
        return SessionResult(
            state=SessionState.SUCCEEDED if outcome.sound else SessionState.FAILED,
            summary=_told(outcome.summary, secrets),
            check=outcome.check,
            cost=cost,
            tokens=tokens,
            seconds=seconds,
            facts=redact_json(dict(outcome.facts), secrets),
        )
    return SessionResult(
        state=outcome.state,
        summary=_told(outcome.reason, secrets),
        error=_told(outcome.reason, secrets),
        cost=cost,
        tokens=tokens,
        seconds=seconds,
        facts={NOT_BEGUN: True} if outcome.not_begun else {},
    )


def with_fate(view: SessionView) -> SessionView:
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


def _told(text: str, secrets: Sequence[str]) -> str:
    return redact(sanitise(text), secrets).strip()[:SUMMARY_CAP]

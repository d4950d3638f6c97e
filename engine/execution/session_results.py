"""How a session ended, as its row keeps it (SPEC 3.8). Pure but for the counts of the session itself."""

from __future__ import annotations

from engine.execution.live import LiveSession, Stop
from engine.execution.runners.base import RunnerResult
from engine.execution.sessions_store import SessionResult, outcome_of
from engine.values import SessionState, sanitise

SUMMARY_CAP = 4_000
"""Characters of a summary that a row keeps; the transcript has it whole."""


def result_of(outcome: Stop | RunnerResult, live: LiveSession | None) -> SessionResult:
    """What came of a session: what its runner found, or why it was stopped. `live` is None when it never ran."""
    cost, tokens, seconds = (live.cost, live.tokens, live.seconds) if live else (0, 0, 0.0)
    if isinstance(outcome, RunnerResult):
        return SessionResult(
            state=SessionState.SUCCEEDED,
            outcome=outcome_of(SessionState.SUCCEEDED),
            summary=_told(outcome.summary),
            check=outcome.check,
            cost=cost,
            tokens=tokens,
            seconds=seconds,
            facts=dict(outcome.facts),
        )
    return SessionResult(
        state=outcome.state,
        outcome=outcome_of(outcome.state),
        summary=_told(outcome.reason),
        error=_told(outcome.reason),
        cost=cost,
        tokens=tokens,
        seconds=seconds,
    )


def _told(text: str) -> str:
    return sanitise(text).strip()[:SUMMARY_CAP]

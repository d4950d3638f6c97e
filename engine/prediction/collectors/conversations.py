"""The signal `conversations` (SPEC 2.1): continue threads, come back to what was left open. Read from the sessions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from engine.prediction.collectors import signal
from engine.prediction.words import plain, span
from engine.values import SessionState, SessionView, Signal

RECENT = timedelta(hours=24)
"""A thread fades evenly to nothing over this time."""

UNRELATED = 0.5
"""What a recent thread still adds to a proposal that does not continue it."""

_LEFT_OPEN = {SessionState.FAILED, SessionState.INTERRUPTED, SessionState.BLOCKED}


def openness(session: SessionView) -> float:
    """How much a session asks to be taken up again: 1 when it failed, was interrupted or blocked, 0.8 when its check
    is red, 0.4 when it ended well, 0.2 when the operator cancelled it, 0 while it runs."""
    if not session.state.over:
        return 0.0
    if session.state in _LEFT_OPEN:
        return 1.0
    if session.state is SessionState.CANCELLED:
        return 0.2
    return 0.8 if session.check is not None and not session.check.green else 0.4


def recency(session: SessionView, now: datetime) -> float:
    """1 when the session ended this moment, 0 after 24 hours."""
    return 1.0 - min(1.0, max(0.0, (now - (session.ended_at or session.created_at)) / RECENT))


def thread_relevance(session: SessionView, now: datetime, continues: Collection[str] | None = None) -> float:
    """openness x recency; half of it for a proposal that continues other flows than this session's."""
    share = 1.0 if continues is None or session.flow in continues else UNRELATED
    return share * openness(session) * recency(session, now)


def conversations_signal(
    sessions: Sequence[SessionView], now: datetime, continues: Collection[str] | None = None
) -> Signal:
    """The most relevant thread, in words; `continues` names the flows that a proposal would take up."""
    rated = [(thread_relevance(session, now, continues), session) for session in sessions]
    relevance, session = max(rated, key=lambda pair: pair[0], default=(0.0, None))
    if session is None or relevance == 0.0:
        return signal("conversations", 0.0, "no recent sessions")
    red = session.state is SessionState.SUCCEEDED and session.check is not None and not session.check.green
    ended = "ended red" if red else session.state.value
    ago = span(now - (session.ended_at or session.created_at))
    return signal("conversations", relevance, f"“{plain(session.prompt, 40)}” {ended} {ago} ago")

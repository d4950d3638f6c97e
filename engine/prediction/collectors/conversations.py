"""The signal `conversations` (SPEC 2.1): continue threads, come back to what was left open. Read from the sessions and,
where the operator opted in, from what he and other agents talk about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from engine.model import SessionState, SessionView, Signal, Thread
from engine.model.words import plain, span
from engine.prediction.collectors import signal

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
    return _share(session, continues) * openness(session) * recency(session, now)


def _share(session: SessionView, continues: Collection[str] | None) -> float:
    return 1.0 if continues is None or session.flow in continues else UNRELATED


AT_WORK = timedelta(minutes=10)
"""So long after the operator's last word an agent may still be at it: nothing is left open yet."""


def outside_openness(thread: Thread, now: datetime) -> float:
    """How much a conversation with another agent asks to be taken up again: 1 when its question is open, 0.8 when the
    operator's last word was never answered, 0.4 when it ended otherwise, 0 while the agent may be at it."""
    if thread.question:
        return 1.0
    if thread.unanswered:
        return 0.8 if now - thread.at >= AT_WORK else 0.0
    return 0.4


def outside_relevance(thread: Thread, now: datetime, continues: Collection[str] | None = None) -> float:
    """openness x recency; half of it for a proposal that continues a flow: it is not this conversation."""
    fading = 1.0 - min(1.0, max(0.0, (now - thread.at) / RECENT))
    return (1.0 if continues is None else UNRELATED) * outside_openness(thread, now) * fading


class Conversations:
    """Sessions and conversations with other agents (`threads`), rated once for all proposals of one moment."""

    def __init__(self, sessions: Sequence[SessionView], now: datetime, threads: Sequence[Thread] = ()) -> None:
        self._now = now
        self._inside = [(thread_relevance(session, now), session) for session in sessions]
        self._outside = [(outside_relevance(thread, now), thread) for thread in threads]

    def signal(self, continues: Collection[str] | None = None) -> Signal:
        """The most relevant session, in words, and the most relevant conversation elsewhere; `continues` names the
        flows that a proposal would take up."""
        rated = [(_share(session, continues) * relevance, session) for relevance, session in self._inside]
        relevance, session = max(rated, key=lambda pair: pair[0], default=(0.0, None))
        elsewhere, thread = max(self._outside, key=lambda pair: pair[0], default=(0.0, None))
        elsewhere *= 1.0 if continues is None else UNRELATED
        said = []
        if session is not None and relevance > 0.0:
            said.append((relevance, _session_words(session, self._now)))
        if thread is not None and elsewhere > 0.0:
            said.append((elsewhere, thread_words(thread, self._now)))
        if not said:
            return signal("conversations", 0.0, "no recent sessions")
        said.sort(key=lambda pair: pair[0], reverse=True)
        return signal("conversations", said[0][0], *(words for _, words in said))


def thread_words(thread: Thread, now: datetime) -> str:
    """What was left open with another agent."""
    ago = span(now - thread.at)
    if thread.question:
        return f"{thread.agent} asks “{plain(thread.question, 60)}”, {ago} ago"
    about = f"“{plain(thread.about, 40)}” with {thread.agent}" if thread.about else f"a talk with {thread.agent}"
    return f"{about} was left without an answer {ago} ago" if thread.unanswered else f"{about}, last {ago} ago"


def _session_words(session: SessionView, now: datetime) -> str:
    red = session.state is SessionState.SUCCEEDED and session.check is not None and not session.check.green
    ended = "ended with failing tests" if red else session.state.value
    ago = span(now - (session.ended_at or session.created_at))
    return f"“{plain(session.prompt, 40)}” {ended} {ago} ago"

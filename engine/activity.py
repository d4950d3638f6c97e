"""Activity since an instant: work that ran or was blocked, decisions, costs and what was learned (SPEC 9.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from engine.frozen import frozen
from engine.model import DecidedBy, LogEntry, SessionView, Verdict, Waiting
from engine.storage.ledger import LedgerEntry

MAX_ROWS = 1000
"""Maximum number of rows of each kind that are read, the newest."""

DECISION_KINDS = ("PredictionConfirmed", "PredictionRejected", "PredictionReopened")
"""Kinds of facts about decisions, and their reversal."""

LEARNING_KINDS = ("LearningPromoted", "FactPromoted", "CandidateWeighed", "CandidatePromoted")
"""Kinds of facts about something learned."""


@frozen
class BlockedWork:
    """Work that a rail blocked: which rail, its verdict, and why."""

    at: datetime
    prediction_id: str
    prompt: str
    rail: str
    verdict: Verdict
    reason: str
    decided_by: str


@frozen
class LearnedCounts:
    """Counts of what was learned: `learnings` promoted to a project or to all, `facts`, candidates `proposed` to you,
    and candidates activated `by_itself` (SPEC 5.6)."""

    learnings: int = 0
    facts: int = 0
    proposed: int = 0
    by_itself: int = 0


def count_learned(facts: Iterable[LedgerEntry], instant: datetime) -> LearnedCounts:
    """Count what was learned since `instant`, by facts of the kinds `LEARNING_KINDS`. Pure."""
    later = [fact for fact in facts if fact.at > instant]
    return LearnedCounts(
        learnings=sum(fact.kind == "LearningPromoted" for fact in later),
        facts=sum(fact.kind == "FactPromoted" for fact in later),
        proposed=len(
            {fact.subject for fact in later if fact.kind == "CandidateWeighed" and fact.payload["status"] == "review"}
        ),
        by_itself=sum(fact.kind == "CandidatePromoted" and fact.payload["by"] == "autonomy" for fact in later),
    )


@frozen
class ActivitySince:
    """The activity since an instant. `spent` in micro-dollars; `approved_by_itself` is part of `approved`; `waits` is
    what waits for you now."""

    instant: datetime
    ran: tuple[SessionView, ...]
    blocked: tuple[BlockedWork, ...]
    approved: int
    approved_by_itself: int
    rejected: int
    spent: int
    waits: tuple[Waiting, ...]
    learnt: LearnedCounts = LearnedCounts()


def activity_since(
    instant: datetime,
    *,
    sessions: Sequence[SessionView],
    blocked_entries: Sequence[LogEntry],
    decision_facts: Sequence[LedgerEntry],
    spent: int,
    waits: Sequence[Waiting],
    learning_facts: Iterable[LedgerEntry] = (),
) -> ActivitySince:
    """Select what is later than `instant`. Pure; `Services.since` reads. Sessions are sorted by their end.

    `decision_facts`: facts of the kinds `DECISION_KINDS`, newest first; a decision that was reversed does not count.
    """
    standing: dict[str, LedgerEntry] = {}
    for fact in decision_facts:
        if fact.at > instant:
            standing.setdefault(fact.subject, fact)
    approvals = [fact.payload["decided_by"] for fact in standing.values() if fact.kind == "PredictionConfirmed"]
    ran = [(view.ended_at, view) for view in sessions if view.ended_at is not None and view.ended_at > instant]
    return ActivitySince(
        instant=instant,
        ran=tuple(view for _, view in sorted(ran, key=lambda pair: pair[0])),
        blocked=tuple(_to_blocked_work(entry) for entry in reversed(blocked_entries) if entry.at > instant),
        approved=len(approvals),
        approved_by_itself=approvals.count(DecidedBy.AUTONOMY.value),
        rejected=sum(fact.kind == "PredictionRejected" for fact in standing.values()),
        spent=spent,
        waits=tuple(waits),
        learnt=count_learned(learning_facts, instant),
    )


def _to_blocked_work(entry: LogEntry) -> BlockedWork:
    """The work with the first rail that did not allow it (SPEC 3.1)."""
    first = next(verdict for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW)
    return BlockedWork(
        at=entry.at,
        prediction_id=entry.prediction_id,
        prompt=entry.prompt,
        rail=first.rail,
        verdict=first.verdict,
        reason=first.reason,
        decided_by=entry.decided_by,
    )

"""What you see when you come back (SPEC 9.3): the activity since an instant, and the queue of things that wait for you.

The queue has permissions, change sets, and interrupted sessions. An interrupted session leaves the queue when you
acknowledge it, when the same work runs again, or after a day. While its work is pending as a card, it is not in the
queue.

The functions are pure, except for those of acknowledged sessions. `Services` reads for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.events import Event
from engine.events.learning import CandidatePromoted, CandidateWeighed, FactPromoted, LearningPromoted
from engine.events.work import PredictionConfirmed, PredictionRejected, PredictionReopened
from engine.frozen import frozen
from engine.model import (
    Card,
    ChangeSet,
    ChangeState,
    DecidedBy,
    PermissionRequest,
    RailDecision,
    RailVerdict,
    SessionState,
    SessionView,
    Verdict,
    Waiting,
)
from engine.model.adaptation import CandidateStatus
from engine.safety.content.prompts import find_objection
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry
from engine.wording import count, failures

DECISION_KINDS = (PredictionConfirmed.__name__, PredictionRejected.__name__, PredictionReopened.__name__)
"""Kinds of ledger entries about decisions and about undoing them."""

LEARNING_KINDS = tuple(
    event.__name__ for event in (LearningPromoted, FactPromoted, CandidateWeighed, CandidatePromoted)
)
"""Kinds of ledger entries about something learned."""


@frozen
class BlockedWork:
    """Work that a rail blocked, with the rail, its verdict and its reason."""

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


def count_learned(entries: Iterable[LedgerEntry], instant: datetime) -> LearnedCounts:
    """Count what was learned since `instant`, by ledger entries of the kinds `LEARNING_KINDS`. Pure."""
    later = [entry for entry in entries if entry.at > instant]

    def select_entries(event: type[Event]) -> list[LedgerEntry]:
        return [entry for entry in later if entry.kind == event.__name__]

    weighed = select_entries(CandidateWeighed)
    return LearnedCounts(
        learnings=len(select_entries(LearningPromoted)),
        facts=len(select_entries(FactPromoted)),
        proposed=len({entry.subject for entry in weighed if entry.payload["status"] == CandidateStatus.REVIEW}),
        by_itself=sum(entry.payload["by"] == DecidedBy.AUTONOMY for entry in select_entries(CandidatePromoted)),
    )


@frozen
class ActivitySince:
    """The activity since an instant. `spent` is in micro-dollars. `approved` includes `approved_by_itself`, and what
    could not run. `decisions` are those that the Twin learns from. `waiting` are the entries that wait for you now."""

    instant: datetime
    ended_sessions: tuple[SessionView, ...]
    blocked: tuple[BlockedWork, ...]
    approved: int
    approved_by_itself: int
    rejected: int
    spent: int
    waiting: tuple[Waiting, ...]
    learned: LearnedCounts = LearnedCounts()
    decisions: int = 0


def select_activity_since(
    instant: datetime,
    *,
    sessions: Sequence[SessionView],
    blocked_entries: Sequence[RailDecision],
    decision_entries: Sequence[LedgerEntry],
    spent: int,
    waiting: Sequence[Waiting],
    learning_entries: Iterable[LedgerEntry] = (),
    decisions: int = 0,
) -> ActivitySince:
    """The activity after `instant`, selected from what `Services.read_activity` has read. Sessions are sorted by their
    end. Pure.

    `decision_entries` are ledger entries of the kinds `DECISION_KINDS`, newest first. A decision that was undone does
    not count.
    """
    standing: dict[str, LedgerEntry] = {}
    for entry in decision_entries:
        if entry.at > instant:
            standing.setdefault(entry.subject, entry)
    approvals = [
        entry.payload["decided_by"] for entry in standing.values() if entry.kind == PredictionConfirmed.__name__
    ]
    ended = [view for view in sessions if view.ended_at is not None and view.ended_at > instant]
    return ActivitySince(
        instant=instant,
        ended_sessions=tuple(sorted(ended, key=lambda view: view.ended_at or instant)),
        blocked=tuple(_to_blocked_work(entry) for entry in reversed(blocked_entries) if entry.at > instant),
        approved=len(approvals),
        approved_by_itself=approvals.count(DecidedBy.AUTONOMY),
        rejected=sum(entry.kind == PredictionRejected.__name__ for entry in standing.values()),
        spent=spent,
        waiting=tuple(waiting),
        learned=count_learned(learning_entries, instant),
        decisions=decisions,
    )


def _to_blocked_work(entry: RailDecision) -> BlockedWork:
    """The work with the first rail that did not allow it (SPEC 3.1)."""
    first_objection = next(verdict for verdict in entry.verdicts if not verdict.allows)
    return BlockedWork(
        at=entry.at,
        prediction_id=entry.prediction_id,
        prompt=entry.prompt,
        rail=first_objection.rail,
        verdict=first_objection.verdict,
        reason=first_objection.reason,
        decided_by=entry.decided_by,
    )


# -- the queue

ACKNOWLEDGED_KEY = "views.acknowledged"
"""Key in the state table: the acknowledged sessions, each with the time of the acknowledgement."""

INTERRUPTED_FOR = timedelta(hours=24)
"""Time that an interrupted session stays in the queue."""


def make_waiting_entries(
    changes: Iterable[ChangeSet],
    sessions: Sequence[SessionView],
    permissions: Iterable[PermissionRequest],
    now: datetime,
    acknowledged: Collection[str] = (),
    pending: Iterable[Card] = (),
) -> list[Waiting]:
    """Entries for permissions, change sets, and interrupted sessions that are not `acknowledged` and whose work is not
    among the `pending` cards. Sessions come newest first."""
    return [
        *(
            Waiting(
                kind="permission",
                id=request.id,
                title=f"{request.agent} asks: {request.title}",
                since=request.asked_at,
                session_id=request.session_id,
            )
            for request in permissions
        ),
        *(
            Waiting(
                kind="change_set",
                id=change.id,
                title=_make_landing_question(change),
                since=change.created_at,
                session_id=change.session_id,
            )
            for change in changes
        ),
        *_make_interrupted_entries(sessions, now - INTERRUPTED_FOR, acknowledged, pending),
    ]


def _make_landing_question(change: ChangeSet) -> str:
    """What waits for a decision about changes. What their tests say comes first, because a title may be long."""
    again = " again" if change.state is ChangeState.UNDONE else ""
    if not change.landable_files:
        return f"copy or discard {count(len(change.files), 'file')} that cannot be landed: {change.title}"
    check = change.check
    warning = f"{failures(check.failed, check.errors)}: " if check and check.has_new_failures else ""
    return f"{warning}land {count(len(change.landable_files), 'file')}{again}? {change.title}"


def _make_interrupted_entries(
    sessions: Sequence[SessionView], since: datetime, acknowledged: Collection[str], pending: Iterable[Card]
) -> Iterable[Waiting]:
    """Entries for sessions that were interrupted after `since`, without those whose work ran again later or is
    pending."""
    pending_work = {(card.workspace, card.assignment.prompt) for card in pending}
    newer_work: set[tuple[str, str]] = set()
    for session in sessions:
        work, ended_at = (session.workspace, session.flow or session.prompt), session.ended_at
        is_open = session.state is SessionState.INTERRUPTED and session.id not in acknowledged
        is_pending = (session.workspace, session.prompt) in pending_work
        if is_open and ended_at is not None and ended_at > since and work not in newer_work and not is_pending:
            yield Waiting(
                kind="interrupted",
                id=session.id,
                title=f"interrupted: {session.prompt}",
                since=ended_at,
                session_id=session.id,
            )
        newer_work.add(work)


def mark_hostile(entry: Waiting, check: Callable[[str], RailVerdict]) -> Waiting:
    """The entry, with a mark if the content filter objects to its text."""
    reason = find_objection(entry.text, check)
    return replace(entry, hostile=reason, title=f"▲ hostile: {reason}. {entry.title}") if reason else entry


def sort_queue(queue: Iterable[Waiting]) -> list[Waiting]:
    """Sort the queue: entries that block an agent come first, then the oldest."""
    return sorted(queue, key=lambda entry: (entry.kind != "permission", entry.since))


def read_acknowledged_sessions(database: Database) -> frozenset[str]:
    """The ids of interrupted sessions that the operator acknowledged."""
    with database.read() as session:
        return frozenset(state.get(session, ACKNOWLEDGED_KEY, {}))


def acknowledge_session(database: Database, session_id: str) -> None:
    """Remove an interrupted session from the queue."""

    def work(tx: Transaction) -> None:
        since = tx.now - INTERRUPTED_FOR  # older sessions have left the queue anyway
        entries = state.get(tx.session, ACKNOWLEDGED_KEY, {})
        recent = {name: at for name, at in entries.items() if datetime.fromisoformat(at) > since}
        state.put(tx, ACKNOWLEDGED_KEY, recent | {session_id: tx.now.isoformat()})

    database.write(work)

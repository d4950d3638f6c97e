"""Reads across services for screens and verbs: what waits for you, and what happened since you were away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from engine.frozen import frozen
from engine.git import Git
from engine.model import (
    ChangeSet,
    DecidedBy,
    LogEntry,
    PermissionRequest,
    PromptPart,
    RailVerdict,
    Refusal,
    SessionState,
    SessionView,
    Trust,
    Verdict,
    Waiting,
    sanitise,
)
from engine.model.text import count
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import LedgerEntry

MAX_ROWS = 1000
"""Rows of each kind that are read at most, the newest."""

ACKNOWLEDGED = "views.acknowledged"
INTERRUPTED_FOR = timedelta(hours=24)
"""How long an interrupted session is in the queue."""


@frozen
class Blocked:
    """Work that a rail blocked: which rail, its verdict, and why."""

    at: datetime
    prediction_id: str
    prompt: str
    rail: str
    verdict: Verdict
    reason: str
    decided_by: str


DECIDED = ("PredictionConfirmed", "PredictionRejected", "PredictionReopened")
"""Facts about decisions, and their reversal."""

LEARNT = ("LearningPromoted", "FactPromoted", "CandidateWeighed", "CandidatePromoted")
"""Facts about something learned."""


@frozen
class Learnt:
    """What was learned: `learnings` promoted to a project or to all, `facts`, candidates `proposed` to you, and
    candidates activated `by_itself` (SPEC 5.6)."""

    learnings: int = 0
    facts: int = 0
    proposed: int = 0
    by_itself: int = 0

    @property
    def is_empty(self) -> bool:
        """True when nothing was learnt."""
        return not (self.learnings or self.facts or self.proposed or self.by_itself)


def learnt_since(facts: Iterable[LedgerEntry], instant: datetime) -> Learnt:
    """What these facts of the kinds `LEARNT` say was learned since `instant`. Pure."""
    later = [fact for fact in facts if fact.at > instant]
    return Learnt(
        learnings=sum(fact.kind == "LearningPromoted" for fact in later),
        facts=sum(fact.kind == "FactPromoted" for fact in later),
        proposed=len(
            {fact.subject for fact in later if fact.kind == "CandidateWeighed" and fact.payload["status"] == "review"}
        ),
        by_itself=sum(fact.kind == "CandidatePromoted" and fact.payload["by"] == "autonomy" for fact in later),
    )


@frozen
class Since:
    """What happened since an instant. `spent` in micro-dollars; `approved_by_itself` is part of `approved`; `waits` is
    what waits for you now."""

    instant: datetime
    ran: tuple[SessionView, ...]
    blocked: tuple[Blocked, ...]
    approved: int
    approved_by_itself: int
    rejected: int
    spent: int
    waits: tuple[Waiting, ...]
    learnt: Learnt = Learnt()

    @property
    def is_empty(self) -> bool:
        """True when nothing ran, was blocked, was decided or learnt."""
        return not (self.ran or self.blocked or self.approved or self.rejected) and self.learnt.is_empty


def since(
    instant: datetime,
    *,
    sessions: Sequence[SessionView],
    blocked: Sequence[LogEntry],
    decided: Sequence[LedgerEntry],
    spent: int,
    waits: Sequence[Waiting],
    learnings: Iterable[LedgerEntry] = (),
) -> Since:
    """What is later than `instant`. Pure; `Services.since` reads. Sessions are sorted by their end.

    `decided`: facts of the kinds `DECIDED`, newest first; a decision that was reversed does not count.
    """
    standing: dict[str, LedgerEntry] = {}
    for fact in decided:
        if fact.at > instant:
            standing.setdefault(fact.subject, fact)
    approvals = [fact.payload["decided_by"] for fact in standing.values() if fact.kind == "PredictionConfirmed"]
    ran = [(view.ended_at, view) for view in sessions if view.ended_at is not None and view.ended_at > instant]
    return Since(
        instant=instant,
        ran=tuple(view for _, view in sorted(ran, key=lambda pair: pair[0])),
        blocked=tuple(_blocked(entry) for entry in reversed(blocked) if entry.at > instant),
        approved=len(approvals),
        approved_by_itself=approvals.count(DecidedBy.AUTONOMY.value),
        rejected=sum(fact.kind == "PredictionRejected" for fact in standing.values()),
        spent=spent,
        waits=tuple(waits),
        learnt=learnt_since(learnings, instant),
    )


def _blocked(entry: LogEntry) -> Blocked:
    """The work with the first rail that did not allow it (SPEC 3.1)."""
    first = next(verdict for verdict in entry.verdicts if verdict.verdict is not Verdict.ALLOW)
    return Blocked(
        entry.at, entry.prediction_id, entry.prompt, first.rail, first.verdict, first.reason, entry.decided_by
    )


def waiting(
    changes: Iterable[ChangeSet],
    sessions: Sequence[SessionView],
    permissions: Iterable[PermissionRequest],
    now: datetime,
    acknowledged: Collection[str] = (),
) -> list[Waiting]:
    """The queue (SPEC 9.3): permissions, which block an agent, then change sets, and interrupted sessions that are not
    `acknowledged`. Sessions come newest first."""
    queue = [
        Waiting(
            "permission", request.id, f"{request.agent} asks: {request.title}", request.asked_at, request.session_id
        )
        for request in permissions
    ]
    queue += [
        Waiting(
            "change_set",
            change.id,
            f"land {count(len(change.files), 'file')}? {change.title}",
            change.created_at,
            change.session_id,
        )
        for change in changes
    ]
    repeated: set[tuple[str, str]] = set()
    for session in sessions:
        work, ended_at = (session.workspace, session.flow or session.prompt), session.ended_at
        interrupted = session.state is SessionState.INTERRUPTED and session.id not in acknowledged
        if interrupted and ended_at is not None and now - ended_at < INTERRUPTED_FOR and work not in repeated:
            queue.append(Waiting("interrupted", session.id, f"interrupted: {session.prompt}", ended_at, session.id))
        repeated.add(work)
    return in_order(queue)


def with_objection(entry: Waiting, check: Callable[[str], RailVerdict]) -> Waiting:
    """An entry, marked when the content filter objects to its text."""
    reason = objection(entry.text, check)
    return replace(entry, hostile=reason, title=f"▲ hostile: {reason}. {entry.title}") if reason else entry


def objection(text: str, check: Callable[[str], RailVerdict]) -> str:
    """The objection of the content filter to text that would guide agents, "" for none."""
    verdict = check(text) if text.strip() else None
    if verdict is None or verdict.verdict is Verdict.ALLOW or verdict.rule == "unresolved":
        return ""  # a `*` in quoted code is nothing that could not be resolved: words are read, not run
    return verdict.reason


def objections(part: PromptPart, check: Callable[[str], RailVerdict]) -> list[str]:
    """The objection of the content filter to each line of a part, "" for none."""
    if part.role == "assistant":
        return [""] * len(part.lines)
    return [objection(line.text, check) if line.source.trust is Trust.QUOTED else "" for line in part.lines]


def in_order(queue: Iterable[Waiting]) -> list[Waiting]:
    """What blocks an agent first, then the oldest first."""
    return sorted(queue, key=lambda entry: (entry.kind != "permission", entry.since))


def acknowledged_sessions(database: Database) -> frozenset[str]:
    """Interrupted sessions that the operator knows of."""
    with database.read() as session:
        return frozenset(state.get(session, ACKNOWLEDGED, {}))


def acknowledge(database: Database, session_id: str) -> None:
    """Remove an interrupted session from the queue."""

    def work(tx: Transaction) -> None:
        since = tx.now - INTERRUPTED_FOR  # what is older waits no longer anyway
        entries = state.get(tx.session, ACKNOWLEDGED, {})
        recent = {name: at for name, at in entries.items() if datetime.fromisoformat(at) > since}
        state.put(tx, ACKNOWLEDGED, recent | {session_id: tx.now.isoformat()})

    database.write(work)


def workspace_place(workspace: str) -> str:
    """Name and branch of a workspace for the status line, such as `shop main*`, with a star for uncommitted changes."""
    folder = Path(workspace)
    git = Git(folder, timeout=5)
    try:
        branch = git.text("symbolic-ref", "--short", "-q", "HEAD", allowed=(0, 1)) or "detached"
        dirty = git.output("status", "--porcelain", "-uno")
    except Refusal as refusal:
        return sanitise(f"{folder.name} ({refusal.code})")
    return sanitise(f"{folder.name} {branch}{'*' if dirty else ''}")

"""Follows the sessions that had guidance in their prompts, and reports noisy and stale guidance once (SPEC 1.10, 5.1).

Guidance is *noisy* for an agent if the agent's work goes worse with it than without it, by more than chance. The test
stays valid however often it is repeated. Guidance is *stale* if it is older than the limit of its kind.

A `SessionFollower` reads in the ledger how sessions end, and what happens to their changes. The trials of
`learning.candidates.overlays` follow their sessions by it too (SPEC 5.7).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlmodel import Field, col, delete, select

from engine.clock import Clock
from engine.events import GuidanceFoundNoisy, GuidanceFoundStale
from engine.frozen import frozen
from engine.hierarchy.guidance import select_items
from engine.hierarchy.profiles import Profiles
from engine.model import LeaderDecision, LeaderProfile, Pattern
from engine.statistics import Arms, compute_difference_interval
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry
from engine.storage.rows import Row, json_field, utc_field

CURSOR = "hierarchy.guided"
"""Name of the cursor in the ledger."""

GUIDED = "GuidanceApplied"
"""The kind of ledger entries with the guidance in a prompt."""

MIN_SESSIONS = 10
"""Minimum number of sessions with an item, and of sessions without it, before the item can be called noisy."""

ERROR_RATE = 0.05
"""Maximum share of harmless items that are ever called noisy within `MAX_SESSION_AGE`. It is half of that for effects
on trial, because there are dozens of items."""

MAX_SESSION_AGE = timedelta(days=90)
"""Maximum age of a session that counts."""

MAX_DECISION_AGE = timedelta(days=30)
"""Maximum age of a recent decision."""

MAX_PATTERN_AGE = timedelta(days=180)
"""Maximum age of a pattern since it was last written or confirmed."""

RowT = TypeVar("RowT", bound=Any)

SESSION_KINDS = frozenset({"SessionEnded", "ValidationFailed"})
"""Kinds of ledger entries about the end of a session, which is their subject."""

CHANGE_KINDS = frozenset(
    {"ChangeSetReady", "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"}
)
"""Kinds of ledger entries about the changes of a session, whose id is in their payload."""


@frozen
class Tally:
    """The numbers of an agent's sessions with an item (`told`) and without it (`untold`), and how many ended badly."""

    told: int = 0
    told_bad: int = 0
    untold: int = 0
    untold_bad: int = 0

    @property
    def harm(self) -> float:
        """By how much, at least, the share of bad sessions is larger with the item than without it, with 95 % certainty
        over all checks; -1 if there are too few sessions. The two groups are not random: leaders choose what they
        say."""
        if min(self.told, self.untold) < MIN_SESSIONS:
            return -1.0
        arms = Arms(self.told, self.told - self.told_bad, self.untold, self.untold - self.untold_bad)
        return -compute_difference_interval([arms], ERROR_RATE)[2]

    @property
    def is_noisy(self) -> bool:
        """Whether the item does harm."""
        return self.harm > 0


def count_tallies(sessions: Iterable[tuple[Mapping[str, str], bool]]) -> dict[tuple[str, str], Tally]:
    """Count an agent's sessions with and without each item of guidance, by item and wording. `sessions` are (wording of
    each item, whether the session ended badly)."""
    ended_sessions = list(sessions)
    bad = sum(ended_badly for _, ended_badly in ended_sessions)
    with_item, with_item_bad = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for wordings, ended_badly in ended_sessions:
        with_item.update(wordings.items())
        with_item_bad.update(dict.fromkeys(wordings.items(), int(ended_badly)))
    return {
        item: Tally(
            with_item[item], with_item_bad[item], len(ended_sessions) - with_item[item], bad - with_item_bad[item]
        )
        for item in with_item
    }


def find_outdated_age(item: Pattern | LeaderDecision, now: datetime) -> tuple[int, int] | None:
    """(age of an outdated item, maximum age of its kind), in whole days. None for an item that is not outdated or has
    no date."""
    max_age = MAX_PATTERN_AGE if isinstance(item, Pattern) else MAX_DECISION_AGE
    if item.at is None or now - item.at <= max_age:
        return None
    return (now - item.at).days, max_age.days


class GuidedSession(Row, table=True):
    """A session with guidance: its items with their wordings, and in `state` its outcome so far (see
    `compute_next_outcome`)."""

    __tablename__ = "guided_sessions"

    session_id: str = Field(primary_key=True)
    agent: str
    workspace: str
    items: dict[str, str] = json_field()
    state: str = ""
    at: datetime = utc_field()


class GuidanceFinding(Row, table=True):
    """A report about an item in one wording: that it is noisy for an `agent`, or stale, with `agent` ""."""

    __tablename__ = "guidance_findings"

    kind: str = Field(primary_key=True)
    ref: str = Field(primary_key=True)
    wording: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    at: datetime = utc_field()


def get_session_id(entry: LedgerEntry) -> str:
    """The id of the session that an entry of these kinds is about."""
    return entry.subject if entry.kind in SESSION_KINDS else str(entry.payload.get("session_id", ""))


def compute_next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after an entry about it: "", "open" (its changes wait), "good" or "bad".

    A session is good if it ended well and left no changes, or if its changes were landed or committed. It is bad if it
    failed, was blocked or its tests still fail, or if its changes were discarded or undone. The operator's last
    decision on the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or "open"
        case "ChangeSetLanded" | "ChangeSetBranched":
            return "good"
        case "LandingUndone":
            return before if payload.get("left") else "bad"  # a part of the changes is still landed
        case "ChangeSetDiscarded":
            return "" if payload.get("continued_in") else "bad"
        case "ValidationFailed":
            return "bad"
        case "SessionEnded" if payload.get("state") in ("failed", "blocked"):
            return "bad"
        case "SessionEnded" if payload.get("state") == "succeeded":
            return before or "good"
    return before


class SessionFollower(Generic[RowT]):
    """Updates the `state` of the rows of a table by ledger entries about the session of each row. Callable from any
    thread."""

    def __init__(
        self, database: Database, entries: Ledger, table: type[RowT], *, cursor: str, begins: str = ""
    ) -> None:
        """`begins` is the kind of ledger entry for which `add_row` is called, "" if the rows are made elsewhere."""
        self._database = database
        self._table = table
        self._begins = begins
        self._cursor = LedgerCursor(entries, cursor, self._is_relevant)
        self._busy = threading.Lock()

    def catch_up(self) -> None:
        """Read the new ledger entries. Does nothing while another thread does so."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._cursor.handle_new(self._read_entries)
        finally:
            self._busy.release()

    def add_row(self, tx: Transaction, entry: LedgerEntry) -> None:
        """Add a row for an entry of the kind `begins`."""

    def on_state_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the state of these rows changed."""

    def _is_relevant(self, entry: LedgerEntry) -> bool:
        return entry.kind == self._begins or entry.kind in SESSION_KINDS or entry.kind in CHANGE_KINDS

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> None:
        session_ids = {get_session_id(entry) for entry in entries}
        followed = select(self._table.session_id).where(col(self._table.session_id).in_(session_ids)).limit(1)
        begins = any(entry.kind == self._begins for entry in entries)
        with self._database.read() as session:
            if not begins and session.exec(followed).first() is None:  # most sessions have no rows
                return
        self._database.write(lambda tx: self._apply_entries(tx, entries))

    def _apply_entries(self, tx: Transaction, entries: Sequence[LedgerEntry]) -> None:
        """Add rows for new sessions, and update the states of others."""
        changed: list[RowT] = []
        for entry in entries:
            if entry.kind == self._begins:
                self.add_row(tx, entry)
                continue
            session_id = get_session_id(entry)
            for row in tx.session.exec(select(self._table).where(col(self._table.session_id) == session_id)):
                state = compute_next_outcome(entry.kind, entry.payload, row.state)
                if state != row.state:
                    row.state = state
                    tx.session.add(row)
                    changed.append(row)
        if changed:
            tx.session.flush()
            self.on_state_change(tx, changed)


class GuidedSessions(SessionFollower[GuidedSession]):
    """Stores guided sessions and their outcomes. Callable from any thread."""

    def __init__(self, database: Database, profiles: Profiles, *, clock: Clock, ledger: Ledger) -> None:
        super().__init__(database, ledger, GuidedSession, cursor=CURSOR, begins=GUIDED)
        self._profiles = profiles
        self._clock = clock

    def review(self) -> None:
        """Report outdated guidance in sessions of the last 30 days, and delete rows that no longer count."""
        now = self._clock.now()
        with self._database.read() as session:
            recent = session.exec(select(GuidedSession).where(col(GuidedSession.at) > now - MAX_DECISION_AGE)).all()
        stale_patterns = self._find_stale(recent, now)

        def store_review(tx: Transaction) -> None:
            for event in stale_patterns:
                _record_finding(tx, event)
            tx.session.exec(delete(GuidedSession).where(col(GuidedSession.at) <= now - MAX_SESSION_AGE))

        self._database.write(store_review)

    def add_row(self, tx: Transaction, entry: LedgerEntry) -> None:
        """Store the guidance of a session."""
        payload = entry.payload
        wordings = dict(zip(payload["items"], payload["wordings"], strict=True))
        if not payload["session_id"] or not wordings:
            return
        row = tx.session.get(GuidedSession, payload["session_id"]) or GuidedSession(
            session_id=payload["session_id"], agent=entry.subject, workspace=entry.workspace, items={}, at=entry.at
        )
        row.items = {**row.items, **wordings}
        tx.session.add(row)

    def on_state_change(self, tx: Transaction, rows: Sequence[GuidedSession]) -> None:
        """Report the guidance that proved noisy."""
        for agent in sorted({row.agent for row in rows if row.state in ("good", "bad")}):
            _record_noisy(tx, agent)

    def _find_stale(self, sessions: Iterable[GuidedSession], now: datetime) -> list[GuidanceFoundStale]:
        """Outdated items that these sessions had in their present wording."""
        session_counts = Counter(item for row in sessions for item in row.items.items())
        leaders = sorted({ref.partition("#")[0] for ref, _ in session_counts})
        stale_patterns = []
        for leader, profile in self._profiles.load(leaders).items():
            outdated = _find_outdated(leader, profile, now)
            for item in select_items(profile):
                session_count = session_counts[item.ref, item.wording]
                if session_count and item.ref in outdated:
                    days, most = outdated[item.ref]
                    event = GuidanceFoundStale(
                        subject=item.ref, leader=leader, wording=item.wording, days=days, most=most, told=session_count
                    )
                    stale_patterns.append(event)
        return stale_patterns


def _find_outdated(leader: str, profile: LeaderProfile, now: datetime) -> dict[str, tuple[int, int]]:
    """The outdated items of a profile."""
    dated = {f"{leader}#patterns/{pattern.key}": find_outdated_age(pattern, now) for pattern in profile.patterns}
    dated |= {
        f"{leader}#recent-decisions/{decision.id}": find_outdated_age(decision, now) for decision in profile.decisions
    }
    return {ref: age for ref, age in dated.items() if age is not None}


def _record_noisy(tx: Transaction, agent: str) -> None:
    """Report the items of an agent's guidance with which it does worse than without."""
    rows = tx.session.exec(
        select(GuidedSession)
        .where(col(GuidedSession.agent) == agent, col(GuidedSession.at) > tx.now - MAX_SESSION_AGE)
        .where(col(GuidedSession.state).in_(("good", "bad")))
    ).all()
    items = count_tallies((row.items, row.state == "bad") for row in rows)
    for (ref, wording), tally in sorted(items.items()):
        if tally.is_noisy:
            event = GuidanceFoundNoisy(
                subject=ref, leader=ref.partition("#")[0], agent=agent, wording=wording, **asdict(tally),
                harm=round(tally.harm, 4),
            )  # fmt: skip
            _record_finding(tx, event)


def _record_finding(tx: Transaction, event: GuidanceFoundNoisy | GuidanceFoundStale) -> None:
    """Record an event once for each item, wording and agent."""
    kind, agent = ("noisy", event.agent) if isinstance(event, GuidanceFoundNoisy) else ("stale", "")
    if tx.session.get(GuidanceFinding, (kind, event.subject, event.wording, agent)) is None:
        tx.session.add(GuidanceFinding(kind=kind, ref=event.subject, wording=event.wording, agent=agent, at=tx.now))
        tx.record(event)

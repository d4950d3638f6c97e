"""Follows in the ledger how sessions ended that carried guidance or an overlay (SPEC 1.10, 5.7), and reports guidance
that is noisy or stale, once (SPEC 5.1).

*Noisy*: an agent's work goes worse with it than without, by more than chance however often it is checked. *Stale*:
older than the limit of its kind.
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
from engine.events import Event, GuidanceFoundNoisy, GuidanceFoundStale
from engine.frozen import frozen
from engine.hierarchy.guidance import guidance_items
from engine.hierarchy.profiles import Profiles
from engine.model import LeaderDecision, LeaderProfile, Pattern
from engine.statistics import Arms, difference_interval
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry
from engine.storage.rows import Row, json_field, utc_field

RowT = TypeVar("RowT", bound=Any)

SESSION_KINDS = frozenset({"SessionEnded", "ValidationFailed"})
"""Kinds of ledger entries whose subject is a session, and that say how it ended."""

CHANGE_KINDS = frozenset(
    {"ChangeSetReady", "ChangeSetLanded", "ChangeSetBranched", "ChangeSetDiscarded", "LandingUndone"}
)
"""Kinds of ledger entries that say what became of the changes of a session, whose id is in their payload."""


def session_id_of(entry: LedgerEntry) -> str:
    """The session that an entry of these kinds is about."""
    return entry.subject if entry.kind in SESSION_KINDS else str(entry.payload.get("session_id", ""))


def next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after an entry about it: "", "open" (its changes wait), "good" or "bad".

    Good is a session that ended well and left no changes, or whose changes were landed or committed. Bad is a session
    that failed, was blocked or stayed red, or whose changes were discarded or undone. The operator's last decision on
    the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or "open"
        case "ChangeSetLanded" | "ChangeSetBranched":
            return "good"
        case "LandingUndone":
            return before if payload.get("left") else "bad"  # other parts stand
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
    """Updates the `state` of the rows of a table, each with a `session_id`, from ledger entries about the session.
    Callable from any thread."""

    def __init__(
        self, database: Database, entries: Ledger, table: type[RowT], *, cursor: str, begins: str = ""
    ) -> None:
        """`begins` is the kind of ledger entry that makes a row, "" if others make the rows."""
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
            self._cursor.each(self._read_entries)
        finally:
            self._busy.release()

    def add_row(self, tx: Transaction, entry: LedgerEntry) -> None:
        """Make the row of an entry of the kind `begins`."""

    def on_state_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the state of these rows changed."""

    def _is_relevant(self, entry: LedgerEntry) -> bool:
        return entry.kind == self._begins or entry.kind in SESSION_KINDS or entry.kind in CHANGE_KINDS

    def _read_entries(self, entries: Sequence[LedgerEntry]) -> None:
        session_ids = {session_id_of(entry) for entry in entries}
        followed = select(self._table.session_id).where(col(self._table.session_id).in_(session_ids)).limit(1)
        begins = any(entry.kind == self._begins for entry in entries)
        with self._database.read() as session:
            if not begins and session.exec(followed).first() is None:  # nearly all sessions went without
                return
        self._database.write(lambda tx: self._apply_entries(tx, entries))

    def _apply_entries(self, tx: Transaction, entries: Sequence[LedgerEntry]) -> None:
        changed: list[RowT] = []
        for entry in entries:
            if entry.kind == self._begins:
                self.add_row(tx, entry)
                continue
            session_id = session_id_of(entry)
            for row in tx.session.exec(select(self._table).where(col(self._table.session_id) == session_id)):
                state = next_outcome(entry.kind, entry.payload, row.state)
                if state != row.state:
                    row.state = state
                    tx.session.add(row)
                    changed.append(row)
        if changed:
            tx.session.flush()
            self.on_state_change(tx, changed)


# -- noisy and stale guidance

MIN_SESSIONS = 10
"""Minimum number of sessions with, and of sessions without, an item before anything is said of it."""

ERROR_RATE = 0.05
"""Maximum share of harmless items that are ever called noisy within `MAX_DECISIONS`: half of that of an effect on
trial, since there are dozens of items."""

MAX_DECISIONS = timedelta(days=90)
"""Sessions that ended longer ago count no more."""

MAX_DECISION_AGE = timedelta(days=30)
"""Maximum age of a recent decision."""

MAX_PATTERN_AGE = timedelta(days=180)
"""Maximum age of knowledge in guidance, from when it was last written or confirmed."""


@frozen
class Tally:
    """Sessions of an agent with an item and without it, and how many of them ended badly."""

    told: int = 0
    told_bad: int = 0
    untold: int = 0
    untold_bad: int = 0

    @property
    def harm(self) -> float:
        """By how much more of the sessions with it end badly, at least (95 % sure at every look); -1 while there are
        too few. The sessions were not drawn by chance: leaders say it or do not."""
        if min(self.told, self.untold) < MIN_SESSIONS:
            return -1.0
        arms = Arms(self.told, self.told - self.told_bad, self.untold, self.untold - self.untold_bad)
        return -difference_interval([arms], ERROR_RATE)[2]

    @property
    def is_noisy(self) -> bool:
        """Whether it does harm."""
        return self.harm > 0


def tallies(sessions: Iterable[tuple[Mapping[str, str], bool]]) -> dict[tuple[str, str], Tally]:
    """How an agent did with and without each item of guidance, by item and wording. A session is the wordings of its
    items, and whether it ended badly."""
    ended_sessions = list(sessions)
    bad = sum(ended for _, ended in ended_sessions)
    carried, carried_bad = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for wordings, ended in ended_sessions:
        carried.update(wordings.items())
        carried_bad.update(dict.fromkeys(wordings.items(), int(ended)))
    return {
        item: Tally(carried[item], carried_bad[item], len(ended_sessions) - carried[item], bad - carried_bad[item])
        for item in carried
    }


def is_outdated(pattern: Pattern | LeaderDecision, now: datetime) -> tuple[int, int] | None:
    """How old an item is that is past its time, and how old its kind may be, in whole days; None for one that is not,
    or that has no date."""
    most = MAX_PATTERN_AGE if isinstance(pattern, Pattern) else MAX_DECISION_AGE
    return None if pattern.at is None or now - pattern.at <= most else ((now - pattern.at).days, most.days)


CURSOR = "hierarchy.guided"

GUIDED = "GuidanceApplied"


class GuidedSession(Row, table=True):
    """A session with guidance: its items with their wordings, and its outcome until now (`next_outcome`)."""

    __tablename__ = "guided_sessions"

    session_id: str = Field(primary_key=True)
    agent: str
    workspace: str
    items: dict[str, str] = json_field()
    state: str = ""
    at: datetime = utc_field()


class GuidanceFinding(Row, table=True):
    """A report of an item in one wording: the `agent` for whom it is noisy, "" when it is stale."""

    __tablename__ = "guidance_findings"

    kind: str = Field(primary_key=True)
    ref: str = Field(primary_key=True)
    wording: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    at: datetime = utc_field()


class GuidedSessions(SessionFollower[GuidedSession]):
    """Keeps guided sessions and what became of them. Callable from any thread."""

    def __init__(
        self,
        database: Database,
        profiles: Profiles,
        *,
        clock: Clock,
        ledger: Ledger,
    ) -> None:
        super().__init__(database, ledger, GuidedSession, cursor=CURSOR, begins=GUIDED)
        self._profiles = profiles
        self._clock = clock

    def review(self) -> None:
        """Report outdated guidance of the last 30 days, and delete rows that no longer count."""
        now = self._clock.now()
        with self._database.read() as session:
            recent = session.exec(select(GuidedSession).where(col(GuidedSession.at) > now - MAX_DECISION_AGE)).all()
        stale = self._stale(recent, now)

        def store_review(tx: Transaction) -> None:
            for key, event in stale:
                _record_finding(tx, key, event)
            tx.session.exec(delete(GuidedSession).where(col(GuidedSession.at) <= now - MAX_DECISIONS))

        self._database.write(store_review)

    def add_row(self, tx: Transaction, fact: LedgerEntry) -> None:
        """Store the guidance of a session."""
        payload = fact.payload
        wordings = dict(zip(payload["items"], payload["wordings"], strict=True))
        if not payload["session_id"] or not wordings:
            return
        row = tx.session.get(GuidedSession, payload["session_id"]) or GuidedSession(
            session_id=payload["session_id"], agent=fact.subject, workspace=fact.workspace, items={}, at=fact.at
        )
        row.items = {**row.items, **wordings}
        tx.session.add(row)

    def on_state_change(self, tx: Transaction, rows: Sequence[GuidedSession]) -> None:
        """Report the guidance that proved noisy."""
        for agent in sorted({row.agent for row in rows if row.state in ("good", "bad")}):
            _record_noisy(tx, agent)

    def _stale(
        self, sessions: Iterable[GuidedSession], now: datetime
    ) -> list[tuple[tuple[str, str, str, str], GuidanceFoundStale]]:
        carried = Counter(item for row in sessions for item in row.items.items())
        stale = []
        for leader, profile in self._profiles.load(sorted({ref.partition("#")[0] for ref, _ in carried})).items():
            outdated = _outdated_items(leader, profile, now)
            for item in guidance_items(profile):
                key = item.ref, item.wording
                if key in carried and item.ref in outdated:
                    days, most = outdated[item.ref]
                    event = GuidanceFoundStale(
                        subject=item.ref, leader=leader, wording=item.wording, days=days, most=most, told=carried[key]
                    )
                    stale.append((("stale", *key, ""), event))
        return stale


def _outdated_items(leader: str, profile: LeaderProfile, now: datetime) -> dict[str, tuple[int, int]]:
    """The outdated items of a profile."""
    dated = {f"{leader}#patterns/{pattern.key}": is_outdated(pattern, now) for pattern in profile.patterns}
    dated |= {f"{leader}#recent-decisions/{decision.id}": is_outdated(decision, now) for decision in profile.decisions}
    return {ref: age for ref, age in dated.items() if age is not None}


def _record_noisy(tx: Transaction, agent: str) -> None:
    """Report the items of an agent's guidance with which it does worse than without."""
    rows = tx.session.exec(
        select(GuidedSession)
        .where(col(GuidedSession.agent) == agent, col(GuidedSession.at) > tx.now - MAX_DECISIONS)
        .where(col(GuidedSession.state).in_(("good", "bad")))
    ).all()
    items = tallies((row.items, row.state == "bad") for row in rows)
    for (ref, wording), tally in sorted(items.items()):
        if tally.is_noisy:
            event = GuidanceFoundNoisy(
                subject=ref, leader=ref.partition("#")[0], agent=agent, wording=wording, **asdict(tally),
                harm=round(tally.harm, 4),
            )  # fmt: skip
            _record_finding(tx, ("noisy", ref, wording, agent), event)


def _record_finding(tx: Transaction, key: tuple[str, str, str, str], event: Event) -> None:
    """Record an event once for each item, wording and agent."""
    if tx.session.get(GuidanceFinding, key) is not None:
        return
    kind, ref, wording, agent = key
    tx.session.add(GuidanceFinding(kind=kind, ref=ref, wording=wording, agent=agent, at=tx.now))
    tx.record(event)

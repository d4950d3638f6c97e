"""Follows how sessions end, and reports noisy and stale guidance once (SPEC 1.10, 5.1, 5.7).

A `SessionFollower` keeps the outcomes of sessions by what the ledger says: of those that had guidance in their prompts
(`GuidedSessions`), and of those in the trial of a candidate (`learning.candidates.overlays`).

Guidance is *noisy* for an agent if the agent's work goes worse with it than without it, by more than chance. The test
stays valid however often it is repeated. Guidance is *stale* if it is older than the limit of its kind.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from sqlmodel import Field

from engine.events import Event
from engine.events.learning import GuidanceApplied, GuidanceFoundNoisy, GuidanceFoundStale
from engine.hierarchy.guidance import select_items
from engine.hierarchy.profiles import Profiles
from engine.inference import Arms, compute_difference_interval
from engine.storage import Row, ask, load_all, read_all, state
from engine.storage.database import Database, Transaction
from engine.storage.ledger import Ledger, LedgerCursor, LedgerEntry

UNKNOWN = ""
OPEN = "open"
GOOD = "good"
BAD = "bad"
"""The outcomes. A session is open while its changes wait for the operator."""

OUTCOME_KINDS = frozenset(
    {
        "SessionEnded",
        "ValidationFailed",
        "ChangeSetReady",
        "ChangeSetLanded",
        "ChangeSetBranched",
        "ChangeSetDiscarded",
        "LandingUndone",
    }
)
"""Kinds of ledger entries that may change the outcome of a session."""

RowT = TypeVar("RowT", bound=Any)


def compute_next_outcome(kind: str, payload: Mapping[str, object], before: str) -> str:
    """The outcome of a session after a ledger entry about it.

    A session is good if it ended well and left no changes, or if its changes were landed or committed. It is bad if it
    failed, was blocked or its tests still fail, or if its changes were discarded or undone. The operator's last
    decision on the changes counts. A session that was cancelled or interrupted has no outcome.
    """
    match kind:
        case "ChangeSetReady":
            return before or OPEN
        case "ChangeSetLanded" | "ChangeSetBranched":
            return GOOD
        case "LandingUndone":
            return before if payload.get("left") else BAD  # a part of the changes is still landed
        case "ChangeSetDiscarded":
            return UNKNOWN if payload.get("continued_in") else BAD
        case "ValidationFailed":
            return BAD
        case "SessionEnded" if payload.get("state") in ("failed", "blocked"):
            return BAD
        case "SessionEnded" if payload.get("state") == "succeeded":
            return before or GOOD
    return before


class SessionFollower(Generic[RowT]):
    """Keeps the outcome of the session of each row of a table in the row's `outcome`. Callable from any thread."""

    def __init__(self, database: Database, ledger: Ledger, table: type[RowT], *, cursor: str) -> None:
        self._database = database
        self._table = table
        self._cursor = LedgerCursor(ledger, cursor, lambda entry: entry.kind in OUTCOME_KINDS)
        self._lock = threading.Lock()

    def catch_up(self) -> None:
        """Read the new ledger entries."""
        with self._lock:
            self._cursor.handle_new(lambda entries: self._database.write(partial(self._apply_entries, entries)))

    def on_outcome_change(self, tx: Transaction, rows: Sequence[RowT]) -> None:
        """Called after the outcomes of these rows changed."""

    def _apply_entries(self, entries: Sequence[LedgerEntry], tx: Transaction) -> None:
        changed: list[RowT] = []
        for entry in entries:
            for row in load_all(tx.session, self._table, "WHERE session_id = :id", {"id": entry.session_id}):
                outcome = compute_next_outcome(entry.kind, entry.payload, row.outcome)
                if outcome != row.outcome:
                    row.outcome = outcome
                    changed.append(row)
        if changed:
            self.on_outcome_change(tx, changed)


# -- sessions with guidance

CURSOR_NAME = "hierarchy.guided"
"""Name of the cursor in the ledger."""

REPORTED_KEY_PREFIX = "hierarchy.reported."
"""Prefix of a key in the state table for each finding about guidance that was reported."""

MIN_SESSIONS = 10
"""Minimum number of sessions with an item, and of sessions without it, before the item can be called noisy."""

ERROR_RATE = 0.05
"""Maximum share of harmless items that are ever called noisy within `MAX_SESSION_AGE`. It is half of that for effects
on trial, because there are dozens of items."""

MAX_SESSION_AGE = timedelta(days=90)
"""Maximum age of a session that counts."""

MAX_AGES = {"recent-decisions": timedelta(days=30), "patterns": timedelta(days=180)}
"""Maximum age of an item of guidance by its section: of a decision, and of a pattern since it was last written or
confirmed. An item of a soul has no date."""

RECENT_SPAN = timedelta(days=30)
"""Guidance is stale if it was in a session of this time."""


def measure_harm(arms: Arms) -> float:
    """By how much, at least, the share of bad sessions is larger with an item than without it, with 95 % certainty over
    all checks; -1 if there are too few sessions. The two groups are not random: leaders choose what they say."""
    if min(arms.with_runs, arms.without_runs) < MIN_SESSIONS:
        return -1.0
    return -compute_difference_interval([arms], ERROR_RATE).high


def count_arms(sessions: Sequence[tuple[Mapping[str, str], bool]]) -> dict[tuple[str, str], Arms]:
    """Count an agent's sessions with and without each item of guidance, by item and wording. `sessions` are (wording of
    each item, whether the session ended well)."""
    arms = {}
    for item in sorted({item for wordings, _ in sessions for item in wordings.items()}):
        numbers = Counter((item in wordings.items(), ended_well) for wordings, ended_well in sessions)
        with_good, without_good = numbers[True, True], numbers[False, True]
        arms[item] = Arms(
            with_good + numbers[True, False], with_good, without_good + numbers[False, False], without_good
        )
    return arms


class GuidedSession(Row, table=True):
    """A session with guidance: its items with their wordings, and its outcome so far."""

    __tablename__ = "guided_sessions"

    session_id: str = Field(primary_key=True)
    agent: str
    items: dict[str, str]
    outcome: str = Field(default=UNKNOWN, sa_column_kwargs={"name": "state"})
    at: datetime


class GuidedSessions(SessionFollower[GuidedSession]):
    """Stores guided sessions and their outcomes. Callable from any thread."""

    def __init__(self, database: Database, profiles: Profiles, *, ledger: Ledger) -> None:
        super().__init__(database, ledger, GuidedSession, cursor=CURSOR_NAME)
        self._profiles = profiles

    def record_applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, agent: str, call: str, session_id: str, workspace: str
    ) -> None:
        """Record that a model call of this agent had the guidance in `provenance`, count a use of each of its patterns,
        and follow the session."""
        if not provenance.get("guidance_applied"):
            return
        items, wordings = provenance["guidance_items"], provenance["guidance_wordings"]
        refs = (ref.partition("#patterns/") for ref in items)
        self._profiles.record_uses(tx, ((leader, key) for leader, _, key in refs if key))
        tx.record(
            GuidanceApplied(
                subject=agent,
                workspace=workspace,
                session_id=session_id,
                call=call,
                chain=tuple(provenance["leadership_chain"]),
                sources=tuple(provenance["guidance_sources"]),
                items=tuple(items),
                wordings=tuple(wordings),
                tokens=provenance["guidance_tokens"],
            )
        )
        if session_id:
            fresh = GuidedSession(session_id=session_id, agent=agent, items={}, at=tx.now)
            row = tx.session.get(GuidedSession, session_id) or fresh
            row.items = {**row.items, **dict(zip(items, wordings, strict=True))}
            tx.session.add(row)

    def on_outcome_change(self, tx: Transaction, rows: Sequence[GuidedSession]) -> None:
        """Report the guidance that proved noisy."""
        for agent in sorted({row.agent for row in rows if row.outcome in (GOOD, BAD)}):
            _report_noisy(tx, agent)

    def review(self) -> None:
        """Report outdated guidance in sessions of the last 30 days, and delete sessions that no longer count."""

        def store_review(tx: Transaction) -> None:
            recent = read_all(tx.session, GuidedSession, "WHERE at > :since", {"since": tx.now - RECENT_SPAN})
            self._report_stale(tx, Counter(item for row in recent for item in row.items.items()))
            ask(tx.session, "DELETE FROM guided_sessions WHERE at <= :until", {"until": tx.now - MAX_SESSION_AGE})

        self._database.write(store_review)

    def _report_stale(self, tx: Transaction, session_counts: Mapping[tuple[str, str], int]) -> None:
        """Report outdated items; `session_counts` are the numbers of sessions that had them, by item and wording."""
        leaders = sorted({ref.partition("#")[0] for ref, _ in session_counts})
        for leader, profile in self._profiles.read_within(tx.session, leaders).items():
            for item in select_items(profile):
                session_count, max_age = session_counts.get((item.ref, item.wording)), MAX_AGES.get(item.section)
                if session_count and max_age and item.at and tx.now - item.at > max_age:
                    event = GuidanceFoundStale(
                        subject=item.ref,
                        leader=leader,
                        wording=item.wording,
                        days=(tx.now - item.at).days,
                        most=max_age.days,
                        told=session_count,
                    )
                    _report_once(tx, event, item.wording)


_JUDGED_SESSIONS = f"WHERE agent = :agent AND at > :since AND state IN ('{GOOD}', '{BAD}')"
"""The sessions of an agent that ended well or badly."""


def _report_noisy(tx: Transaction, agent: str) -> None:
    """Report the items of an agent's guidance with which it does worse than without."""
    values = {"agent": agent, "since": tx.now - MAX_SESSION_AGE}
    rows = read_all(tx.session, GuidedSession, _JUDGED_SESSIONS, values)
    for (ref, wording), arms in count_arms([(row.items, row.outcome == GOOD) for row in rows]).items():
        harm = measure_harm(arms)
        if harm > 0:
            event = GuidanceFoundNoisy(
                subject=ref,
                leader=ref.partition("#")[0],
                agent=agent,
                wording=wording,
                told=arms.with_runs,
                told_bad=arms.with_runs - arms.with_good,
                untold=arms.without_runs,
                untold_bad=arms.without_runs - arms.without_good,
                harm=round(harm, 4),
            )
            _report_once(tx, event, wording, agent)


def _report_once(tx: Transaction, event: Event, *about: str) -> None:
    """Record an event once for each item, wording and agent."""
    key = REPORTED_KEY_PREFIX + " ".join((event.kind, event.subject, *about))
    if not state.get(tx.session, key):
        state.put(tx, key, value=True)
        tx.record(event)

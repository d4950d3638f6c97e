"""For how long the ledger's tables are kept, and what of them is still needed (SPEC 4.2). When in doubt a row stays.

Never touched, since everything else is made of them: cards, decisions, preference pairs, candidates and their
runs, sessions, learnings. What these name stays as well, as each rule says.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlmodel import Session

from engine.learning.candidates.adaptation import LAST_PROCESSED
from engine.storage import state
from engine.storage.ledger import MAX_CACHED as NEWEST
from engine.storage.retention import RetentionRounds, Rule

if TYPE_CHECKING:
    from engine.services import Services

MAX_RUNS = 50
"""Number of the newest runs of a workspace's checks that stay, of the operator's files and of agents' each (20 are
read)."""

_OPEN_SESSION = "SELECT id FROM sessions WHERE state IN ('queued', 'running')"
_OPEN_CARD = "SELECT id FROM predictions WHERE status IN ('pending', 'confirmed')"

RECORDS = Rule(
    "learning_records",
    "at",
    key="seq",
    kind="t.kind",
    values=lambda session: {"digested": int(state.get(session, LAST_PROCESSED, 0))},
    deletable_when=(
        "t.seq <= :digested AND t.seq < (SELECT max(seq) FROM learning_records) AND t.id NOT IN ("
        "SELECT value FROM candidates, json_each(drafted_from) UNION ALL "
        "SELECT value FROM candidates, json_each(corroborated_by) UNION ALL "
        "SELECT value FROM candidates, json_each(against))"
    ),
)
"""Kept: what a candidate names, for or against (its provenance), what was not digested yet, and the newest."""

RUNS = Rule(
    "validation_runs",
    "ran_at",
    kind="CASE WHEN t.failed + t.errors > 0 THEN 'red' ELSE 'green' END",
    deletable_when=(
        "t.id NOT IN (SELECT n.id FROM (SELECT r.id, row_number() OVER (PARTITION BY r.changed ORDER BY r.id DESC) "
        f"AS place FROM validation_runs r WHERE r.workspace = :workspace) n WHERE n.place <= {MAX_RUNS}) "
        f"AND t.session_id NOT IN ({_OPEN_SESSION})"
    ),
)
"""Kept: the newest of a workspace, which say what is red and since when, and those of sessions that go on."""

COSTS = Rule(
    "cost_entries",
    "at",
    kind="CASE t.state WHEN 'released' THEN t.state ELSE t.purpose END",
    money="t.amount_microusd",
    deletable_when=(
        "t.state <> 'reserved' AND (t.state = 'released' OR t.prediction_id IS NULL) "
        f"AND coalesce(t.session_id, '') NOT IN ({_OPEN_SESSION}) "
        "AND t.id NOT IN (SELECT cost_entry FROM training_runs WHERE cost_entry IS NOT NULL) "
        "AND t.id < (SELECT max(id) FROM cost_entries)"
    ),
)
"""Kept: what is reserved, which counts in every cap; what a card cost, of which its figures are made for ever; what a
training run cost; what goes on. So calls beside cards go (`twin`, `judge`, `extraction`), and what was given back. The
windows of the caps reach back a month at most, which the settings' fewest days do not fall below."""

TRIGGERS = Rule(
    "crosspoll_log",
    "created_at",
    kind="'blocked'",
    deletable_when=(
        "t.blocked AND t.id < (SELECT max(id) FROM crosspoll_log) "
        f"AND coalesce(t.prediction_id, '') NOT IN ({_OPEN_CARD})"
    ),
)
"""Kept: every trigger that was let through (by these the gate knows new pairs of channels, and cards their sessions);
blocked ones of cards that are open, which *allow once* reads; the newest. So old blocked ones go."""


def events(followers: Set[str]) -> Rule:
    """The ledger itself. Its sums by day are kept by its own trigger too, and a row that goes stays counted there.

    Kept: what a durable follower has not read, by the cursors under the keys `followers`, and its days are counted back
    from the first such fact, since a reader may look back from it; the newest, from which ids go on and which readers
    hold; facts that records of learning were made of, or that a notification tells of which may yet be sent; what
    happened to sessions and cards that are open.
    """
    return Rule(
        "memory_events",
        "at",
        kind="t.kind",
        values=lambda session: {"bound": min(_newest(session) - NEWEST, _read(session, followers))},
        since=lambda session, now: _unread(session, _read(session, followers), now),
        deletable_when=(
            "t.id <= :bound AND t.id NOT IN (SELECT fact FROM learning_records) "
            "AND t.id NOT IN (SELECT fact_id FROM notifications WHERE standing IN ('waiting', 'dead')) "
            f"AND t.subject NOT IN ({_OPEN_SESSION}) AND t.subject NOT IN ({_OPEN_CARD})"
        ),
    )


def build(core: Services) -> None:
    """Build the rounds of retention. The records come before the facts that they were made of."""
    rules = (RECORDS, RUNS, COSTS, TRIGGERS, events(core.ledger.cursors.keys()))
    core.retention = RetentionRounds(
        core.database, core.clock, rules, lambda table, workspace: core.settings.current.kept_days(table, workspace)
    )


def _newest(session: Session) -> int:
    return int(session.connection().execute(text("SELECT coalesce(max(id), 0) FROM memory_events")).scalar_one())


def _read(session: Session, followers: Set[str]) -> int:
    """Up to which fact all of them have read."""
    return min((int(state.get(session, key, 0)) for key in followers), default=0)


def _unread(session: Session, read: int, now: datetime) -> datetime:
    """The time of the first fact after `read`, or now."""
    query = text("SELECT at FROM memory_events WHERE id > :read ORDER BY id LIMIT 1")
    first_at = session.connection().execute(query, {"read": read}).scalar()
    return now if first_at is None else min(now, datetime.fromisoformat(first_at))

"""Synchronises profiles with a PostgreSQL that several machines share (SPEC 1.9), such as Supabase; local first.

Rows merge in any order (see `profiles`), so an interrupted exchange is simply repeated. A failure never blocks work;
it is reported once, as `CloudSyncFailed`, until an exchange succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import sqlalchemy
from sqlmodel import col, select

from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import is_leader
from engine.hierarchy.profile_items import SECTIONS, PatternUse, ProfileEntry
from engine.hierarchy.profiles import Profiles
from engine.model import Refusal
from engine.storage import state
from engine.storage.database import Database, Transaction
from engine.storage.rows import table_of
from engine.storage.shared import Outage, SharedDatabase, lock

CURSOR = "hierarchy.shared_cursor"
STORE = "hierarchy.shared_store"


@frozen
class Fetched:
    """Rows that came after a cursor, and the cursor for the next time."""

    entries: Sequence[ProfileEntry]
    uses: Sequence[PatternUse]
    cursor: int


PAGE_ROWS = 1_000
"""Rows that are fetched at once."""

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS clawpy_profile_seq",
    "CREATE TABLE IF NOT EXISTS clawpy_profile_entries ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_profile_seq'), leader text NOT NULL, section text NOT NULL, "
    "key text NOT NULL, version text NOT NULL, body jsonb NOT NULL, at timestamptz NOT NULL, origin text NOT NULL, "
    "sources jsonb NOT NULL, PRIMARY KEY (leader, section, key, version))",
    "CREATE TABLE IF NOT EXISTS clawpy_pattern_uses ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_profile_seq'), leader text NOT NULL, key text NOT NULL, "
    "origin text NOT NULL, uses integer NOT NULL, last_used_at timestamptz NOT NULL, "
    "PRIMARY KEY (leader, key, origin))",
)

_ENTRY = (
    "INSERT INTO clawpy_profile_entries AS held (leader, section, key, version, body, at, origin, sources) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (leader, section, key, version) "
    "DO UPDATE SET body = EXCLUDED.body, seq = nextval('clawpy_profile_seq') "
    "WHERE EXCLUDED.body = '{}' AND held.body <> '{}'"
)
_USE = (
    "INSERT INTO clawpy_pattern_uses AS held (leader, key, origin, uses, last_used_at) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (leader, key, origin) DO UPDATE SET uses = EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at, "
    "seq = nextval('clawpy_profile_seq') WHERE EXCLUDED.uses > held.uses"
)
_SEQUENCE_NUMBERS = (
    "SELECT seq FROM clawpy_profile_entries WHERE seq > %s "
    "UNION ALL SELECT seq FROM clawpy_pattern_uses WHERE seq > %s ORDER BY seq LIMIT %s"
)


class PostgresStore:
    """The shared tables behind one database URL. Methods raise what `SharedDatabase.connect` raises."""

    def __init__(self, url: str) -> None:
        self._shared = SharedDatabase(url, SCHEMA)
        self.name = self._shared.name

    def push(self, entries: Sequence[ProfileEntry], uses: Sequence[PatternUse]) -> None:
        """Add rows, all or none."""
        with self._shared.connect() as connection:
            lock(connection)
            cursor = connection.cursor()
            cursor.executemany(
                _ENTRY,
                [
                    (
                        entry.leader, entry.section, entry.key, entry.version, json.dumps(dict(entry.body)), entry.at,
                        entry.origin,
                        json.dumps([[from_.learning, from_.agent, from_.session] for from_ in entry.learnt]),
                    )
                    for entry in entries
                ],
            )  # fmt: skip
            cursor.executemany(_USE, [(u.leader, u.key, u.origin, u.uses, u.last_used_at) for u in uses])

    def fetch(self, cursor: int) -> Fetched:
        """The next rows after `cursor`, at most `PAGE_ROWS`."""
        with self._shared.connect() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            numbers = connection.execute(_SEQUENCE_NUMBERS, (cursor, cursor, PAGE_ROWS)).fetchall()
            if not numbers:
                return Fetched((), (), cursor)
            last = int(numbers[-1][0])
            entries = connection.execute(
                "SELECT leader, section, key, body, at, origin, sources, version FROM clawpy_profile_entries "
                "WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
            uses = connection.execute(
                "SELECT leader, key, origin, uses, last_used_at FROM clawpy_pattern_uses WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
        return Fetched(
            [_entry(row) for row in entries if row[1] in SECTIONS],  # a newer version may know more of them
            [
                PatternUse(leader=leader, key=key, origin=origin, uses=count, last_used_at=at.astimezone(UTC))
                for leader, key, origin, count, at in uses
            ],
            last,
        )


def _entry(row: Sequence[Any]) -> ProfileEntry:
    leader, section, key, body, at, origin, sources, version = row
    source_fields = [{"learning": learning, "agent": agent, "session": session} for learning, agent, session in sources]
    return ProfileEntry(
        leader=leader, section=section, key=key, version=version, body=body, at=at.astimezone(UTC), origin=origin,
        sources=source_fields,
    )  # fmt: skip


class Sharing:
    """Exchanges with the shared leadership, None for none. One exchange at a time."""

    def __init__(
        self,
        database: Database,
        profiles: Profiles,
        agents: Agents,
        store: PostgresStore | None,
    ) -> None:
        self._agents = agents
        self._database = database
        self._profiles = profiles
        self._store = store
        self._outage = Outage(database, "leadership", lambda: sum(len(rows) for rows in self._unsent()))

    def exchange(self) -> str:
        """Send what is unsent and fetch what is new. Returns in words what failed, "" for nothing; never raises."""
        return self._outage.guard(self._exchange)

    def _is_shared(self, leader: str) -> bool:
        """Whether the profile of a leader is shared between machines: by its tier, or because the agent is gone (SPEC
        1.3)."""
        try:
            return is_leader(self._agents.get(leader).tier)
        except Refusal:
            return True

    def _exchange(self) -> None:
        if self._store is not None:
            self._reset_for_new_store(self._store)
            self._send(self._store)
            self._fetch(self._store)

    def _unsent(self) -> tuple[list[ProfileEntry], list[PatternUse]]:
        """The rows of shared leaders that the store has not confirmed."""
        with self._database.read() as session:
            entries = session.exec(select(ProfileEntry).where(col(ProfileEntry.unsent))).all()
            uses = session.exec(select(PatternUse).where(col(PatternUse.unsent))).all()
        shared = set(filter(self._is_shared, {row.leader for row in entries} | {row.leader for row in uses}))
        return [row for row in entries if row.leader in shared], [row for row in uses if row.leader in shared]

    def _reset_for_new_store(self, store: PostgresStore) -> None:
        """A store that is not the one of the last time has nothing of ours yet."""
        with self._database.read() as session:
            last_store = state.get(session, STORE, "")
        if last_store != store.name:

            def anew(tx: Transaction) -> None:
                for table in (ProfileEntry, PatternUse):
                    tx.session.connection().execute(sqlalchemy.update(table).values(unsent=True))
                state.put(tx, STORE, store.name)

            self._database.write(anew)

    def _send(self, store: PostgresStore) -> None:
        entries, uses = self._unsent()
        if not entries and not uses:
            return
        store.push(entries, uses)

        def mark(tx: Transaction) -> None:
            for row in (*entries, *uses):
                keys = [column.name for column in table_of(type(row)).primary_key]
                # A use that was counted further meanwhile stays unsent.
                names = [*keys, "uses"] if isinstance(row, PatternUse) else keys
                same = [getattr(type(row), name) == getattr(row, name) for name in names]
                tx.session.connection().execute(sqlalchemy.update(type(row)).where(*same).values(unsent=False))

        self._database.write(mark)

    def _fetch(self, store: PostgresStore) -> None:
        key = f"{CURSOR}.{store.name}"
        while True:
            with self._database.read() as session:
                cursor = int(state.get(session, key, 0))
            page = store.fetch(cursor)
            if page.cursor == cursor:
                return

            def take(tx: Transaction, page: Fetched = page) -> None:
                self._profiles.merge_rows(tx, page.entries, page.uses, unsent=False)
                state.put(tx, key, page.cursor)

            self._database.write(take)

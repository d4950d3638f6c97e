"""A leadership that several machines share, in a PostgreSQL (SPEC 1.9); Supabase is one.

Two tables that only grow; a version that was forgotten loses its words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from engine.hierarchy.profiles import SECTIONS, WisdomEntry, WisdomUse
from engine.hierarchy.sharing import Fetched
from engine.storage.shared import SharedDatabase, lock

PAGE = 1_000
"""Rows that are fetched at once."""

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS clawpy_wisdom_seq",
    "CREATE TABLE IF NOT EXISTS clawpy_wisdom_entries ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_wisdom_seq'), leader text NOT NULL, section text NOT NULL, "
    "key text NOT NULL, version text NOT NULL, body jsonb NOT NULL, at timestamptz NOT NULL, origin text NOT NULL, "
    "sources jsonb NOT NULL, PRIMARY KEY (leader, section, key, version))",
    "CREATE TABLE IF NOT EXISTS clawpy_wisdom_uses ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_wisdom_seq'), leader text NOT NULL, key text NOT NULL, "
    "origin text NOT NULL, uses integer NOT NULL, last_used_at timestamptz NOT NULL, "
    "PRIMARY KEY (leader, key, origin))",
)

_ENTRY = (
    "INSERT INTO clawpy_wisdom_entries AS held (leader, section, key, version, body, at, origin, sources) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (leader, section, key, version) "
    "DO UPDATE SET body = EXCLUDED.body, seq = nextval('clawpy_wisdom_seq') "
    "WHERE EXCLUDED.body = '{}' AND held.body <> '{}'"
)
_USE = (
    "INSERT INTO clawpy_wisdom_uses AS held (leader, key, origin, uses, last_used_at) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (leader, key, origin) DO UPDATE SET uses = EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at, "
    "seq = nextval('clawpy_wisdom_seq') WHERE EXCLUDED.uses > held.uses"
)
_NUMBERS = (
    "SELECT seq FROM clawpy_wisdom_entries WHERE seq > %s UNION ALL SELECT seq FROM clawpy_wisdom_uses WHERE seq > %s "
    "ORDER BY seq LIMIT %s"
)


class PostgresStore:
    """The shared tables behind one database URL. Methods raise what `SharedDatabase.connect` raises."""

    def __init__(self, url: str) -> None:
        self._shared = SharedDatabase(url, SCHEMA)
        self.name = self._shared.name

    def push(self, entries: Sequence[WisdomEntry], uses: Sequence[WisdomUse]) -> None:
        """Add rows, all or none."""
        with self._shared.connect() as connection:
            lock(connection)
            cursor = connection.cursor()
            cursor.executemany(
                _ENTRY,
                [
                    (
                        one.leader, one.section, one.key, one.version, json.dumps(dict(one.body)), one.at, one.origin,
                        json.dumps([[from_.learning, from_.agent, from_.session] for from_ in one.learnt]),
                    )
                    for one in entries
                ],
            )  # fmt: skip
            cursor.executemany(_USE, [(u.leader, u.key, u.origin, u.uses, u.last_used_at) for u in uses])

    def fetch(self, cursor: int) -> Fetched:
        """The next rows after `cursor`, at most `PAGE`."""
        with self._shared.connect() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            numbers = connection.execute(_NUMBERS, (cursor, cursor, PAGE)).fetchall()
            if not numbers:
                return Fetched((), (), cursor)
            last = int(numbers[-1][0])
            entries = connection.execute(
                "SELECT leader, section, key, body, at, origin, sources, version FROM clawpy_wisdom_entries "
                "WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
            uses = connection.execute(
                "SELECT leader, key, origin, uses, last_used_at FROM clawpy_wisdom_uses WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
        return Fetched(
            [_entry(row) for row in entries if row[1] in SECTIONS],  # a newer version may know more of them
            [
                WisdomUse(leader=leader, key=key, origin=origin, uses=count, last_used_at=at.astimezone(UTC))
                for leader, key, origin, count, at in uses
            ],
            last,
        )


def _entry(row: Sequence[Any]) -> WisdomEntry:
    leader, section, key, body, at, origin, sources, version = row
    told = [{"learning": learning, "agent": agent, "session": session} for learning, agent, session in sources]
    return WisdomEntry(
        leader=leader, section=section, key=key, version=version, body=body, at=at.astimezone(UTC), origin=origin,
        sources=told,
    )  # fmt: skip

"""A leadership that several machines share, in a PostgreSQL (SPEC 1.9); Supabase is one.

Two tables that only grow. Every row gets a number from one sequence, and whoever writes holds one lock until its
commit: so numbers become visible in their order, and who read up to one of them missed nothing below it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from engine.hierarchy.profiles import SECTIONS, Entry, Use
from engine.hierarchy.sharing import Fetched
from engine.values import PatternSource, Refusal

if TYPE_CHECKING:
    import psycopg

PAGE = 1_000
"""Rows that are fetched at once."""

CONNECT_SECONDS = 5
STATEMENT_MS = 10_000
LOCK = 0x636C6177
"""The advisory lock of writers."""

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
    "INSERT INTO clawpy_wisdom_entries (leader, section, key, version, body, at, origin, sources) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
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
    """The shared tables behind one database URL. Each call has a connection of its own, so that none goes stale.

    Methods raise what psycopg raises, and `Refusal` `no_psycopg` where that is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = hashlib.sha256(url.encode()).hexdigest()[:12]
        self._made = False

    def push(self, entries: Sequence[Entry], uses: Sequence[Use]) -> None:
        """Add rows, all or none."""
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            cursor = connection.cursor()
            cursor.executemany(
                _ENTRY,
                [
                    (
                        one.leader, one.section, one.key, one.version, json.dumps(dict(one.body)), one.at, one.origin,
                        json.dumps([[from_.learning, from_.agent, from_.session] for from_ in one.sources]),
                    )
                    for one in entries
                ],
            )  # fmt: skip
            cursor.executemany(_USE, [(u.leader, u.key, u.origin, u.uses, u.last_used_at) for u in uses])

    def fetch(self, cursor: int) -> Fetched:
        """The next rows after `cursor`, at most `PAGE`."""
        with self._connect() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            numbers = connection.execute(_NUMBERS, (cursor, cursor, PAGE)).fetchall()
            if not numbers:
                return Fetched((), (), cursor)
            last = int(numbers[-1][0])
            entries = connection.execute(
                "SELECT leader, section, key, body, at, origin, sources FROM clawpy_wisdom_entries "
                "WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
            uses = connection.execute(
                "SELECT leader, key, origin, uses, last_used_at FROM clawpy_wisdom_uses WHERE seq > %s AND seq <= %s",
                (cursor, last),
            ).fetchall()
        return Fetched(
            [_entry(row) for row in entries if row[1] in SECTIONS],  # a newer version may know more of them
            [Use(leader, key, origin, count, at.astimezone(UTC)) for leader, key, origin, count, at in uses],
            last,
        )

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            import psycopg
        except ImportError as error:
            raise Refusal(
                "no_psycopg",
                "the shared leadership is in a PostgreSQL, and psycopg is not installed",
                "install clawpy-console[postgres]",
            ) from error
        options = f"-c statement_timeout={STATEMENT_MS}"
        connection = psycopg.connect(self._url, connect_timeout=CONNECT_SECONDS, options=options)
        if not self._made:
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                    for statement in SCHEMA:
                        connection.execute(statement)
            except BaseException:
                connection.close()
                raise
            self._made = True
        return connection


def _entry(row: Sequence[Any]) -> Entry:
    leader, section, key, body, at, origin, sources = row
    told = tuple(PatternSource(learning, agent, session) for learning, agent, session in sources)
    return Entry(leader, section, key, body, at.astimezone(UTC), origin, told)

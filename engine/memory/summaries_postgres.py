"""Summaries that machines share, in a PostgreSQL (SPEC 4.5): one table, beside that of the leadership."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC

from engine.memory.summaries import SharedSummary
from engine.storage.shared import SharedDatabase, lock

PAGE = 500
"""Rows that are fetched at once."""

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS clawpy_summaries_seq",
    "CREATE TABLE IF NOT EXISTS clawpy_summaries ("
    "seq bigint NOT NULL UNIQUE DEFAULT nextval('clawpy_summaries_seq'), id text PRIMARY KEY, project text NOT NULL, "
    "text text NOT NULL, agent text NOT NULL, session text NOT NULL, ref text NOT NULL, tags jsonb NOT NULL, "
    "at timestamptz NOT NULL, origin text NOT NULL, gone boolean NOT NULL DEFAULT false)",
    "CREATE INDEX IF NOT EXISTS clawpy_summaries_project ON clawpy_summaries (project, seq)",
)

_ADD = (
    "INSERT INTO clawpy_summaries (id, project, text, agent, session, ref, tags, at, origin) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_GONE = (
    "UPDATE clawpy_summaries SET text = '', agent = '', session = '', ref = '', tags = '[]', gone = true, "
    "seq = nextval('clawpy_summaries_seq') WHERE id = ANY(%s) AND NOT gone"
)
_SINCE = (
    "SELECT seq, id, project, text, agent, session, ref, tags, at, origin, gone FROM clawpy_summaries "
    "WHERE project = %s AND seq > %s ORDER BY seq LIMIT %s"
)


class PostgresSummaries:
    """The shared table behind one database URL. Methods raise what `SharedDatabase.connect` raises."""

    def __init__(self, url: str) -> None:
        self._shared = SharedDatabase(url, SCHEMA)
        self.name = self._shared.name

    def push(self, summaries: Sequence[SharedSummary], gone: Sequence[str]) -> None:
        """Add summaries and empty those that are gone, all or none."""
        with self._shared.connect() as connection:
            lock(connection)
            connection.cursor().executemany(
                _ADD,
                [
                    (
                        one.id, one.project, one.text, one.agent, one.session, one.ref, json.dumps(list(one.tags)),
                        one.at, one.origin,
                    )
                    for one in summaries
                ],
            )  # fmt: skip
            if gone:
                connection.execute(_GONE, (list(gone),))

    def fetch(self, project: str, cursor: int) -> tuple[Sequence[SharedSummary], int]:
        """The next rows of a project, at most `PAGE`."""
        with self._shared.connect() as connection:
            rows = connection.execute(_SINCE, (project, cursor, PAGE)).fetchall()
        found = [
            SharedSummary(id, of, text, agent, session, ref, tuple(tags), at.astimezone(UTC), origin, gone)
            for _, id, of, text, agent, session, ref, tags, at, origin, gone in rows
        ]
        return found, int(rows[-1][0]) if rows else cursor

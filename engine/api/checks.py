"""One result of `doctor`, and a way to read a database that no engine may be able to open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.frozen import frozen

OK, WARN, FAIL = "ok", "warn", "fail"


@frozen
class Check:
    """The result of one check. `state` is "ok", "warn" (something works less well) or "fail" (something does not
    work)."""

    name: str
    state: str
    message: str
    fix: str = ""


def read_rows(database: Path, query: str, *, seconds: float = 2) -> list[tuple[Any, ...]]:
    """The rows of a query on a database file, opened read-only. Waits `seconds` for a writer. Raises
    `sqlite3.Error`."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=seconds)) as connection:
        return connection.execute(query).fetchall()

"""What `doctor` says of one thing, and how it reads a database that no engine may be able to open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.frozen import frozen

OK, WARN, FAIL = "ok", "warn", "fail"


@frozen
class Check:
    """One thing looked at. `state` is ok, warn (something works less well) or fail (something does not work)."""

    name: str
    state: str
    message: str
    fix: str = ""


def rows(database: Path, query: str, *, seconds: float = 2) -> list[tuple[Any, ...]]:
    """What a database file answers, read only; waits so long for who writes. Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=seconds)) as connection:
        return connection.execute(query).fetchall()

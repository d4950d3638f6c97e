"""The database file of a home: made whole from `schema.sql`, and opened only when it has the version of this program.

There is one version so far. A database of a checkout from before the first release has none; it is refused and left
as it is.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from engine.model import Refusal
from engine.storage.files import recovery_hint

VERSION = 2
"""Stored as SQLite's `user_version`; raised with each change of `schema.sql`."""

SCRIPT = Path(__file__).with_name("schema.sql")


def make_or_check(path: Path) -> None:
    """Make the database at `path` where there is none. Raises `Refusal` for one that this program cannot read."""
    if not path.exists():
        _create(path)
        return
    if path.stat().st_size == 0:  # what this program makes is never empty, see `_create`
        raise Refusal("damaged_home", f"{path} is damaged: it is empty", recovery_hint(path))
    refusal = refused(path)
    if refusal is not None:
        raise refusal


def refused(path: Path) -> Refusal | None:
    """Why this program cannot read the database at `path`, None if it can. Raises `sqlite3.DatabaseError` for no
    database."""
    version = stored_version(path)
    if version > VERSION:
        return Refusal(
            "newer_home",
            f"{path} was written by a newer version of Clawpy Console (its format is {version}, this one knows "
            f"{VERSION})",
            "upgrade Clawpy Console, or name another folder with --home DIR",
        )
    if version < VERSION:
        return Refusal(
            "older_home",
            f"{path} was written by a development version of Clawpy Console, which this version cannot read",
            f"it was left as it is: move the folder {path.parent} away to start afresh, or name another home with "
            "--home DIR",
        )
    return None


def stored_version(path: Path) -> int:
    """The format of the database at `path`, 0 for one from before the first release. Changes no file beside it."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(path: Path) -> None:
    """Make the database, whole or not at all: beside its place, then moved there."""
    half = path.with_name(path.name + ".new")
    for leftover in (half, half.with_name(half.name + "-journal")):  # of a start that was killed
        leftover.unlink(missing_ok=True)
    script = SCRIPT.read_text(encoding="utf-8")
    with closing(sqlite3.connect(half, timeout=10, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {VERSION}; COMMIT;")
    half.replace(path)

"""The file of a database: created from `schema.sql`, and read only if it has the version of this program.

Faults of the file or the disk become refusals, which say how to fix them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import TracebackType

from sqlalchemy.exc import DBAPIError

from engine.model import Refusal

VERSION = 4
"""Stored as SQLite's `user_version`; raised with each change of `schema.sql`."""

SCRIPT = Path(__file__).with_name("schema.sql")


def recovery_hint(database: Path) -> str:
    """Advice, in words, on how to repair a home whose database is damaged."""
    recover = f"`sqlite3 {database.name} .recover` may restore much of it"
    return f"move {database.name} away to start afresh, but keep it: {recover}"


def make_or_check(path: Path) -> None:
    """Create the database at `path` if there is none. Raises `Refusal` for one that this program cannot read."""
    if not path.exists():
        _create(path)
        return
    if path.stat().st_size == 0:  # what this program makes is never empty, see `_create`
        raise Refusal("damaged_home", f"{path} is damaged: it is empty", recovery_hint(path))
    refusal = version_refusal(path)
    if refusal is not None:
        raise refusal


def version_refusal(path: Path) -> Refusal | None:
    """Why this program cannot read the database at `path`, None if it can. Raises `sqlite3.DatabaseError` if the file
    is no database."""
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
    """Create the database, whole or not at all: beside its place, from where it is moved."""
    half = path.with_name(path.name + ".new")
    for leftover in (half, half.with_name(half.name + "-journal")):  # of a start that was killed
        leftover.unlink(missing_ok=True)
    script = SCRIPT.read_text(encoding="utf-8")
    with closing(sqlite3.connect(half, timeout=10, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {VERSION}; COMMIT;")
    half.replace(path)


class TranslatedErrors:
    """A context that turns SQLite's faults of the file or the disk into a `Refusal`, which says how to fix them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DBAPIError | sqlite3.DatabaseError):
            refusal = _refusal_of(str(error.orig if isinstance(error, DBAPIError) else error), self._path)
            if refusal is not None:
                raise refusal from error


def _refusal_of(error: str, path: Path) -> Refusal | None:
    """The refusal for the text of an error of SQLite, None for one that is no fault of the file or the disk."""
    if "disk is full" in error:
        message = f"the disk that holds {path.parent} is full"
        return Refusal("disk_full", message, "free some space; nothing was half-written")
    if "readonly" in error or "unable to open" in error:
        fix = "make the folder writable, or name another with --home DIR"
        return Refusal("unwritable_home", f"{path} cannot be opened for writing: {error}", fix)
    if "malformed" in error or "not a database" in error:
        return Refusal("damaged_home", f"{path} is damaged: {error}", recovery_hint(path))
    return None


def use_write_ahead_log(path: Path) -> None:
    """Switch to write-ahead logging. It must happen before other connections exist, because it would fail."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")

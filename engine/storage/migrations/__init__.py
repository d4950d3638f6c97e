"""Brings the database of a home up to the version of this program, inside the wheel, at start-up.

Alembic is imported only when there is something to do: its import costs as much as opening the engine. Before a
migration the database is copied to `backups/` beside it; a crash in the middle rolls back to the former version.

A new home begins with `new.sql`, which is what the migrations up to some revision come to; those after it follow. So it
is never wrong, only slower or not used when it lags behind: `python -m engine.storage.migrations` writes it anew.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from engine.model import Refusal
from engine.model.text import count
from engine.storage.files import damaged_fix

HEAD = "0036"
"""The revision this program works with; a test holds it against the newest file in `versions/`."""

HERE = Path(__file__).parent

SCRIPT = HERE / "new.sql"
"""Makes a database that has the migrations up to the revision that it stores."""


def bring_up_to_date(path: Path) -> None:
    """Create or migrate the database at `path`. Raises `Refusal` when it is from a newer version, or empty."""
    if not path.exists():
        _create(path)
        return
    if path.stat().st_size == 0:  # what this program makes is never empty, see `_create`
        raise Refusal("damaged_home", f"{path} is damaged: it is empty", damaged_fix(path))
    version = stored_version(path)
    if version == HEAD:
        return
    if version is not None and version not in _revisions():
        raise Refusal(
            "newer_home",
            f"{path} was written by a newer version of Clawpy Console (its format is {version}, this one knows {HEAD})",
            "upgrade Clawpy Console, or name another folder with --home DIR",
        )
    if version is not None:
        back_up(path, version)
    _upgrade(path)


def stored_version(path: Path) -> str | None:
    """The revision in the file, None when there is no file or nothing in it yet."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" not in tables:
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def back_up(path: Path, version: str) -> Path:
    """Copy the database to `backups/clawpy-VERSION.db` beside it, consistent even while it is in use."""
    target = path.parent / "backups" / f"{path.stem}-{version}.db"
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    return target


def written_down(path: Path) -> str:
    """The database at `path` as statements, in one transaction. What SQLite makes by itself is left out."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        ).fetchall()
        virtual = [name for _, name, sql in made if sql.upper().startswith("CREATE VIRTUAL TABLE")]
        lines = [f"-- {' '.join(sorted(_revisions()))}", "BEGIN IMMEDIATE;"]
        for kind, name, sql in made:
            if name.startswith("sqlite_") or (kind == "table" and any(name.startswith(f"{one}_") for one in virtual)):
                continue
            lines.append(f"{sql.strip()};")
            if kind == "table" and name not in virtual:
                rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
                lines += [f'INSERT INTO "{name}" VALUES ({", ".join(map(_literal, row))});' for row in rows]
    return "\n".join([*lines, "COMMIT;", ""])


def _literal(value: object) -> str:
    if value is None or isinstance(value, int | float):
        return "NULL" if value is None else repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise TypeError(f"{value!r} in a database that is new")


def _create(path: Path) -> None:
    """Make the database, whole or not at all: beside its place, then moved there.

    The script is not used when a revision has come since among those that it is made of.
    """
    script = SCRIPT.read_text(encoding="utf-8")
    made_of = set(script.partition("\n")[0].split()[1:])
    half = path.with_name(path.name + ".new")
    for left in (half, half.with_name(half.name + "-journal")):  # of a start that was killed
        left.unlink(missing_ok=True)
    if {one for one in _revisions() if one <= max(made_of)} == made_of:
        with closing(sqlite3.connect(half, timeout=10, isolation_level=None)) as connection:
            connection.executescript(script)
    if stored_version(half) != HEAD:
        _upgrade(half)
    half.replace(path)


def _revisions() -> set[str]:
    return {file.name.split("_")[0] for file in (HERE / "versions").glob("[0-9]*.py")}


def _upgrade(path: Path, to: str = "head") -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import Connection

    engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    try:
        with engine.connect() as connection:
            # A table rebuilt while foreign keys are on would delete every child row.
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.commit()
            config.attributes["connection"] = connection
            with connection.begin():
                command.upgrade(config, to)
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                if broken:
                    raise Refusal(
                        "damaged_home",
                        f"{path}: {count(len(broken), 'row')} with a link to nothing (first: {broken[0]})",
                        f"the former version was kept; a copy is in {path.parent / 'backups'}",
                    )
    finally:
        engine.dispose()

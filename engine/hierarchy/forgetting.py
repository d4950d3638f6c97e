"""What leaders say, when somebody's words are to be forgotten (SPEC 4.10): the words go, and an item that loses its own
is taken out, here and on machines that share the leadership."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import sqlalchemy as sa
from sqlmodel import Session, col, select

from engine.hierarchy.guided import GuidanceFinding
from engine.hierarchy.names import pattern_key
from engine.hierarchy.profiles import Profiles, WisdomEntry, WisdomUse
from engine.storage.database import Database, Transaction
from engine.storage.erasing import erase, in_strings

SAME = 16
"""Letters of a pattern's name that begin as its text does when it was named after it."""


class Words(Protocol):
    """What is looked for."""

    def holds(self, text: str, /) -> bool: ...


class WisdomTexts:
    """Items of profiles in all their wordings; see `engine.memory.forget.Store`."""

    name = "wisdom"

    def __init__(self, database: Database, profiles: Profiles, *, shared: Callable[[], bool]) -> None:
        """`shared()`: other machines have these profiles too, by the names that they have here."""
        self._database = database
        self._profiles = profiles
        self._shared = shared

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The wordings that hold it: leader, section and key, and what they say."""
        with self._database.read() as session:
            for row in _holding(session, wanted):
                name = "/".join(part for part in (row.leader, row.section, row.key) if part)
                yield name, " · ".join(_texts(row.body))

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many wordings. Where a wording held that is in force a newer one follows, without the words:
        so that machines which share the leadership hear of it. A pattern that has its name from the words loses that
        too, where nobody else knows it by its name. Prompts are made anew."""
        shared = self._shared()

        def work(tx: Transaction) -> int:
            held = _holding(tx.session, wanted)
            items = {(row.leader, row.section, row.key): row for row in sorted(held, key=lambda row: row.at)}
            for row in held:
                where = [getattr(WisdomEntry, name) == getattr(row, name) for name in ("leader", "section", "key")]
                emptied = sa.update(WisdomEntry).where(*where, col(WisdomEntry.version) == row.version)
                tx.session.connection().execute(emptied.values(body={}, unsent=True))
            for (leader, section, key), row in items.items():
                if row.at == _last(tx.session, row):
                    self._profiles.write(tx, leader, section, key, _without(row.body, wanted))
            for key in {row.key for row in held if not shared and _named_after(row)}:
                _rename(tx, key)
            tx.after_commit(self._profiles.changed)  # also where only what was captured is gone
            return len(held)

        return self._database.write(work)


class _Rename:
    """Puts another name wherever one stands."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def holds(self, text: str) -> bool:
        return self._old in text

    def removed(self, text: str) -> str:
        return text.replace(self._old, self._new)


def _named_after(row: WisdomEntry) -> bool:
    said = pattern_key(str(row.body.get("text", "")))
    return row.section == "patterns" and bool(row.body) and row.key[:SAME] == said[:SAME]


def _rename(tx: Transaction, key: str) -> None:
    new = f"forgotten_{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    connection = tx.session.connection()
    for table, name in ((WisdomEntry, "key"), (WisdomUse, "key"), (GuidanceFinding, "ref")):
        column = getattr(table, name)
        named = sa.update(table).where(column.contains(key, autoescape=True))
        connection.execute(named.values({name: sa.func.replace(column, key, new)}))
    tx.session.flush()
    driver: Any = connection.connection.driver_connection
    erase(driver, _Rename(key, new), frozenset({"memories", "memory_chunks", "memory_vectors", "model_calls"}))


def _holding(session: Session, wanted: Words) -> list[WisdomEntry]:
    return [row for row in session.exec(select(WisdomEntry)) if any(map(wanted.holds, _texts(row.body)))]


def _last(session: Session, row: WisdomEntry) -> Any:
    newest = select(sa.func.max(col(WisdomEntry.at))).where(
        col(WisdomEntry.leader) == row.leader, col(WisdomEntry.section) == row.section, col(WisdomEntry.key) == row.key
    )
    return session.exec(newest).one()


def _texts(body: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    in_strings(list(body.values()), lambda text: found.append(text) or text)  # type: ignore[func-returns-value]
    return found


def _without(body: Mapping[str, Any], wanted: Words) -> dict[str, Any]:
    """A list without the items that hold it; nothing of a text."""
    kept = [one for one in body.get("items", ()) if not wanted.holds(str(one))]
    return {"items": kept} if kept else {}

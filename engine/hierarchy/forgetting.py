"""What leaders say, when somebody's words are to be forgotten (SPEC 4.10): the words go, and an item that loses its own
is taken out, here and on machines that share the leadership. A pattern's name tells nothing of its words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlmodel import Session, col, select

from engine.hierarchy.profiles import Profiles, WisdomEntry
from engine.storage.database import Database, Transaction
from engine.storage.erasing import Words, json_holds


class WisdomTexts:
    """Items of profiles in all their wordings; see `engine.memory.forget.Store`."""

    name = "wisdom"

    def __init__(self, database: Database, profiles: Profiles) -> None:
        self._database = database
        self._profiles = profiles

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The wordings that hold it: leader, section and key, and what they say."""
        with self._database.read() as session:
            for row in _holding(session, wanted):
                name = "/".join(part for part in (row.leader, row.section, row.key) if part)
                yield name, row.text or " · ".join(map(str, row.body.get("items", ())))

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many wordings. Where a wording held that is in force a newer one follows, without the words:
        so that machines which share the leadership hear of it. Prompts are made anew."""

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
            tx.after_commit(self._profiles.changed)  # also where only what was captured is gone
            return len(held)

        return self._database.write(work)


def _holding(session: Session, wanted: Words) -> list[WisdomEntry]:
    return [row for row in session.exec(select(WisdomEntry)) if json_holds(json.dumps(row.body), wanted)]


def _last(session: Session, row: WisdomEntry) -> Any:
    newest = select(sa.func.max(col(WisdomEntry.at))).where(
        col(WisdomEntry.leader) == row.leader, col(WisdomEntry.section) == row.section, col(WisdomEntry.key) == row.key
    )
    return session.exec(newest).one()


def _without(body: Mapping[str, Any], wanted: Words) -> dict[str, Any]:
    """A list without the items that hold it; nothing of a text."""
    kept = [one for one in body.get("items", ()) if not wanted.holds(str(one))]
    return {"items": kept} if kept else {}

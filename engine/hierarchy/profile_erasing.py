"""Finds and erases words in leaders' profiles (SPEC 4.10), in all versions of their items."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy
from sqlmodel import Session, col, select

from engine.hierarchy.profile_entries import ProfileEntry, find_newest_time, match_item
from engine.hierarchy.profiles import Profiles
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms, json_contains


class ProfileTexts:
    """Finds and erases words in all versions of profile items; see `engine.memory.forget.ErasableStore`."""

    name = "profiles"

    def __init__(self, database: Database, profiles: Profiles) -> None:
        self._database = database
        self._profiles = profiles

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """(name, text) of each version that matches."""
        with self._database.read() as session:
            for row in _matching_entries(session, query):
                name = "/".join(part for part in (row.leader, row.section, row.key) if part)
                yield name, row.text or " · ".join(map(str, row.body.get("items", ())))

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the matching texts; returns the number of versions. If the newest version of an item matches, a newer
        version without the text is added, so that other machines remove it too."""

        def empty_entries(tx: Transaction) -> int:
            rows = _matching_entries(tx.session, query)
            items = {(row.leader, row.section, row.key): row for row in sorted(rows, key=lambda row: row.at)}
            for row in rows:
                where = *match_item(row.leader, row.section, row.key), col(ProfileEntry.version) == row.version
                emptied = sqlalchemy.update(ProfileEntry).where(*where)
                tx.session.connection().execute(emptied.values(body={}, unsent=True))
            for (leader, section, key), row in items.items():
                if row.at == find_newest_time(tx.session, leader, section, key):
                    self._profiles.write(tx, leader, section, key, _remaining_body(row.body, query))
            tx.after_commit(self._profiles.bump_generation)  # even without rows: captured decisions may be erased
            return len(rows)

        return self._database.write(empty_entries)


def _matching_entries(session: Session, query: SearchTerms) -> list[ProfileEntry]:
    return [row for row in session.exec(select(ProfileEntry)) if json_contains(json.dumps(row.body), query)]


def _remaining_body(body: Mapping[str, Any], query: SearchTerms) -> dict[str, Any]:
    """The body without matching words: the items of a list that do not match, or an empty body for a text."""
    remaining = [item for item in body.get("items", ()) if not query.match(str(item))]
    return {"items": remaining} if remaining else {}

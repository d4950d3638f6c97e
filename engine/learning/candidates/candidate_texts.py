"""Removes forgotten texts from the effects of candidates (SPEC 4.10).

Whole lines are removed, never part of a command or a diff.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlmodel import Session, select

from engine.learning.candidates.candidate_rows import CandidateRow, decide_candidate
from engine.learning.candidates.effects import effect_texts, map_texts, validate_effect
from engine.model import Refusal
from engine.model.adaptation import CandidateMove, CandidateStatus, Effect, effect_from_json
from engine.storage.database import Database, Transaction
from engine.storage.erasing import SearchTerms

_UNDECIDED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ROLLED_BACK)


class CandidateTexts:
    """Erases texts of effects, see `engine.memory.forget.ErasableStore`. What else a candidate says is erased with the
    other rows of the database."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, query: SearchTerms, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect matches: id and the texts that would be removed."""
        with self._database.read() as session:
            for row, _, text in _matching_rows(session, query):
                yield row.id, text

    def erase(self, query: SearchTerms, /) -> int:
        """Remove the matching texts; returns from how many candidates."""

        def remove_texts(tx: Transaction) -> int:
            matches = list(_matching_rows(tx.session, query))
            for row, remaining, _ in matches:
                row.effect = {} if remaining is None else remaining.to_json()
                tx.session.add(row)
                if row.status in _UNDECIDED and not _is_usable(remaining):
                    decide_candidate(tx, row, CandidateMove.REJECT, "operator", "its text was forgotten")
            return len(matches)

        return self._database.write(remove_texts)


def _is_usable(effect: Effect | None) -> bool:
    try:
        return effect is not None and bool(validate_effect(effect))
    except Refusal:
        return False


def _matching_rows(session: Session, query: SearchTerms) -> Iterator[tuple[CandidateRow, Effect | None, str]]:
    """The candidates that match, each with its remaining effect (None for one that cannot be read) and the text that
    would be removed."""
    for row in session.exec(select(CandidateRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:  # all of it goes
            text = str(list(row.effect.values()))
            if query.match(text):
                yield row, None, text
            continue
        remaining = map_texts(effect, lambda text: "" if query.match(text) else text)
        if remaining != effect:
            texts = set(effect_texts(remaining))
            yield row, remaining, " · ".join(text for text in effect_texts(effect) if text not in texts)

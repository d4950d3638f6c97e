"""What candidates say, proposed and in force, when somebody's words are to be forgotten (SPEC 4.10): whole lines go,
never a part of a command or a diff. One that says nothing any more is turned down, or does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sqlmodel import Session, select

from engine.learning.candidates.candidates import CandidateRow, decide
from engine.learning.candidates.effects import checked, rewritten, says
from engine.model import Refusal
from engine.model.adaptation import CandidateMove, CandidateStatus, Effect, effect_from_json
from engine.storage.database import Database, Transaction
from engine.storage.erasing import Words

_OPEN = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ROLLED_BACK)


class CandidateTexts:
    """See `engine.memory.forget.Store`. What else a candidate says goes with the other records."""

    name = "candidates"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, wanted: Words, /) -> Iterator[tuple[str, str]]:
        """The candidates whose effect holds it: id and the texts that would go."""
        with self._database.read() as session:
            for row, _, text in _holding(session, wanted):
                yield row.id, text

    def erase(self, wanted: Words, /) -> int:
        """Take it out; how many candidates. Prompts are made without it from now on."""

        def work(tx: Transaction) -> int:
            found = list(_holding(tx.session, wanted))
            for row, less, _ in found:
                row.effect = {} if less is None else less.to_json()
                tx.session.add(row)
                if row.status in _OPEN and not _works(less):
                    decide(tx, row, CandidateMove.REJECT, "operator", "its text was forgotten")
            return len(found)

        return self._database.write(work)


def _works(effect: Effect | None) -> bool:
    try:
        return effect is not None and bool(checked(effect))
    except Refusal:
        return False


def _holding(session: Session, wanted: Words) -> Iterator[tuple[CandidateRow, Effect | None, str]]:
    """The candidates that hold it, each with its effect without it, None for one that nobody can read, and what would
    go."""
    for row in session.exec(select(CandidateRow)):
        try:
            effect = effect_from_json(row.effect)
        except Refusal:  # all of it goes
            text = str(list(row.effect.values()))
            if wanted.holds(text):
                yield row, None, text
            continue
        less = rewritten(effect, lambda text: "" if wanted.holds(text) else text)
        if less != effect:
            left = set(says(less))
            yield row, less, " · ".join(one for one in says(effect) if one not in left)

"""Promoting, rejecting, rolling back, and taking that back (SPEC 5.3, 5.4): status and behaviour change in one
transaction, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from engine.adaptation import candidates as table
from engine.adaptation.candidates import Candidates
from engine.storage.database import Database, Transaction
from engine.values.adaptation import Candidate, CandidateMove, CandidateStatus, EffectPreview, Overlay


class Overlays(Protocol):
    """Effects in force (SPEC 5.5). `put` and `withdraw` take part in the caller's transaction."""

    def put(self, tx: Transaction, candidate: Candidate, now: datetime, /) -> Overlay: ...
    def withdraw(self, tx: Transaction, candidate_id: str, now: datetime, /) -> object: ...
    def of(self, candidate_id: str, /) -> Sequence[Overlay]:
        """Those of a candidate, the newest first."""

    def preview(self, candidate: Candidate, /) -> EffectPreview: ...


class Deciding:
    """The operator's word, and that of who stands in for him."""

    def __init__(self, database: Database, candidates: Candidates, overlays: Overlays) -> None:
        self._database = database
        self._candidates = candidates
        self._overlays = overlays

    def approve(self, candidate_id: str, by: str = "operator") -> Candidate:
        """Put its effect in force; again, if it was rolled back. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `not_corroborated`, `already_decided`, and what the effect's owner raises."""
        wanted = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.row_of(tx, wanted)
            table.decide(tx, row, CandidateMove.APPROVE, by, "")
            self._overlays.put(tx, row.value, tx.now)
            return row.value

        return self._database.write(work)

    def reject(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Turn it down. Raises as `approve`."""
        wanted = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.row_of(tx, wanted)
            table.decide(tx, row, CandidateMove.REJECT, by, reason)
            return row.value

        return self._database.write(work)

    def roll_back(self, candidate_id: str, reason: str = "", by: str = "operator") -> Candidate:
        """Take its effect back: what was done before is done again. Raises `Refusal`: `unknown_candidate`,
        `ambiguous_id`, `nothing_to_roll_back`."""
        wanted = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.row_of(tx, wanted)
            table.decide(tx, row, CandidateMove.ROLL_BACK, by, reason)
            self._overlays.withdraw(tx, row.id, tx.now)
            return row.value

        return self._database.write(work)

    def undo(self, candidate_id: str) -> Candidate:
        """Take the operator's last decision back: it stands, and its effect is in force or not, as before. Raises
        `Refusal`: `unknown_candidate`, `ambiguous_id`, `nothing_to_undo`, and what the effect's owner raises."""
        wanted = self._candidates.get(candidate_id).id

        def work(tx: Transaction) -> Candidate:
            row = table.row_of(tx, wanted)
            was = row.status
            table.undo(tx, row)
            if was == CandidateStatus.PROMOTED:
                self._overlays.withdraw(tx, row.id, tx.now)
            elif row.status == CandidateStatus.PROMOTED:
                self._overlays.put(tx, row.value, tx.now)
            return row.value

        return self._database.write(work)

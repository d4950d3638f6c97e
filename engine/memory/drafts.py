"""Facts that wait for the operator's word before they join layer G (SPEC 4.8, 6.8): words of tools, agents and models,
and where no model is named all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime

from pydantic import TypeAdapter
from sqlalchemy import literal_column
from sqlmodel import Field, col, select

from engine.clock import Clock
from engine.events import FactPromoted, FactRejected
from engine.memory.para import NewFact, Para
from engine.model import FactDraft, ParaFact, Refusal, Trust, sanitise
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row
from engine.storage.types import utc_field

CAPTURE_SOURCE = "capture:"
"""How the source of a fact begins that was captured."""


class DraftRow(Row, table=True):
    """One draft. `digest` says what it says: what was drafted once, or rejected, is not drafted again."""

    __tablename__ = "fact_drafts"

    id: str = Field(primary_key=True)
    day: str
    digest: str
    fact: str
    category: str
    bucket: str
    group: str
    source: str
    reason: str
    workspace: str
    supersedes: str
    created_at: datetime = utc_field()
    state: str = "waiting"
    decided_at: datetime | None = utc_field(nullable=True)
    fact_id: str = ""
    trust: str = Trust.QUOTED.value

    @property
    def view(self) -> FactDraft:
        """The row as others see it."""
        return _DRAFT.validate_python(self.model_dump())

    @property
    def texts(self) -> tuple[str, ...]:
        """What it says, for forgetting."""
        return self.fact, self.reason

    def forget(self) -> None:
        """Leave an empty stub, rejected where it waits."""
        self.fact = self.reason = self.source = ""
        self.state = "rejected" if self.state == "waiting" else self.state


_DRAFT = TypeAdapter(FactDraft)


class Drafts:
    """Drafts of facts. All methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        para: Para,
        clock: Clock,
        *,
        approve: Callable[[Transaction, str, str], None] = lambda tx, workspace, text: None,
    ) -> None:
        """`approve` lets a captured text of a workspace guide, in the transaction in which its draft becomes a fact."""
        self._database = database
        self.para = para
        self._clock = clock
        self._approve = approve

    def add(self, tx: Transaction, day: str, facts: Sequence[NewFact]) -> int:
        """Store drafts of a local day; those that were drafted before are left out. Returns how many are new."""
        digests = [fact.digest for fact in facts]
        rows = tx.session.exec(select(DraftRow.workspace, DraftRow.digest).where(col(DraftRow.digest).in_(digests)))
        existing = {tuple(row) for row in rows}
        new = {(fact.workspace, fact.digest): fact for fact in facts if (fact.workspace, fact.digest) not in existing}
        tx.session.add_all([_row(day, fact, tx.now) for fact in new.values()])
        return len(new)

    def waiting(self, limit: int = 200) -> list[FactDraft]:
        """What waits, longest first."""
        query = (
            select(DraftRow)
            .where(DraftRow.state == "waiting")
            .order_by(col(DraftRow.created_at), literal_column("rowid"))
            .limit(limit)
        )
        with self._database.read() as session:
            return [row.view for row in session.exec(query)]

    def get(self, draft_id: str) -> FactDraft:
        """One draft. Raises `Refusal` `unknown_draft`."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
        if row is None:
            raise Refusal("unknown_draft", f"there is no draft {sanitise(draft_id)}", "clawpy drafts list")
        return row.view

    def promote(self, draft_id: str, *, edit: str = "") -> ParaFact:
        """Make a draft a fact, in the words of `edit` if there are any. Doing it again gives the same fact.

        Raises `Refusal`: `unknown_draft`, `draft_decided` (it was rejected), and what `Para.add` raises.
        """
        draft = self.get(draft_id)
        if draft.state == "rejected":
            raise Refusal("draft_decided", f"{draft.id} was rejected", "add the fact separately")
        if draft.state == "promoted":
            return self.para.get(draft.fact_id)
        is_superseding = any(fact.id == draft.supersedes for fact in self.para.facts(active=True))
        supersedes = draft.supersedes if is_superseding else ""
        trust = Trust.OPERATOR if edit and edit != draft.fact else draft.trust
        placement = (draft.category, draft.bucket, draft.group, draft.source, draft.workspace)
        fact = self.para.add([NewFact(edit or draft.fact, *placement, supersedes, trust, self._clock.now())])[0]
        self._decide(draft, "promoted", fact.id, edited=edit not in ("", draft.fact))
        return fact

    def reject(self, draft_id: str) -> FactDraft:
        """Turn a draft down for good: the same words are not drafted again. Raises `Refusal` `unknown_draft`,
        `draft_decided`."""
        draft = self.get(draft_id)
        if draft.state == "promoted":
            raise Refusal("draft_decided", f"{draft.id} is {draft.fact_id} by now", "supersede that fact")
        if draft.state == "waiting":
            self._decide(draft, "rejected", "")
        return self.get(draft_id)

    def _decide(self, draft: FactDraft, state: str, fact_id: str, *, edited: bool = False) -> None:
        def store_decision(tx: Transaction) -> None:
            row = tx.session.get(DraftRow, draft.id)
            if row is None or row.state != "waiting":
                return
            row.state, row.fact_id, row.decided_at = state, fact_id, tx.now
            tx.session.add(row)
            if fact_id:
                if row.source.startswith(CAPTURE_SOURCE) and not edited:
                    self._approve(tx, row.workspace, row.fact)
                tx.record(FactPromoted(subject=fact_id, workspace=draft.workspace, draft=draft.id, by="operator"))
            else:
                tx.record(FactRejected(subject=draft.id, workspace=draft.workspace))

        self._database.write(store_decision)


def _row(day: str, fact: NewFact, now: datetime) -> DraftRow:
    digest = hashlib.sha256(f"{fact.workspace}\n{fact.digest}".encode(errors="replace")).hexdigest()[:12]
    fields = asdict(fact) | {"bucket": fact.bucket.value, "trust": fact.trust.value}
    return DraftRow(id=f"draft_{digest}", day=day, digest=fact.digest, created_at=now, **fields)

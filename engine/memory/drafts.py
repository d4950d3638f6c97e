"""Drafts of facts for layer G that wait for the operator's decision (SPEC 4.8, 6.8): statements of tools, agents and
models. If no model evaluates a day, all of its facts are drafts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import literal_column
from sqlmodel import Field, col, select

from engine.clock import Clock
from engine.events import FactPromoted, FactRejected
from engine.memory.captures import Captures
from engine.memory.day import CAPTURE_SOURCE
from engine.memory.para import NewFact, Para
from engine.model import Bucket, FactDraft, ParaFact, Refusal, Trust, sanitise
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, enum_field, shallow_dict, utc_field, value_of


class DraftRow(Row, table=True):
    """One draft. `digest` identifies its words: what was drafted or rejected once is not drafted again."""

    __tablename__ = "fact_drafts"

    id: str = Field(primary_key=True)
    day: str
    digest: str
    fact: str
    category: str
    bucket: Bucket = enum_field(Bucket)
    group: str
    source: str
    reason: str
    workspace: str
    supersedes: str
    created_at: datetime = utc_field()
    state: str = "waiting"
    decided_at: datetime | None = utc_field(nullable=True)
    fact_id: str = ""
    trust: Trust = enum_field(Trust)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that forgetting searches."""
        return self.fact, self.reason

    def forget(self) -> None:
        """Empty the draft. A draft that waits is rejected."""
        self.fact = self.reason = self.source = ""
        self.state = "rejected" if self.state == "waiting" else self.state


class Drafts:
    """Drafts of facts. All methods may be called from any thread."""

    def __init__(self, database: Database, para: Para, captures: Captures, clock: Clock) -> None:
        self._database = database
        self._para = para
        self._captures = captures
        self._clock = clock

    def add(self, tx: Transaction, day: str, facts: Sequence[NewFact]) -> int:
        """Store drafts of a local day, except those that were drafted before. Returns how many are new."""
        digests = [fact.digest for fact in facts]
        rows = tx.session.exec(select(DraftRow.workspace, DraftRow.digest).where(col(DraftRow.digest).in_(digests)))
        existing = {tuple(row) for row in rows}
        new = {(fact.workspace, fact.digest): fact for fact in facts if (fact.workspace, fact.digest) not in existing}
        for key, fact in new.items():
            name = hashlib.sha256("\n".join(key).encode(errors="replace")).hexdigest()[:12]
            row = DraftRow(id=f"draft_{name}", day=day, digest=fact.digest, created_at=tx.now, **shallow_dict(fact))
            tx.session.add(row)
        return len(new)

    def waiting(self, limit: int = 200) -> list[FactDraft]:
        """The drafts that wait for a decision, oldest first."""
        query = select(DraftRow).where(DraftRow.state == "waiting")
        query = query.order_by(col(DraftRow.created_at), literal_column("rowid")).limit(limit)
        with self._database.read() as session:
            return [value_of(row, FactDraft) for row in session.exec(query)]

    def get(self, draft_id: str) -> FactDraft:
        """One draft. Raises `Refusal` `unknown_draft`."""
        with self._database.read() as session:
            row = session.get(DraftRow, draft_id)
        if row is None:
            raise Refusal("unknown_draft", f"there is no draft {sanitise(draft_id)}", "clawpy drafts list")
        return value_of(row, FactDraft)

    def promote(self, draft_id: str, *, edit: str = "") -> ParaFact:
        """Make a draft a fact, in the words of `edit` if given. A second call returns the same fact.

        Raises `Refusal`: `unknown_draft`, `draft_decided` (it was rejected), and what `Para.add` raises.
        """
        draft = self.get(draft_id)
        if draft.state == "rejected":
            raise Refusal("draft_decided", f"{draft.id} was rejected", "add the fact separately")
        if draft.state == "promoted":
            return self._para.get(draft.fact_id)
        is_edited = edit not in ("", draft.fact)
        is_superseding = any(fact.id == draft.supersedes for fact in self._para.facts(active=True))
        fact = NewFact(
            edit or draft.fact,
            draft.category,
            draft.bucket,
            draft.group,
            draft.source,
            draft.workspace,
            draft.supersedes if is_superseding else "",
            Trust.OPERATOR if is_edited else draft.trust,
            self._clock.now(),
        )
        stored = self._para.add([fact])[0]
        self._decide(draft, "promoted", stored.id, is_quoted=draft.source.startswith(CAPTURE_SOURCE) and not is_edited)
        return stored

    def reject(self, draft_id: str) -> FactDraft:
        """Reject a draft: the same words are not drafted again. Raises `Refusal` `unknown_draft`, `draft_decided`."""
        draft = self.get(draft_id)
        if draft.state == "promoted":
            raise Refusal("draft_decided", f"{draft.id} is {draft.fact_id} by now", "supersede that fact")
        self._decide(draft, "rejected")
        return self.get(draft_id)

    def _decide(self, draft: FactDraft, state: str, fact_id: str = "", *, is_quoted: bool = False) -> None:
        """Store a decision. `is_quoted`: the words are those of a capture, which may guide from now on."""

        def store_decision(tx: Transaction) -> None:
            row = tx.session.get(DraftRow, draft.id)
            if row is None or row.state != "waiting":
                return
            row.state, row.fact_id, row.decided_at = state, fact_id, tx.now
            tx.session.add(row)
            if is_quoted:
                self._captures.approve(tx, row.workspace, row.fact)
            if fact_id:
                tx.record(FactPromoted(subject=fact_id, workspace=draft.workspace, draft=draft.id, by="operator"))
            else:
                tx.record(FactRejected(subject=draft.id, workspace=draft.workspace))

        self._database.write(store_decision)

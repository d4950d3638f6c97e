"""Facts that wait for the operator's word before they join layer G (SPEC 4.8, 6.8): words of tools, agents and models,
and where no model is named all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import datetime
from pathlib import PurePath

from pydantic import TypeAdapter
from sqlalchemy import literal_column
from sqlmodel import Field, col, select

from engine.clock import Clock
from engine.events import FactPromoted, FactRejected
from engine.frozen import frozen
from engine.memory.capture_rules import corrected_by, digest
from engine.memory.para import NewFact, Para, group_name
from engine.model import Bucket, Capture, FactDraft, ParaFact, Refusal, SessionView, Trust, sanitise
from engine.model.base import trust_of_names
from engine.model.text import count, plain
from engine.storage.database import Database, Transaction
from engine.storage.rows import Row, utc_field

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


# One day of the ledger, and what rules derive from it (SPEC 4.8): drafts of facts, and notes for each agent's
# `memory.md`.
#
# Pure: `nightly` fetches, calls these, stores.


MAX_FACTS = 8
"""Facts of one night (SPEC 4.8)."""

MIN_FAILING_SESSIONS = 2
"""Sessions of a day in which a test stayed red before that becomes a fact."""

MAX_LINES = 12
MAX_LINE = 200
"""Of one agent's day."""

MAX_SYNTHESIS = 12_000
"""Characters of the synthesis."""


@frozen
class Day:
    """What happened on a local day (`date` as `2026-01-05`): sessions that ended, with how many `files` of each landed;
    `failing`: for each session whose healing failed or went in circles, its workspace and the tests that stayed red."""

    date: str
    sessions: tuple[SessionView, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    captures: tuple[Capture, ...] = ()
    failing: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    approved: int = 0
    rejected: int = 0

    @property
    def empty(self) -> bool:
        """Nothing happened."""
        return not (self.sessions or self.captures or self.failing)


def draft(day: Day, known_facts: Sequence[ParaFact]) -> list[NewFact]:
    """Facts that rules draw from the day: at most 8, corrections first, without those that are known."""
    known_digests = {digest(fact.fact) for fact in known_facts if not fact.forgotten}
    new_facts: dict[str, NewFact] = {}
    for item in (*_captured_facts(day), *_failure_facts(day), *_landed_facts(day)):
        if item.digest not in known_digests:
            new_facts.setdefault(item.digest, _with_superseded(item, known_facts))
    return list(new_facts.values())[:MAX_FACTS]


def lines_for(day: Day, agent: str) -> list[str]:
    """What an agent is to find in its `memory.md` of this day; [] when it did nothing."""
    lines = []
    for session in day.sessions:
        if session.agent == agent:
            landed = day.files.get(session.id)
            lines.append(
                f"{session.outcome}: {session.prompt}" + (f" ({count(landed, 'file')} landed)" if landed else "")
            )
    lines += [
        f"{capture.kind}: {capture.text}"
        if capture.trust is Trust.OPERATOR
        else f"somebody said ({capture.kind}): “{capture.text}”"
        for capture in day.captures
        if capture.agent == agent
    ]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more"]
    return [plain(line, MAX_LINE) for line in lines]


def heading(day: str) -> str:
    """The line by which the day is found again in a `memory.md`."""
    return f"## {day}"


def synthesis(day: Day) -> str:
    """The day as a model reads it: one line a thing, bounded; every line begins with its source."""
    lines = [f"Day {day.date}: {count(day.approved, 'card')} approved, {day.rejected} rejected."]
    for item in day.sessions:
        files = day.files.get(item.id)
        landed = f", {count(files, 'file')} landed" if files else ""
        text = f"{item.prompt}: {item.outcome}{landed}. {item.error or item.summary}"
        lines.append(f"[{item.id}] {item.agent} in {_group_of(item.workspace)}: {text}")
    lines += [f"[{capture.source}] {capture.kind} said {_speaker(capture)}: {capture.text}" for capture in day.captures]
    for session, (_, tests) in sorted(day.failing.items()):
        lines.append(f"[{session}] still failed: {', '.join(tests[:5])}")
    joined = "\n".join(plain(line, 2 * MAX_LINE) for line in lines)
    return joined if len(joined) <= MAX_SYNTHESIS else joined[: MAX_SYNTHESIS - 1] + "…"


def fact_of(day: Day, *, fact: str, category: str, bucket: Bucket, group: str, source: str) -> NewFact:
    """A fact that a model draws from what the synthesis calls `source`: it belongs to the workspace that this is from.
    Its trust is that of the capture with the same words, else it is the model's own statement. Pure."""
    captures = [capture for capture in day.captures if capture.source == source]
    trust = next((capture.trust for capture in captures if digest(capture.text) == digest(fact)), Trust.QUOTED)
    workspaces = {session: place for session, (place, _) in day.failing.items()}
    workspaces |= {capture.source: capture.workspace for capture in captures} | {
        item.id: item.workspace for item in day.sessions
    }
    origin = f"nightly:{day.date}:{source}"
    return NewFact(fact, category or "fact", bucket, group, origin, workspaces.get(source, ""), trust=trust)


def _captured_facts(day: Day) -> Iterator[NewFact]:
    order = ("correction", "decision", "fact")
    for capture in sorted(day.captures, key=lambda item: (order.index(item.kind), -item.seen, item.at, item.id)):
        is_preference = "preference" in capture.tags
        occurrences = f", in {capture.seen} sessions" if capture.seen > 1 else ""
        yield NewFact(
            capture.text,
            "preference" if is_preference else capture.kind,
            Bucket.AREAS if is_preference else Bucket.PROJECTS,
            "preferences" if is_preference else _group_of(capture.workspace),
            f"{CAPTURE_SOURCE}{capture.source}",
            capture.workspace,
            trust=capture.trust,
            reason=f"said {_speaker(capture)}{occurrences}",
        )


def _speaker(capture: Capture) -> str:
    if capture.trust is Trust.OPERATOR:
        return "by the operator"
    return f"in a session of {capture.agent}" if capture.agent else "in a session"


def _failure_facts(day: Day) -> Iterator[NewFact]:
    sessions: dict[tuple[str, str], list[str]] = {}
    for session, (workspace, tests) in sorted(day.failing.items()):
        for test in set(tests):
            sessions.setdefault((workspace, test), []).append(session)
    for (workspace, test), failed in sorted(sessions.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(failed) >= MIN_FAILING_SESSIONS:
            yield NewFact(
                f"{plain(test, 300)} resists being fixed by agents",
                "failure",
                Bucket.RESOURCES,
                _group_of(workspace),
                "nightly:" + ",".join(failed[:5]),
                workspace,
                trust=trust_of_names([test]),
                reason=f"it still failed in {len(failed)} sessions of {day.date}",
            )


def _landed_facts(day: Day) -> Iterator[NewFact]:
    for session in day.sessions:
        if files := day.files.get(session.id):
            yield NewFact(
                f"Done on {day.date}: {plain(session.prompt, 300)} ({count(files, 'file')})",
                "change",
                Bucket.ARCHIVES,
                _group_of(session.workspace),
                f"session:{session.id}",
                session.workspace,
                reason="it was landed",
            )


def _with_superseded(new: NewFact, known_facts: Sequence[ParaFact]) -> NewFact:
    """A correction is to take the place of the fact that it corrects, where there is one."""
    if new.category != "correction":
        return new
    candidates = ((fact.id, fact.fact) for fact in known_facts if fact.active and fact.workspace in ("", new.workspace))
    return replace(new, supersedes=corrected_by(new.fact, candidates))


def _group_of(workspace: str) -> str:
    return group_name(PurePath(workspace).name)

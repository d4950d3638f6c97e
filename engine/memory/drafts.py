"""Drafts facts for layer G from a local day, and keeps those that wait for the operator's decision (SPEC 4.8, 6.8).

Statements of tools, agents and models wait. If no model evaluates a day, all of its facts do. `DayRecord` is pure:
`nightly` makes one of what happened, and stores what this returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import PurePath
from typing import ClassVar, NamedTuple

from sqlmodel import Field

from engine.clock import Clock
from engine.events.learning import FactPromoted, FactRejected
from engine.frozen import frozen, group_pairs
from engine.memory.capture_rules import digest_sentence, find_corrected_id
from engine.memory.captures import Captures
from engine.memory.para import NewFact, Para, make_group_name
from engine.model import (
    Bucket,
    Capture,
    DraftState,
    FactDraft,
    Layer,
    LayerState,
    ParaFact,
    Refusal,
    SessionView,
    Trust,
    label_outcome,
)
from engine.model.prompts import find_trust_of_names
from engine.storage import Row, ask, read_all, shallow_dict, value_of
from engine.storage.database import Database, Transaction
from engine.text import hex_hash, plain, sanitise
from engine.wording import count

CAPTURE_SOURCE = "capture:"
"""Prefix of the source of a fact that was captured in a session."""

MAX_FACTS = 8
"""Maximum number of facts of one night (SPEC 4.8)."""

MIN_FAILING_SESSIONS = 2
"""Number of sessions of a day in which a test must still fail before that becomes a fact."""

MAX_LINES = 12
"""Maximum number of lines of one agent's day."""

MAX_LINE_CHARS = 200
"""Maximum number of characters of such a line."""

MAX_SYNTHESIS_CHARS = 12_000
"""Maximum number of characters of the synthesis."""


class DraftRow(Row, table=True):
    """One draft. `digest` identifies its words: what was drafted or rejected once is not drafted again."""

    __tablename__ = "fact_drafts"

    id: str = Field(primary_key=True)
    day: str
    digest: str
    fact: str
    category: str
    bucket: Bucket
    group: str
    source: str
    reason: str
    workspace: str
    supersedes: str
    created_at: datetime
    state: DraftState = DraftState.WAITING
    decided_at: datetime | None = None
    fact_id: str = ""
    trust: Trust

    TEXT_COLUMNS: ClassVar = ("fact", "reason")
    """The columns that forgetting searches."""

    def forget(self, at: datetime) -> None:
        """Empty the draft. A draft that waits is rejected."""
        self.fact = self.reason = self.source = ""
        if self.state == DraftState.WAITING:
            self.state, self.decided_at = DraftState.REJECTED, at


@frozen
class Drafts:
    """Drafts of facts. All methods may be called from any thread."""

    database: Database
    para: Para
    captures: Captures
    clock: Clock

    def add(self, tx: Transaction, day: str, facts: Sequence[NewFact]) -> int:
        """Store drafts of a local day, except those that were drafted before. Returns how many are new."""
        digests = [fact.digest for fact in facts]
        query = "SELECT workspace, digest FROM fact_drafts WHERE digest IN (SELECT value FROM json_each(:digests))"
        existing = set(ask(tx.session, query, {"digests": digests}))
        new_facts = {
            (fact.workspace, fact.digest): fact for fact in facts if (fact.workspace, fact.digest) not in existing
        }
        for key, fact in new_facts.items():
            name = hex_hash("\n".join(key), 12)
            row = DraftRow(id=f"draft_{name}", day=day, digest=fact.digest, created_at=tx.now, **shallow_dict(fact))
            tx.session.add(row)
        return len(new_facts)

    def list_waiting(self, limit: int = 200) -> list[FactDraft]:
        """The drafts that wait for a decision, oldest first."""
        clauses = "WHERE state = :state ORDER BY created_at, rowid LIMIT :limit"
        values = {"state": DraftState.WAITING, "limit": limit}
        with self.database.read() as session:
            return [value_of(row, FactDraft) for row in read_all(session, DraftRow, clauses, values)]

    def describe_layer(self) -> LayerState:
        """The state of layer G (SPEC 9.5), with the number of drafts that wait."""
        para = self.para.read()
        with self.database.read() as session:
            query = "SELECT COUNT(*) FROM fact_drafts WHERE state = :state"
            waiting = ask(session, query, {"state": DraftState.WAITING}).scalar()
        notes = [*para.problems[:3], *([f"waiting for you: {count(waiting, 'draft')}"] if waiting else [])]
        newest_at = max((fact.created_at for fact in para.facts), default=None)
        state = "degraded" if para.problems else "ready"
        return LayerState(Layer.PARA, len(para.facts), newest_at, state, "; ".join(notes))

    def get(self, draft_id: str) -> FactDraft:
        """One draft. Raises `Refusal` `unknown_draft`."""
        with self.database.read() as session:
            row = session.get(DraftRow, draft_id)
        if row is None:
            raise Refusal("unknown_draft", f"there is no draft {sanitise(draft_id)}", "clawpy drafts list")
        return value_of(row, FactDraft)

    def promote(self, draft_id: str, *, edit: str = "") -> ParaFact:
        """Make a draft a fact, in the words of `edit` if given. A second call returns the same fact.

        Raises `Refusal`: `unknown_draft`, `draft_decided` (it was dismissed), and what `Para.add` raises.
        """
        draft = self.get(draft_id)
        if draft.state == DraftState.REJECTED:
            raise Refusal("draft_decided", f"{draft.id} was dismissed", "add the fact separately")
        if draft.state == DraftState.PROMOTED:
            return self.para.get(draft.fact_id)
        is_edited = edit not in ("", draft.fact)
        is_superseding = any(fact.id == draft.supersedes for fact in self.para.read_facts(active=True))
        fact = NewFact(
            edit or draft.fact,
            draft.category,
            draft.bucket,
            draft.group,
            source=draft.source,
            workspace=draft.workspace,
            supersedes=draft.supersedes if is_superseding else "",
            trust=Trust.OPERATOR if is_edited else draft.trust,
            approved_at=self.clock.now(),
        )
        stored = self.para.add([fact])[0]
        is_quoted = draft.source.startswith(CAPTURE_SOURCE) and not is_edited
        self._decide(draft, DraftState.PROMOTED, stored.id, is_quoted=is_quoted)
        return stored

    def reject(self, draft_id: str) -> FactDraft:
        """Reject a draft: the same words are not drafted again. Raises `Refusal` `unknown_draft`, `draft_decided`."""
        draft = self.get(draft_id)
        if draft.state == DraftState.PROMOTED:
            raise Refusal("draft_decided", f"{draft.id} is {draft.fact_id} by now", "supersede that fact")
        self._decide(draft, DraftState.REJECTED)
        return self.get(draft_id)

    def _decide(self, draft: FactDraft, state: DraftState, fact_id: str = "", *, is_quoted: bool = False) -> None:
        """Store a decision. `is_quoted`: the words are those of a capture, which may guide from now on."""

        def store_decision(tx: Transaction) -> None:
            row = tx.session.get(DraftRow, draft.id)
            if row is None or row.state != DraftState.WAITING:
                return
            row.state, row.fact_id, row.decided_at = state, fact_id, tx.now
            tx.session.add(row)
            if is_quoted:
                self.captures.approve(tx, row.workspace, row.fact)
            if fact_id:
                tx.record(FactPromoted(subject=fact_id, workspace=draft.workspace, draft=draft.id, by="operator"))
            else:
                tx.record(FactRejected(subject=draft.id, workspace=draft.workspace))

        self.database.write(store_decision)


class FailingTests(NamedTuple):
    """The tests of a workspace that a session could not fix."""

    workspace: str
    names: tuple[str, ...]


@frozen
class DayRecord:
    """What happened on a local day. `date` is in the form `2026-01-05`, and `sessions` are those that ended. By the id
    of a session, `files` has the number of files that landed, and `failing` the tests that still failed."""

    date: str
    sessions: tuple[SessionView, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    captures: tuple[Capture, ...] = ()
    failing: Mapping[str, FailingTests] = field(default_factory=dict)
    approved: int = 0
    rejected: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not (self.sessions or self.captures or self.failing)

    def draft_facts(self, known_facts: Sequence[ParaFact]) -> list[NewFact]:
        """The facts that rules draw from the day: at most `MAX_FACTS`, corrections first, without known ones."""
        known_digests = {digest_sentence(fact.fact) for fact in known_facts if not fact.forgotten}
        new_facts: dict[str, NewFact] = {}
        for new_fact in (*self._make_captured_facts(), *self._make_failure_facts(), *self._make_landed_facts()):
            if new_fact.digest not in known_digests:
                new_facts.setdefault(new_fact.digest, new_fact)
        return [_add_superseded(new_fact, known_facts) for new_fact in list(new_facts.values())[:MAX_FACTS]]

    def make_lines_for(self, agent: str) -> list[str]:
        """The lines of this day for an agent's `memory.md`; none if it did nothing."""
        lines = [
            f"{label_outcome(session.outcome)}: {session.prompt}{self._describe_landed(session, ' ({} landed)')}"
            for session in self.sessions
            if session.agent == agent
        ]
        lines += [
            f"{capture.kind}: {capture.text}"
            if capture.trust is Trust.OPERATOR
            else f"somebody said ({capture.kind}): “{capture.text}”"
            for capture in self.captures
            if capture.agent == agent
        ]
        if len(lines) > MAX_LINES:
            lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more"]
        return [plain(line, MAX_LINE_CHARS) for line in lines]

    def make_synthesis(self) -> str:
        """The day as a model reads it: one event a line, each beginning with its source in brackets."""
        lines = [f"Day {self.date}: {count(self.approved, 'card')} approved, {self.rejected} rejected."]
        for session in self.sessions:
            landed = self._describe_landed(session, ", {} landed")
            text = f"{session.prompt}: {session.outcome}{landed}. {session.error or session.summary}"
            lines.append(f"[{session.id}] {session.agent} in {_make_group_name(session.workspace)}: {text}")
        lines += [
            f"[{capture.source}] {capture.kind} said {_describe_speaker(capture)}: {capture.text}"
            for capture in self.captures
        ]
        for session_id, failing in sorted(self.failing.items()):
            lines.append(f"[{session_id}] still failed: {', '.join(failing.names[:5]) or 'the suite as a whole'}")
        joined = "\n".join(plain(line, 2 * MAX_LINE_CHARS) for line in lines)
        return joined if len(joined) <= MAX_SYNTHESIS_CHARS else joined[: MAX_SYNTHESIS_CHARS - 1] + "…"

    def make_fact(self, *, fact: str, category: str, bucket: Bucket, group: str, source: str) -> NewFact:
        """A fact that a model draws from the line of the synthesis with this `source`, in whose workspace it belongs.
        If a capture has the same words, the fact has its trust; otherwise it is the model's own statement."""
        captures = [capture for capture in self.captures if capture.source == source]
        trust = next(
            (item.trust for item in captures if digest_sentence(item.text) == digest_sentence(fact)), Trust.QUOTED
        )
        workspaces = {session_id: failing.workspace for session_id, failing in self.failing.items()}
        workspaces |= {item.source: item.workspace for item in captures}
        workspaces |= {item.id: item.workspace for item in self.sessions}
        return NewFact(
            fact,
            category or "fact",
            bucket,
            group,
            source=f"nightly:{self.date}:{source}",
            workspace=workspaces.get(source, ""),
            trust=trust,
        )

    def _describe_landed(self, session: SessionView, words: str) -> str:
        """`words` with the number of files of a session that landed, "" if none did."""
        files = self.files.get(session.id)
        return words.format(count(files, "file")) if files else ""

    def _make_captured_facts(self) -> Iterator[NewFact]:
        """Facts of what was captured: corrections first, then decisions, then facts."""
        order = ("correction", "decision", "fact")
        for item in sorted(self.captures, key=lambda item: (order.index(item.kind), -item.seen, item.at, item.id)):
            is_preference = "preference" in item.tags
            occurrences = f", in {item.seen} sessions" if item.seen > 1 else ""
            yield NewFact(
                item.text,
                "preference" if is_preference else item.kind,
                Bucket.AREAS if is_preference else Bucket.PROJECTS,
                "preferences" if is_preference else _make_group_name(item.workspace),
                source=f"{CAPTURE_SOURCE}{item.source}",
                workspace=item.workspace,
                trust=item.trust,
                reason=f"said {_describe_speaker(item)}{occurrences}",
            )

    def _make_failure_facts(self) -> Iterator[NewFact]:
        """Facts about tests that still failed in several sessions."""
        sessions = group_pairs(
            ((failing.workspace, test), session_id)
            for session_id, failing in sorted(self.failing.items())
            for test in set(failing.names)
        )
        for (workspace, test), failed in sorted(sessions.items(), key=lambda item: (-len(item[1]), item[0])):
            if len(failed) >= MIN_FAILING_SESSIONS:
                yield NewFact(
                    f"{plain(test, 300)} resists being fixed by agents",
                    "failure",
                    Bucket.RESOURCES,
                    _make_group_name(workspace),
                    source="nightly:" + ",".join(failed[:5]),
                    workspace=workspace,
                    trust=find_trust_of_names([test]),
                    reason=f"it still failed in {len(failed)} sessions of {self.date}",
                )

    def _make_landed_facts(self) -> Iterator[NewFact]:
        """Facts about work that landed."""
        for session in self.sessions:
            if landed := self._describe_landed(session, " ({})"):
                yield NewFact(
                    f"Done on {self.date}: {plain(session.prompt, 300)}{landed}",
                    "change",
                    Bucket.ARCHIVES,
                    _make_group_name(session.workspace),
                    source=f"session:{session.id}",
                    workspace=session.workspace,
                    reason="it was landed",
                )


def _add_superseded(new: NewFact, known_facts: Sequence[ParaFact]) -> NewFact:
    """A new fact; if it is a correction, with the id of the valid fact that it most likely corrects."""
    if new.category != "correction":
        return new
    valid = ((fact.id, fact.fact) for fact in known_facts if fact.is_active and fact.workspace in ("", new.workspace))
    return replace(new, supersedes=find_corrected_id(new.fact, valid))


def _describe_speaker(capture: Capture) -> str:
    if capture.trust is Trust.OPERATOR:
        return "by the operator"
    return f"in a session of {capture.agent}" if capture.agent else "in a session"


def _make_group_name(workspace: str) -> str:
    return make_group_name(PurePath(workspace).name)

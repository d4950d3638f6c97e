"""Writes down what each session learnt (SPEC 6.6): before it works, at its milestones, and when it is over.

Streams and corrections are written at the team's scope, the most specific one; what tests, the operator or repetition
established goes on to the session (the rollups *team* and *session*); what is feared and assumed belongs to the
session. Ids follow from what an entry says, so a second time writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from engine.events import Event, LearningPromoted, LearningsExtracted
from engine.learning.learnings.asking import extract
from engine.learning.learnings.entries import LONGEST, Scope, domain_of, entry_id, project_key, title_of
from engine.learning.learnings.promotion import Provenance, retraction
from engine.learning.learnings.rules import (
    ABOUT_ONE,
    IN_FLIGHT,
    PROSPECTIVE,
    RISK,
    UNDONE,
    Around,
    Found,
    SessionRecord,
    assumptions,
    came_true,
    found,
    of_fact,
    risks,
)
from engine.learning.learnings.store import Change, Forgotten, LearningFiles, added, texts_of
from engine.model import Asks, EntrySource, LearningEntry, LearningKind, LearningStatus, NoAnswer, Result, Trust
from engine.model.lessons import lesson_id
from engine.model.secrets import redact
from engine.storage.facts_read import Fact

log = logging.getLogger(__name__)

ESTABLISHED = 0.75
"""From this confidence on what a team found goes on to its session: tests, the operator, or repetition said so."""

TAKEN = frozenset({"ChangeSetLanded", "ChangeSetBranched"})
TAKEN_AFTER_ALL = "its changes were landed after all"
"""Why an entry is retired that said of changes that they had been taken back."""


class Extraction:
    """Extracts. One thread at a time."""

    def __init__(
        self,
        files: LearningFiles,
        around: Around,
        model: Asks,
        offer: Callable[[LearningEntry], None],
    ) -> None:
        """`offer` is told of each new entry that holds beyond its session (SPEC 1.7); again harmlessly."""
        self._files = files
        self._around = around
        self._model = model
        self._offer = offer

    def begin(self, session_id: str) -> list[LearningEntry]:
        """A session began: write what might go wrong, from what was known then."""
        with self._files.watched() as forgotten:
            record = self._begun(session_id)
            if record is None:
                return []
            known = self._files.entries(Scope(project_key(record.view.workspace)))
            feared = risks(record, [one for one in known if one.session_id != session_id])
            return self._write(record, feared, record.view.started_at or record.view.created_at, forgotten)

    def in_flight(self, session_id: str) -> list[LearningEntry]:
        """A milestone of a session: write what was assumed up to now."""
        with self._files.watched() as forgotten:
            record = self._begun(session_id)
            if record is None:
                return []
            assumed = assumptions(self._around.lines(session_id), tuple(self._around.secrets()))
            at = record.view.ended_at or record.view.started_at or record.view.created_at
            return self._write(record, assumed, at, forgotten)

    def late(self, fact: Fact) -> list[LearningEntry]:
        """What became of a session's changes after it was over: the operator's last word on them holds."""
        with self._files.watched() as forgotten:
            record = self._around.begun(str(fact.payload.get("session_id", "")))
            if record is None:
                return []
            every = of_fact(fact, record)
            with self._files.alone():
                self._again(record, {one.about for one in every}, fact)
            return self._write(record, every, fact.at, forgotten)

    def end(self, session_id: str, *, ask: bool = True) -> tuple[list[LearningEntry], str]:
        """A session is over: write what it taught, by rules and, with `ask`, by the model where one is named. What
        is forgotten while the model is asked is not written (SPEC 4.10). Returns the new entries, and why a model was
        not heard, "" where none is named."""
        with self._files.watched() as forgotten:
            record = self._around.of(session_id)
            if record is None or record.view.result is Result.CANNOT_RUN:
                return [], ""
            lines = list(self._around.lines(session_id)) if record.view.flow is None else []
            every = [*found(record), *assumptions(lines, tuple(self._around.secrets()))]
            by, fault = "rules", ""
            if ask and record.view.flow is None:
                try:
                    claimed = extract(self._model, record, lines)
                except NoAnswer as error:
                    fault = f"no model said what {session_id} taught, the rules did: {error}"
                    log.warning("%s", fault)
                else:
                    if claimed is not None:
                        every += claimed
                        by = "rules and model"
            at = record.view.ended_at or record.view.created_at
            return self._write(record, every, at, forgotten, by=by), fault

    def _begun(self, session_id: str) -> SessionRecord | None:
        record = self._around.begun(session_id)
        return None if record is None or record.view.flow is not None else record

    def _write(
        self, record: SessionRecord, every: Sequence[Found], at: datetime, forgotten: Forgotten, *, by: str = "rules"
    ) -> list[LearningEntry]:
        said = [without_secrets(one, tuple(self._around.secrets())) for one in every]
        with self._files.alone():
            new = self._write_alone(record, said, at, forgotten, by) if said else []
            self._mark(record, said)
            return new

    def _write_alone(
        self, record: SessionRecord, every: Sequence[Found], at: datetime, forgotten: Forgotten, by: str
    ) -> list[LearningEntry]:
        view = record.view
        session = Scope(project_key(view.workspace), view.id)
        team = replace(session, team=record.leader)
        known = {one.id for one in self._files.entries(session)}
        new: list[LearningEntry] = []
        facts: list[Event] = []
        for one in every:
            own = one.about.startswith(RISK) or one.phase == IN_FLIGHT or one.kind is LearningKind.PROXY
            entry = made(one, session if own else team, record, at)
            if entry.id in known or forgotten(texts_of(entry)):
                continue
            known.add(entry.id)
            new.append(entry)
            if one.general and not own:
                self._offer(entry)
            if not own and record.leader and entry.confidence >= ESTABLISHED:
                risen = self._risen(entry, session, at)
                if risen.id not in known:
                    known.add(risen.id)
                    new.append(risen)
                    facts.append(
                        LearningPromoted(
                            subject=risen.id,
                            workspace=view.workspace,
                            scope="session",
                            sources=(entry.id,),
                            sessions=(view.id,),
                            by="establishment",
                        )
                    )
        if new:
            phases = tuple(dict.fromkeys(one.phase for one in new))
            told = LearningsExtracted(subject=view.id, workspace=view.workspace, entries=len(new), scopes=phases, by=by)
            self._files.apply([added(one) for one in new], [told, *facts])
        return new

    def _again(self, record: SessionRecord, about: set[str], fact: Fact) -> None:
        """Changes that had been taken back were taken: that they were not wanted holds no longer. What was taken after
        all was taken back again: what that taught holds again."""
        entries = self._files.entries(Scope(project_key(record.view.workspace), record.view.id))
        if fact.kind in TAKEN:
            for one in entries:
                if one.active and one.about.startswith(UNDONE):
                    known = Provenance.of(self._files.entries())
                    changes, told, _ = retraction(one, known, TAKEN_AFTER_ALL, fact.at)
                    self._files.apply(changes, [told])
            return
        holds = {"status": LearningStatus.ACTIVE.value, "retired_because": ""}
        back = [one for one in entries if one.about in about and one.retired_because == TAKEN_AFTER_ALL]
        self._files.apply([Change(one.path, one.id, holds) for one in back])

    def _risen(self, entry: LearningEntry, session: Scope, at: datetime) -> LearningEntry:
        id = entry_id(session.level, session.id, entry.kind, entry.about, entry.text, entry.trust)
        return replace(
            entry,
            id=id,
            scope=session.level,
            scope_id=session.id,
            path=session.page(entry.kind, id),
            promoted_from=(EntrySource(entry.id, entry.session_id),),
            promoted_at=at,
        )

    def _mark(self, record: SessionRecord, every: Sequence[Found]) -> None:
        """What was feared and happened says so, once."""
        session = record.view.id
        feared = self._files.entries(Scope(project_key(record.view.workspace), session), below=False)
        happened = [
            one
            for one in feared
            if one.phase == PROSPECTIVE and session not in one.reinforced_by and came_true(one, every)
        ]
        self._files.apply(
            [
                Change(
                    one.path,
                    one.id,
                    {
                        "reinforcement_count": one.reinforcement_count + 1,
                        "reinforced_by": [*one.reinforced_by, session],
                        "reasons": [*one.reasons, "it happened"],
                    },
                )
                for one in happened
            ]
        )


def without_secrets(one: Found, known: Iterable[str]) -> Found:
    """What was found without what is, or looks like, a secret (SPEC 11.1)."""
    text, about, title = (redact(said, known) for said in (one.text, one.about, one.title))
    return replace(one, text=text, about=about, title=title)


def made(one: Found, scope: Scope, record: SessionRecord, at: datetime) -> LearningEntry:
    """What was found as an entry of a scope."""
    view = record.view
    within = f"{view.id}/{scope.team}" if scope.team else scope.id
    text = one.text[:LONGEST]
    id = entry_id(scope.level, within, one.kind, one.about, text, one.trust)
    holds = () if one.about or one.trust is not Trust.OPERATOR else (one.general or ABOUT_ONE,)
    return LearningEntry(
        id=id,
        scope=scope.level,
        scope_id=scope.id,
        kind=one.kind,
        type=one.type,
        domain=domain_of(one.kind),
        text=text,
        title=one.title or title_of(text),
        importance=one.importance.value,
        confidence=one.confidence.value,
        reasons=(*one.confidence.reasons, *one.importance.reasons, *holds),
        phase=one.phase,
        status=LearningStatus.ACTIVE,
        created_at=at,
        session_id=view.id,
        session_task=title_of(redact(view.prompt)),
        workspace=view.workspace,
        agent=view.agent,
        about=one.about,
        path=scope.page(one.kind, id),
        continues=record.continues,
        trust=one.trust,
        lesson=lesson_id(text),
    )

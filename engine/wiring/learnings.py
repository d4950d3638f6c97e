"""What sessions learnt: the promotion chain, and what it reads of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.adapters import MemoryModel
from engine.learnings.learnings import Learnings
from engine.learnings.prompt_part import LearntPart
from engine.learnings.record import KINDS, Edit, Said, SessionRecord, about_session
from engine.memory.capturing import Captured
from engine.memory.embedding import LOCAL, NoEmbedder
from engine.values import (
    Answer,
    DecisionSignal,
    PermissionRequest,
    Question,
    Refusal,
    SessionView,
    Source,
    TranscriptLine,
)
from engine.wiring.organisation import card

if TYPE_CHECKING:
    from engine.engine import Engine

SPEAKERS = {"reply": "operator", "say": "agent"}
"""Who speaks in lines of a transcript; all others are programs."""

PAGE = 2_000
MOST_REQUESTS = 200
MOST_DECISIONS = 200
"""So many of the operator's latest decisions are looked through for an edit."""

MOST_RUNS = 20
MOST_CONTINUED = 100
"""Sessions that go on with each other; each is looked up."""

AFTER = timedelta(seconds=1)
"""Facts are written within so long after what they tell of."""


def build(core: Engine) -> None:
    """The chain, and its part of every prompt. Sessions and memory are asked later, when they are there."""
    core.learnings = Learnings(
        core.home.data,
        core.database,
        core.clock,
        facts=core.ledger,
        records=SessionRecords(core),
        workspace_of=partial(_workspace, core),
        report=core.report,
        make=partial(_vectors, core),
        model_name=lambda: LOCAL,
        model=_Model(core),
        secrets=lambda: core.keys.secrets(),
    )
    core.learnt_part = LearntPart(core.learnings.files, core.settings)


class SessionRecords:
    """Sessions as the chain reads them; see `record.Records`."""

    def __init__(self, core: Engine) -> None:
        self._core = core

    def of(self, session_id: str) -> SessionRecord | None:
        """Everything about a session."""
        core, begun = self._core, self.begun(session_id)
        if begun is None:
            return None
        view = begun.view
        until = max(core.clock.now(), view.ended_at or view.created_at) + AFTER
        facts = core.ledger.between(view.created_at, until, KINDS)
        said = [_said(one, line) for one, line in core.memory.captures.said_in(session_id)]
        return SessionRecord(
            view,
            begun.leader,
            tuple(about_session(facts, session_id)),
            tuple(said),
            self._asked(session_id),
            _edit(core, view),
            begun.red,
            begun.continues,
            begun.own_words,
        )

    def begun(self, session_id: str) -> SessionRecord | None:
        """What was known when it began."""
        core = self._core
        try:
            view = core.sessions.get(session_id)
        except Refusal:
            return None
        start = view.started_at or view.created_at
        before = [run for run in core.runs.latest(view.workspace, MOST_RUNS) if run.ran_at < start]
        red = before[0].check.failing if before else ()
        first = self._first(session_id)
        return SessionRecord(
            view,
            self._leader(view.agent),
            red=tuple(red),
            continues=first if first != session_id else "",
            own_words=_own_words(core, view),
        )

    def lines(self, session_id: str) -> Iterable[TranscriptLine]:
        """Its transcript."""
        return _lines(self._core, session_id)

    def _first(self, session_id: str) -> str:
        """The first of the sessions that this one goes on with; itself when it goes on with none."""
        for _ in range(MOST_CONTINUED):
            before = self._core.sessions.continues(session_id)
            if not before:
                break
            session_id = before
        return session_id

    def _leader(self, agent: str) -> str:
        if not agent:
            return ""
        try:
            chain, _ = self._core.hierarchy.chain(agent)
        except Refusal:  # it was retired meanwhile
            return ""
        return chain[0] if chain else ""

    def _asked(self, session_id: str) -> tuple[PermissionRequest, ...]:
        asked = self._core.permissions.latest(MOST_REQUESTS, session_id=session_id)
        return tuple(reversed(asked))


class _Model:
    """The model that the operator named for memory; see `values.Asks`."""

    def __init__(self, core: Engine) -> None:
        self._core = core

    def ask(self, question: Question, /) -> Answer | None:
        return MemoryModel(self._core.settings, self._core.completions).ask(question)


def _own_words(core: Engine, view: SessionView) -> bool:
    """Whether the operator wrote what a session was asked."""
    made = card(core, view.prediction_id)
    return made is not None and made.source is Source.OPERATOR


def _said(one: Captured, line: TranscriptLine) -> Said:
    return Said(one.kind.value, one.text, SPEAKERS.get(line.kind, "program"), "preference" in one.tags)


def _edit(core: Engine, view: SessionView) -> Edit | None:
    """What the operator made of the card's prompt before he approved it. A flow's parameters are no words of his, and
    its prompt is made of them."""
    if view.flow is not None:
        return None
    latest = core.feedback.recent(MOST_DECISIONS)
    said = {one.signal: one for one in latest if one.prediction_id == view.prediction_id}
    original, approved = said.get(DecisionSignal.ORIGINAL), said.get(DecisionSignal.APPROVED)
    if original is None or approved is None:
        return None
    like = sum(one.edited and (one.kind, one.channel) == (approved.kind, approved.channel) for one in latest)
    return Edit(original.prompt, approved.prompt, like=max(1, like))


def _lines(core: Engine, session_id: str) -> Iterator[TranscriptLine]:
    after = 0
    while page := core.sessions.transcript(session_id, after=after, limit=PAGE):
        yield from page
        after = page[-1].number


def _workspace(core: Engine, session_id: str) -> str:
    try:
        return core.sessions.get(session_id).workspace
    except Refusal:
        return ""


def _vectors(core: Engine, texts: Sequence[str]) -> list[bytes] | None:
    try:
        return core.memory.meanings(texts)
    except NoEmbedder:
        return None

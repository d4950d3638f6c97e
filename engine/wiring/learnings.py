"""What sessions learnt: the promotion chain, and what it reads of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.execution.runners.model.completions import MemoryModel
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.rules import KINDS, SessionRecord, Statement, about_session
from engine.memory.capturing import Captured
from engine.memory.embedding import LOCAL, NoEmbedder
from engine.model import (
    Answer,
    BubbleState,
    Learning,
    LearningEntry,
    PermissionRequest,
    Question,
    Refusal,
    Score,
    SessionView,
    Source,
    TranscriptLine,
)
from engine.model.adaptation import CandidateStatus, CandidateType, PromptFragment
from engine.model.lessons import category, lessons_of
from engine.wiring.organisation import card, correction, reach

if TYPE_CHECKING:
    from engine.engine import Engine

SPEAKERS = {"reply": "operator", "say": "agent"}
"""Who speaks in lines of a transcript; all others are programs."""

PAGE = 2_000
MOST_REQUESTS = 200

EVERY = 100_000
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
        sessions=SessionSource(core),
        make=partial(_vectors, core),
        model_name=lambda: LOCAL,
        model=_Model(core),
    )


class SessionSource:
    """The rest of the engine as the chain sees it; see `rules.SessionSource`."""

    def __init__(self, core: Engine) -> None:
        self._core = core

    def of(self, session_id: str) -> SessionRecord | None:
        """Everything about a session."""
        core, start_record = self._core, self.begun(session_id)
        if start_record is None:
            return None
        view = start_record.view
        until = max(core.clock.now(), view.ended_at or view.created_at) + AFTER
        facts = core.ledger.between(view.created_at, until, KINDS)
        statements = [_said(capture, line) for capture, line in core.memory.captures.said_in(session_id)]
        return SessionRecord(
            view,
            start_record.leader,
            tuple(about_session(facts, session_id)),
            tuple(statements),
            self._asked(session_id),
            correction(core, view.prediction_id) if view.flow is None else None,
            start_record.red,
            start_record.continues,
            start_record.own_words,
            reach(core, view.channel),
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

    def secrets(self) -> Iterable[str]:
        """The operator's keys."""
        return self._core.keys.secrets()

    def report(self, where: str, words: str) -> None:
        """Tells the operator."""
        self._core.report(where, words)

    def offer(self, entry: LearningEntry) -> None:
        """Put it before the gates to the agent's leader. What it concerns are the topics it names and what the channel
        is for that it came out of."""
        core = self._core
        try:
            channel = core.settings.current.channels.get(core.sessions.get(entry.session_id).channel)
        except Refusal:  # the session is forgotten
            channel = None
        scores = Score(entry.confidence, entry.reasons[:1]), Score(entry.importance, entry.reasons[1:])
        concerns = category(entry.text, channel.specialty if channel else "")
        evidence = (f"{entry.scope.value} entry {entry.id.partition('@')[0]}, from “{entry.session_task}”",)
        offered = core.wisdom.offer(
            Learning(
                entry.id, entry.text, concerns, entry.agent, entry.session_id, *scores, evidence, entry.workspace,
                entry.trust,
            )
        )  # fmt: skip
        if entry.approved_by and offered.state is BubbleState.QUEUED and not offered.may_guide:
            core.wisdom.approve(offered.id)

    def retracted(self, lesson: str, reason: str) -> None:
        """Leaders lose it, and learned guidance that says it is rolled back, or never comes into force."""
        core = self._core
        core.wisdom.retract(lesson)
        for candidate in core.adaptation.candidates(type=CandidateType.PROMPT_FRAGMENT, limit=EVERY):
            if not isinstance(candidate.effect, PromptFragment) or lesson not in lessons_of(candidate.effect.guidance):
                continue
            if candidate.status is CandidateStatus.PROMOTED:
                core.adaptation.roll_back(candidate.id, f"its lesson was retracted: {reason}")
            elif not candidate.status.decided:
                core.adaptation.reject(candidate.id, f"its lesson was retracted: {reason}")

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
            leaders = self._core.hierarchy.lineage(agent).leaders
        except Refusal:  # it was retired meanwhile
            return ""
        return leaders[0].id if leaders else ""

    def _asked(self, session_id: str) -> tuple[PermissionRequest, ...]:
        requests = self._core.permissions.latest(MOST_REQUESTS, session_id=session_id)
        return tuple(reversed(requests))


class _Model:
    """The model that the operator named for memory; see `values.Asks`."""

    def __init__(self, core: Engine) -> None:
        self._core = core

    def ask(self, question: Question, /) -> Answer | None:
        return MemoryModel(self._core.settings, self._core.completions).ask(question)


def _own_words(core: Engine, view: SessionView) -> bool:
    """Whether the operator wrote what a session was asked."""
    made_card = card(core, view.prediction_id)
    return made_card is not None and made_card.source is Source.OPERATOR


def _said(captured: Captured, line: TranscriptLine) -> Statement:
    return Statement(
        captured.kind.value, captured.text, SPEAKERS.get(line.kind, "program"), "preference" in captured.tags
    )


def _lines(core: Engine, session_id: str) -> Iterator[TranscriptLine]:
    after = 0
    while page := core.sessions.transcript(session_id, after=after, limit=PAGE):
        yield from page
        after = page[-1].number


def _vectors(core: Engine, texts: Sequence[str]) -> list[bytes] | None:
    try:
        return core.memory.meanings(texts)
    except NoEmbedder:
        return None

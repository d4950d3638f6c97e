"""Builds the promotion chain of learnings (SPEC 6), which is there before sessions and memory, and asks them later.

`_SessionSource` reads sessions for it, and passes its lessons on to leaders and candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.hierarchy.bubbles import find_topics
from engine.hierarchy.teaching import remove_lesson
from engine.learning.learnings import ENTRY_KINDS, SessionRecord, Statement
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.recurrence import StoredVectors
from engine.lessons import find_lessons
from engine.memory.captures import SaidSentence, read_all_lines
from engine.memory.embedding import LOCAL_MODEL, NoEmbedder
from engine.model import (
    BubbleState,
    LearningEntry,
    ModelAnswer,
    ModelQuestion,
    OfferedFinding,
    Refusal,
    Score,
    Source,
    TranscriptLine,
)
from engine.model.adaptation import CandidateStatus, CandidateType, PromptFragment
from engine.model.base import find_or_none
from engine.model.decisions import Correction

if TYPE_CHECKING:
    from engine.services import Services

MAX_PERMISSION_REQUESTS = 200
"""Number of the latest permission requests of a session that are read."""

ALL_CANDIDATES = 100_000
"""More than a home ever has."""

MAX_TEST_RUNS = 20
"""Number of the latest test runs of a workspace among which the last one before a session is searched."""

MAX_CONTINUED = 100
"""The longest chain of sessions that continue each other."""

REACH_DECISIONS = 200
"""Number of the newest decisions that are searched for cards on the same channel."""

RECORD_DELAY = timedelta(seconds=1)
"""How long after an event its entry in the ledger may be written."""


def build(services: Services) -> None:
    """Build the promotion chain."""
    services.learnings = Learnings(
        services.home.data,
        services.database,
        services.clock,
        ledger=services.ledger,
        sessions=_SessionSource(services),
        vectors=StoredVectors(services.database, partial(_embed, services), LOCAL_MODEL),
        model=MemoryModel(services),
    )


def _embed(services: Services, texts: Sequence[str]) -> list[bytes] | None:
    try:
        return services.memory.embed_texts(texts)
    except NoEmbedder:
        return None


class MemoryModel:
    """Asks the questions of memory and of the promotion chain, which are built before the services that it needs. The
    operator names the model for them in the settings (`memory.model`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, question: ModelQuestion, /) -> ModelAnswer | None:
        """Ask the named model; None if none is named. Raises as `SingleQuestions.ask`."""
        model_id = self._services.settings.current.memory.model
        return self._services.single_questions.ask(model_id, question) if model_id else None


class _SessionSource:
    """What the promotion chain reads of sessions and asks of other services (`SessionSource`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def load_record(self, session_id: str) -> SessionRecord | None:
        """The record of a session, None for an unknown one."""
        services, start_record = self._services, self.load_start(session_id)
        if start_record is None:
            return None
        view = start_record.view
        until = max(services.clock.now(), view.ended_at or view.created_at) + RECORD_DELAY
        entries = services.ledger.read_between(view.created_at, until, ENTRY_KINDS)
        requests = services.permissions.latest(MAX_PERMISSION_REQUESTS, session_id=session_id)
        return replace(
            start_record,
            entries=tuple(entry for entry in entries if session_id in (entry.subject, entry.payload.get("session_id"))),
            statements=tuple(map(_to_statement, services.knowledge.captures.extract(session_id))),
            permissions=tuple(reversed(requests)),
            edit=find_correction(services, view.prediction_id) if view.flow is None else None,
            reach=count_channel_reach(services, view.channel),
        )

    def load_start(self, session_id: str) -> SessionRecord | None:
        """The record of the session as of its start, None for an unknown one."""
        services = self._services
        view = find_or_none(services.sessions.get, session_id)
        if view is None:
            return None
        start = view.started_at or view.created_at
        runs = services.validation_runs.read_newest(view.workspace, MAX_TEST_RUNS)
        card = find_or_none(services.cards.get, view.prediction_id)
        return SessionRecord(
            view,
            leader=self._find_leader(view.agent),
            failing=next((run.check.failing for run in runs if run.ran_at < start), ()),
            continues=self._find_first_of_chain(session_id),
            own_words=card is not None and card.source is Source.OPERATOR,
        )

    def read_transcript(self, session_id: str) -> Iterable[TranscriptLine]:
        """Its transcript."""
        return read_all_lines(self._services.sessions.read_transcript, session_id)

    def list_secrets(self) -> Iterable[str]:
        """Secrets that must not be stored."""
        return self._services.keys.secrets()

    def report(self, where: str, words: str) -> None:
        """Report a fault to the operator."""
        self._services.report(where, words)

    def offer(self, entry: LearningEntry) -> None:
        """Offer a learning to the agent's leader, where the gates check it. Its category comes from its text and from
        the specialty of its channel."""
        services = self._services
        view = find_or_none(services.sessions.get, entry.session_id)
        channel = None if view is None else services.settings.current.channels.get(view.channel)
        offered = services.bubbles.offer(
            OfferedFinding(
                id=entry.id,
                text=entry.text,
                category=find_topics(entry.text, channel.specialty if channel else ""),
                agent=entry.agent,
                session=entry.session_id,
                confidence=Score(entry.confidence, entry.reasons[:1]),
                importance=Score(entry.importance, entry.reasons[1:]),
                evidence=(f"{entry.scope.value} entry {entry.id.partition('@')[0]}, from “{entry.session_task}”",),
                workspace=entry.workspace,
                trust=entry.trust,
            )
        )
        if entry.approved_at and offered.state is BubbleState.QUEUED and not offered.may_guide:
            services.bubbles.approve(offered.id)

    def retract(self, lesson: str, reason: str) -> None:
        """Remove a retracted lesson from the leaders, and roll back or reject candidates that contain it."""
        services = self._services
        remove_lesson(lesson, services.bubbles, services.profiles, services.teaching)
        for candidate in services.adaptation.candidates(type=CandidateType.PROMPT_FRAGMENT, limit=ALL_CANDIDATES):
            effect = candidate.effect
            if not isinstance(effect, PromptFragment) or lesson not in find_lessons(effect.guidance):
                continue
            because = f"its lesson was retracted: {reason}"
            if candidate.status is CandidateStatus.ACTIVE:
                services.adaptation.roll_back(candidate.id, because)
            elif not candidate.status.is_decided:
                services.adaptation.reject(candidate.id, because)

    def _find_first_of_chain(self, session_id: str) -> str:
        """The first of the sessions that this one continues, "" if it continues none."""
        first = ""
        for _ in range(MAX_CONTINUED):
            before = self._services.sessions.find_continued(first or session_id)
            if not before:
                break
            first = before
        return first

    def _find_leader(self, agent: str) -> str:
        if not agent:
            return ""
        try:
            leaders = self._services.agents.find_lineage(agent).leaders
        except Refusal:  # it was retired meanwhile
            return ""
        return leaders[0].id if leaders else ""


def _to_statement(said: SaidSentence) -> Statement:
    sentence = said.sentence
    return Statement(sentence.kind.value, sentence.text, said.speaker.value, preference="preference" in sentence.tags)


def find_correction(services: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    prompts = find_or_none(services.cards.find_correction, card_id)
    if prompts is None:
        return None
    original, edited = prompts
    card = services.cards.get(card_id)
    channel = card.assignment.channel
    return Correction(
        original,
        edited,
        agent=card.agent,
        kind=card.kind,
        channel=channel,
        session=card.session_id or "",
        estimate=card.estimate,
        reach=count_channel_reach(services, channel),
    )


def count_channel_reach(services: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in services.decisions.load_newest(REACH_DECISIONS)))

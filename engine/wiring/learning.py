"""Builds the promotion chain of learnings, with what it reads of cards, corrections and sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from engine.execution.runners.model.single_questions import MemoryModel
from engine.hierarchy.teaching import remove_lesson
from engine.learning.learnings.findings import ENTRY_KINDS, SessionRecord, Statement
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.recurrence import StoredVectors
from engine.memory.captures import SaidSentence, read_all_lines
from engine.memory.embedding import LOCAL_MODEL, NoEmbedder
from engine.model import (
    Answer,
    BubbleState,
    Card,
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
from engine.model.base import find_or_none
from engine.model.learnings import Correction, find_lessons, find_topics

if TYPE_CHECKING:
    from engine.services import Services


MAX_REQUESTS = 200
"""Number of the latest permission requests of a session that are read."""

ALL_CANDIDATES = 100_000
"""More than a home ever has."""

MAX_RUNS = 20
"""Number of the latest test runs of a workspace among which the last one before a session is searched."""

MAX_CONTINUED = 100
"""The longest chain of sessions that continue each other."""

RECORD_DELAY = timedelta(seconds=1)
"""How long after an event its entry in the ledger may be written."""

REACH_DECISIONS = 200
"""Number of the newest decisions that are searched for cards on the same channel."""


def build_learnings(services: Services) -> None:
    """Build the promotion chain. It asks sessions and memory later, when they exist."""
    services.learnings = Learnings(
        services.home.data,
        services.database,
        services.clock,
        ledger=services.ledger,
        sessions=SessionSource(services),
        vectors=StoredVectors(services.database, partial(_embed, services), LOCAL_MODEL),
        model=_LateMemoryModel(services),
    )


class SessionSource:
    """What the promotion chain reads of sessions and asks of other services (`findings.SessionSource`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def load_record(self, session_id: str) -> SessionRecord | None:
        """The record of a session, None for an unknown one."""
        services, start_record = self._services, self.load_start(session_id)
        if start_record is None:
            return None
        view = start_record.view
        until = max(services.clock.now(), view.ended_at or view.created_at) + RECORD_DELAY
        entries = services.ledger.between(view.created_at, until, ENTRY_KINDS)
        statements = map(_to_statement, services.knowledge.captures.extract(session_id))
        return SessionRecord(
            view,
            start_record.leader,
            tuple(entry for entry in entries if session_id in (entry.subject, entry.payload.get("session_id"))),
            tuple(statements),
            self._collect_permission_requests(session_id),
            find_correction(services, view.prediction_id) if view.flow is None else None,
            start_record.failing,
            start_record.continues,
            start_record.own_words,
            count_channel_reach(services, view.channel),
        )

    def load_start(self, session_id: str) -> SessionRecord | None:
        """The record of the session as of its start, None for an unknown one."""
        services = self._services
        view = find_or_none(services.sessions.get, session_id)
        if view is None:
            return None
        start = view.started_at or view.created_at
        before = [run for run in services.validation_runs.latest(view.workspace, MAX_RUNS) if run.ran_at < start]
        failing = before[0].check.failing if before else ()
        first = self._find_first_of_chain(session_id)
        return SessionRecord(
            view,
            self._find_leader(view.agent),
            failing=tuple(failing),
            continues=first if first != session_id else "",
            own_words=_has_own_words(services, view),
        )

    def transcript(self, session_id: str) -> Iterable[TranscriptLine]:
        """Its transcript."""
        return read_all_lines(self._services.sessions.transcript, session_id)

    def secrets(self) -> Iterable[str]:
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
        scores = Score(entry.confidence, entry.reasons[:1]), Score(entry.importance, entry.reasons[1:])
        concerns = find_topics(entry.text, channel.specialty if channel else "")
        evidence = (f"{entry.scope.value} entry {entry.id.partition('@')[0]}, from “{entry.session_task}”",)
        offered = services.bubbles.offer(
            Learning(
                entry.id, entry.text, concerns, entry.agent, entry.session_id, *scores, evidence, entry.workspace,
                entry.trust,
            )
        )  # fmt: skip
        if entry.approved_by and offered.state is BubbleState.QUEUED and not offered.may_guide:
            services.bubbles.approve(offered.id)

    def retract(self, lesson: str, reason: str) -> None:
        """Remove a retracted lesson from the leaders, and roll back or reject candidates that contain it."""
        services = self._services
        remove_lesson(lesson, services.bubbles, services.profiles, services.teaching)
        for candidate in services.adaptation.candidates(type=CandidateType.PROMPT_FRAGMENT, limit=ALL_CANDIDATES):
            if not isinstance(candidate.effect, PromptFragment) or lesson not in find_lessons(
                candidate.effect.guidance
            ):
                continue
            if candidate.status is CandidateStatus.ACTIVE:
                services.adaptation.roll_back(candidate.id, f"its lesson was retracted: {reason}")
            elif not candidate.status.is_decided:
                services.adaptation.reject(candidate.id, f"its lesson was retracted: {reason}")

    def _find_first_of_chain(self, session_id: str) -> str:
        """The first of the sessions that this one continues; itself when it continues none."""
        for _ in range(MAX_CONTINUED):
            before = self._services.sessions.continues(session_id)
            if not before:
                break
            session_id = before
        return session_id

    def _find_leader(self, agent: str) -> str:
        if not agent:
            return ""
        try:
            leaders = self._services.agents.find_lineage(agent).leaders
        except Refusal:  # it was retired meanwhile
            return ""
        return leaders[0].id if leaders else ""

    def _collect_permission_requests(self, session_id: str) -> tuple[PermissionRequest, ...]:
        requests = self._services.permissions.latest(MAX_REQUESTS, session_id=session_id)
        return tuple(reversed(requests))


class _LateMemoryModel:
    """The model that the settings name for memory; what asks it is built after the learnings."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, question: Question, /) -> Answer | None:
        return MemoryModel(self._services.settings, self._services.single_questions).ask(question)


def _has_own_words(services: Services, view: SessionView) -> bool:
    """Whether the operator wrote the prompt of a session."""
    made_card = find_card(services, view.prediction_id)
    return made_card is not None and made_card.source is Source.OPERATOR


def _to_statement(said: SaidSentence) -> Statement:
    sentence = said.sentence
    return Statement(sentence.kind.value, sentence.text, said.speaker.value, "preference" in sentence.tags)


def _embed(services: Services, texts: Sequence[str]) -> list[bytes] | None:
    try:
        return services.memory.embed_texts(texts)
    except NoEmbedder:
        return None


def find_correction(services: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    card = find_card(services, card_id)
    correction = None if card is None else services.cards.find_correction(card_id)
    if card is None or correction is None:
        return None
    channel = card.assignment.channel
    return Correction(
        *correction,
        card.agent,
        card.kind,
        channel,
        card.session_id or "",
        card.estimate,
        count_channel_reach(services, channel),
    )


def count_channel_reach(services: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in services.decisions.load_newest(REACH_DECISIONS)))


def find_card(services: Services, card_id: str) -> Card | None:
    """A card, None for work without one."""
    return find_or_none(services.cards.get, card_id)

"""Builds what learns from sessions: learnings (SPEC 6), and the candidates of changed behaviour with the effects of the
active ones (SPEC 5).

Learnings are there before sessions and memory. `_SessionSource` asks these for them later, and passes lessons on to
leaders and candidates. `_CandidateSources` reads cards, sessions, memory, guidance, models and rails for candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from engine.execution.runners.flows import FLOWS, FlowRegistry, LearnedFlow, make_learned_flow
from engine.execution.trees import make_patch
from engine.git import Git
from engine.hierarchy.bubbles import find_topics
from engine.hierarchy.guidance import select_items
from engine.hierarchy.teaching import remove_lesson
from engine.learning.candidates import HealedTests, ModelPrice, ModelsUsed
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.effects import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.learning.learnings import ENTRY_KINDS, SessionRecord, Statement
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.recurrence import StoredVectors
from engine.lessons import find_lessons
from engine.memory.capture_rules import CaptureKind
from engine.memory.captures import SaidSentence, read_all_lines
from engine.memory.embedding import LOCAL_MODEL, NoEmbedder
from engine.model import (
    BubbleState,
    LearningEntry,
    OfferedFinding,
    ParaFact,
    Refusal,
    Score,
    SessionView,
    Source,
    TranscriptLine,
    Trust,
)
from engine.model.adaptation import Candidate, CandidateStatus, CandidateType, FlowOffload, Overlay, PromptFragment
from engine.model.decisions import Correction
from engine.model.refusal import find_or_none
from engine.prediction.templates.agent_work import LearnedFlowOffer
from engine.services.foundation import MemoryModel

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

MAX_TRANSCRIPT_LINES = 4_000
"""The last lines of a transcript that are read."""

MAX_CORRECTIONS = 3
"""The latest corrections and decisions of a session that are used."""

PRESENT_USE = timedelta(days=30)
"""Older calls do not count as present use of a model."""

MAX_AGENT_SESSIONS = 100
"""Number of the newest sessions of an agent that are read."""


def build_learnings(services: Services) -> None:
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
        requests = services.permissions.list_newest(MAX_PERMISSION_REQUESTS, session_id=session_id)
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
        for candidate in services.adaptation.list_candidates(type=CandidateType.PROMPT_FRAGMENT, limit=ALL_CANDIDATES):
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


def build_effects(services: Services) -> None:
    """Build the store of active candidates, before anything that they may change."""
    services.overlays = Overlays(services.database)
    services.trials = Trials(services.database, services.overlays, services.settings, ledger=services.ledger)
    services.learned_guidance = LearnedGuidance(services.overlays, services.trials, services.settings)
    services.flows = FlowRegistry(lambda: [flow for _, flow in _select_learned_flows(services)])


def _select_learned_flows(services: Services) -> Iterator[tuple[Overlay, type[LearnedFlow]]]:
    """The flows of active candidates."""
    for overlay in services.overlays.find_flows():
        if isinstance(effect := overlay.effect, FlowOffload):
            commands = tuple(tuple(split_command(command)) for command in effect.commands)
            yield overlay, make_learned_flow(effect.name, effect.title, commands, overlay.workspace)


def list_learned_flows(services: Services) -> list[LearnedFlowOffer]:
    """The learned flows that are active, as cards offer them."""
    return [
        LearnedFlowOffer(flow.name, f"Run {flow.describe_commands()}", overlay.since, overlay.workspace)
        for overlay, flow in _select_learned_flows(services)
    ]


def build_adaptation(services: Services) -> None:
    """Build adaptation on top of everything that it learns from."""
    services.adaptation = Adaptation(
        services.database,
        clock=services.clock,
        settings=services.settings,
        randomness=services.randomness,
        ledger=services.ledger,
        sources=_CandidateSources(services),
        trials=services.trials,
    )


class _CandidateSources:
    """What adaptation reads of other services; `CandidateSources` describes each method."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def find_correction(self, card_id: str, /) -> Correction | None:
        return find_correction(self._services, card_id)

    def find_kept_fact(self, fact_id: str, /) -> ParaFact | None:
        return find_or_none(self._services.knowledge.para.get, fact_id)

    def find_healed_tests(self, session_id: str, /) -> HealedTests | None:
        mended = self._services.validation_runs.find_tests_mended_by(session_id, self._services.sessions.get)
        if not mended:
            return None
        view, project = self._services.sessions.get(session_id), next(iter(mended.values())).project
        causes = {test: self._read_signature(run.session_id, test) for test, run in mended.items()}
        return HealedTests(causes, project, view.agent, view.cost)

    def _read_signature(self, session_id: str, test: str) -> str:
        view = self._find_session(session_id)
        return "" if view is None else str(view.facts.get("signatures", {}).get(test, ""))

    def has_ended(self, session_id: str, /) -> bool:
        view = self._find_session(session_id)
        return view is None or view.state.is_over

    def read_transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        view = self._find_session(session_id)
        if view is None:
            return ()
        return self._services.sessions.read_transcript(
            session_id, after=max(0, view.lines - MAX_TRANSCRIPT_LINES), limit=MAX_TRANSCRIPT_LINES
        )

    def list_changed_files(self, session_id: str, /) -> Sequence[str]:
        change = self._services.changes.find_of_session(session_id)
        return [file.path for file in change.files] if change is not None else ()

    def read_patch(self, session_id: str, /, *, landed: bool) -> str:
        if landed:
            return self._services.changes.make_patch(session_id)
        runs = self._services.validation_runs.read_of_session(session_id)
        failed = [run for run in runs[:-1] if not run.check.green and run.tree]
        view = self._find_session(session_id)
        if not failed or not runs[-1].tree or view is None:
            return ""
        return make_patch(Git(Path(view.workspace)).pin(), failed[-1].tree, runs[-1].tree)

    def find_landed_prompt(self, session_id: str, /) -> str:
        change, view = self._services.changes.find_of_session(session_id), self._find_session(session_id)
        return "" if view is None or (change is not None and not change.landings) else view.prompt

    def read_summary(self, session_id: str, /) -> str:
        view = self._find_session(session_id)
        return "" if view is None else view.summary

    def find_corrections(self, session_id: str, /) -> Sequence[str]:
        captures = self._services.knowledge.captures.read_of_session(session_id)
        kinds = (CaptureKind.CORRECTION, CaptureKind.DECISION)
        texts = [capture.text for capture in captures if capture.kind in kinds and not capture.forgotten]
        return texts[-MAX_CORRECTIONS:]

    def read_memory(self, memory_id: str, /) -> tuple[str, Trust]:
        entry = self._services.memory.store.get(memory_id)
        return ("", Trust.QUOTED) if entry is None or entry.forgotten else (entry.text, entry.trust)

    def read_guidance(self, ref: str, /) -> tuple[str, Trust]:
        leader = ref.partition("#")[0]
        try:
            profile = self._services.profiles.read(leader)
        except Refusal:
            return "", Trust.QUOTED
        matching = (item for item in select_items(profile) if item.ref == ref)
        return next(((item.text, item.trust) for item in matching), ("", Trust.QUOTED))

    def find_models(self, agent: str, /) -> ModelsUsed | None:
        services = self._services
        current = next(iter(services.calls.find_models_of(agent, services.clock.now() - PRESENT_USE)), "")
        own_price = services.model_router.find_blended_price(current) if current else None
        if own_price is None:
            return None
        named = services.model_router.list_named_models(services.agents.list_ids())
        prices = {model: services.model_router.find_blended_price(model) for model in named if model != current}
        sessions = services.sessions.list_newest(agent=agent, limit=MAX_AGENT_SESSIONS)
        channels = Counter(view.channel for view in sessions)
        prompt_lengths = [len(view.prompt) for view in sessions]
        return ModelsUsed(
            ModelPrice(current, own_price),
            channel=channels.most_common(1)[0][0] if channels else "",
            others=tuple(ModelPrice(model, price) for model, price in prices.items() if price is not None),
            median_prompt=round(median(prompt_lengths)) if prompt_lengths else None,
        )

    def list_flows(self) -> Collection[str]:
        return FLOWS

    def read_phase(self) -> int:
        return self._services.embedded_twin.read_phase().number

    def find_block_reason(self) -> str:
        return self._services.safety.kill_switch.find_autonomous_obstacle()

    def list_secrets(self) -> Iterable[str]:
        return self._services.keys.secrets()

    def find_objection(self, candidate: Candidate, /) -> str:
        return self._services.safety.find_objection_to_effect(candidate.effect)

    def _find_session(self, session_id: str) -> SessionView | None:
        return find_or_none(self._services.sessions.get, session_id)


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

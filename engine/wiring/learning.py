"""Builds the services of learning: the effects of active candidates, the promotion chain of learnings, and the service
that proposes candidates.

`_SessionSource` and `_CandidateSources` read for the last two from cards, sessions, memory, guidance, models and rails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from engine.execution.runners.flows import FLOWS, FlowRegistry, LearnedFlow, make_learned_flow
from engine.execution.trees import make_patch
from engine.git import Git
from engine.git.reader import is_in_history
from engine.git.repository import LOST_CODES, find_workspace_refusal
from engine.hierarchy.guidance import select_items
from engine.hierarchy.teaching import remove_lesson
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.evaluation import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.learning.candidates.records import HealedTests, ModelPrice, ModelsUsed
from engine.learning.learnings.findings import ENTRY_KINDS, SessionRecord, Statement
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.recurrence import StoredVectors
from engine.memory.capture_rules import CaptureKind
from engine.memory.captures import SaidSentence, read_all_lines
from engine.memory.embedding import LOCAL_MODEL, NoEmbedder
from engine.model import (
    Answer,
    BubbleState,
    Card,
    Learning,
    LearningEntry,
    ParaFact,
    PermissionRequest,
    Question,
    Refusal,
    Score,
    SessionView,
    Source,
    TranscriptLine,
    Trust,
)
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    CandidateType,
    FixTemplate,
    FlowOffload,
    Overlay,
    PromptFragment,
)
from engine.model.base import find_or_none
from engine.model.learnings import Correction, find_lessons, find_topics
from engine.prediction.templates.work import LearnedWork
from engine.storage.validation_runs import find_mended_tests

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

MAX_LINES = 4_000
"""The last lines of a transcript that are read."""

MAX_CORRECTIONS = 3
"""The latest corrections and decisions of a session that are used."""

RECENT = timedelta(days=30)
"""Older calls and sessions do not count as present use of a model."""

MAX_SESSIONS = 100
"""Number of the newest sessions of an agent that are read."""


def build_effects(services: Services) -> None:
    """Build the store of active candidates, before anything that they may change."""
    services.overlays = Overlays(services.database)
    services.trials = Trials(services.database, services.overlays, services.settings, ledger=services.ledger)
    services.learned_guidance = LearnedGuidance(services.overlays, services.trials, services.settings)
    services.flows = FlowRegistry(FLOWS, lambda: [flow for _, flow in _select_learned_flows(services)])


def _select_learned_flows(services: Services) -> Iterator[tuple[Overlay, type[LearnedFlow]]]:
    """The flows of active candidates."""
    for overlay in services.overlays.find_flows():
        if isinstance(effect := overlay.effect, FlowOffload):
            commands = tuple(tuple(split_command(command)) for command in effect.commands)
            yield overlay, make_learned_flow(effect.name, effect.title, commands, overlay.workspace)


def collect_learned_work(services: Services) -> list[LearnedWork]:
    """Learned flows, as prediction offers them."""
    return [
        LearnedWork(flow.name, f"Run {flow.describe_commands()}", overlay.since, overlay.workspace)
        for overlay, flow in _select_learned_flows(services)
    ]


def build_learnings(services: Services) -> None:
    """Build the promotion chain. It asks sessions and memory later, when they exist."""
    services.learnings = Learnings(
        services.home.data,
        services.database,
        services.clock,
        ledger=services.ledger,
        sessions=_SessionSource(services),
        vectors=StoredVectors(services.database, partial(_embed, services), LOCAL_MODEL),
        model=MemoryModel(services),
    )


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


class _SessionSource:
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


class MemoryModel:
    """Asks the questions of memory and of the promotion chain, which is built before the services that it needs. The
    operator names the model for them in the settings (`memory.model`)."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(self, question: Question, /) -> Answer | None:
        """Ask the named model; None if none is named. Raises as `SingleQuestions.ask`."""
        model_id = self._services.settings.current.memory.model
        return self._services.single_questions.ask(model_id, question) if model_id else None


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


class _CandidateSources:
    """What adaptation reads of other services; `engine.learning.candidates.records.Sources` describes each method."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def card_correction(self, card_id: str, /) -> Correction | None:
        return find_correction(self._services, card_id)

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        return find_or_none(self._services.knowledge.para.get, fact_id)

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        services = self._services
        runs = services.validation_runs.of_session(session_id)
        if not runs:
            return None
        view = services.sessions.get(session_id)
        refusal = find_workspace_refusal(view.workspace)
        if refusal and refusal.code in LOST_CODES:  # what failed there before cannot be told any more
            return None
        before = [
            run
            for run in services.validation_runs.latest(view.workspace)
            if run.ran_at <= view.created_at
            and run.project == runs[-1].project
            and run.session_id != session_id
            and is_in_history(Path(view.workspace), run.head, runs[-1].head)  # another branch may lack the fault
        ]
        causes = {
            test: self._read_signature(run.session_id, test)
            for test, run in find_mended_tests(before, runs[-1]).items()
        }
        return HealedTests(causes, runs[-1].project, view.agent, view.cost) if causes else None

    def _read_signature(self, session_id: str, test: str) -> str:
        view = self._find_session(session_id)
        return "" if view is None else str(view.facts.get("signatures", {}).get(test, ""))

    def session_ended(self, session_id: str, /) -> bool:
        view = self._find_session(session_id)
        return view is None or view.state.over

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        view = self._find_session(session_id)
        if view is None:
            return ()
        return self._services.sessions.transcript(session_id, after=max(0, view.lines - MAX_LINES), limit=MAX_LINES)

    def changed_files(self, session_id: str, /) -> Sequence[str]:
        change = self._services.changes.for_session(session_id)
        return [file.path for file in change.files] if change is not None else ()

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        if landed:
            return self._services.changes.patch(session_id)
        runs = self._services.validation_runs.of_session(session_id)
        failed = [run for run in runs[:-1] if not run.check.green and run.tree]
        view = self._find_session(session_id)
        if not failed or not runs[-1].tree or view is None:
            return ""
        return make_patch(Git(Path(view.workspace)).pin(), failed[-1].tree, runs[-1].tree)

    def title(self, session_id: str, /) -> str:
        """ "" when no part of the work is landed any more."""
        change, view = self._services.changes.for_session(session_id), self._find_session(session_id)
        return "" if view is None or (change is not None and not change.landings) else view.prompt

    def summary(self, session_id: str, /) -> str:
        view = self._find_session(session_id)
        return "" if view is None else view.summary

    def corrections(self, session_id: str, /) -> Sequence[str]:
        captures = self._services.knowledge.captures.of_session(session_id)
        kinds = (CaptureKind.CORRECTION, CaptureKind.DECISION)
        texts = [capture.text for capture in captures if capture.kind in kinds and not capture.forgotten]
        return texts[-MAX_CORRECTIONS:]

    def memory_text(self, memory_id: str, /) -> tuple[str, Trust]:
        entry = self._services.memory.store.get(memory_id)
        return ("", Trust.QUOTED) if entry is None or entry.forgotten else (entry.text, entry.trust)

    def guidance_text(self, ref: str, /) -> tuple[str, Trust]:
        leader = ref.partition("#")[0]
        try:
            profile = self._services.profiles.read(leader)
        except Refusal:
            return "", Trust.QUOTED
        matching = (item for item in select_items(profile) if item.ref == ref)
        return next(((item.text, item.trust) for item in matching), ("", Trust.QUOTED))

    def models(self, agent: str, /) -> ModelsUsed | None:
        since = self._services.clock.now() - RECENT
        models_used = self._services.calls.find_models_of(agent, since)
        if not models_used:
            return None
        current = models_used[0]
        own = self._services.model_router.find_usual_price(current)
        if own is None:
            return None
        others = [
            ModelPrice(model, cost)
            for model in self._list_other_models(current)
            if (cost := self._services.model_router.find_usual_price(model)) is not None
        ]
        worked = self._services.sessions.list(agent=agent, limit=MAX_SESSIONS)
        channels = Counter(view.channel for view in worked)
        prompts = [len(view.prompt) for view in worked]
        return ModelsUsed(
            ModelPrice(current, own),
            channels.most_common(1)[0][0] if channels else "",
            tuple(others),
            round(median(prompts)) if prompts else None,
        )

    def flows(self) -> Collection[str]:
        return FLOWS

    def phase(self) -> int:
        return self._services.embedded_twin.read_phase().number

    def block_reason(self) -> str:
        return self._services.safety.kill_switch.block_reason()

    def secrets(self) -> Iterable[str]:
        return self._services.keys.secrets()

    def objection_to(self, candidate: Candidate, /) -> str:
        """The objection of the content filter to texts for every prompt, or to commands (SPEC 3.5); "" for none."""
        effect, safety = candidate.effect, self._services.safety
        match effect:
            case PromptFragment():
                verdicts = [safety.check_prompt(text) for text in effect.guidance]
            case FixTemplate():
                verdicts = [safety.check_prompt(repair) for repair in effect.repairs]
            case FlowOffload():
                verdicts = [safety.check_command(command) for command in effect.commands]
            case _:
                return ""
        return next((verdict.reason for verdict in verdicts if not verdict.allows), "")

    def max_healing_attempts(self) -> int:
        return self._services.settings.current.validation.tries

    def _find_session(self, session_id: str) -> SessionView | None:
        return find_or_none(self._services.sessions.get, session_id)

    def _list_other_models(self, current: str) -> list[str]:
        """Every usable model in the settings except this one."""
        services = self._services
        models = [
            f"{provider.name}:{provider.settings.model}"
            for provider in services.model_router.providers()
            if provider.settings.model
        ]
        models += [channel.model for channel in services.settings.current.channels.values() if channel.model]
        for agent in services.agents.list_ids():
            models += services.agents.read_tools(agent).models.values()
        usable = []
        for model in dict.fromkeys(models):
            try:
                services.model_router.choose_named(model, "a cheaper one is looked for")
            except Refusal:
                continue
            usable.append(model)
        return [model for model in usable if model != current]

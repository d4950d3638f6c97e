"""Builds what learns, with what it reads of sessions, cards, memory, guidance, models and rails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from engine.execution.model_router import ModelRouter
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.model.host_protocol import Model
from engine.execution.runners.model.single_questions import MemoryModel
from engine.execution.tree_diffs import make_patch
from engine.git import Git
from engine.hierarchy.guidance import guidance_items
from engine.hierarchy.teaching import remove_lesson
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.records import HealedTests, ModelPrice, ModelsUsed
from engine.learning.learnings.learnings import Learnings
from engine.learning.learnings.rules import ENTRY_KINDS, SessionRecord, Statement, entries_about
from engine.memory.capture_rules import CapturedSentence
from engine.memory.embedding import LOCAL_MODEL, NoEmbedder
from engine.model import (
    Answer,
    BubbleState,
    ChangeState,
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
    Verdict,
)
from engine.model.adaptation import Candidate, CandidateStatus, CandidateType, FixTemplate, FlowOffload, PromptFragment
from engine.model.lessons import Correction, lessons_of, topics_of
from engine.storage.ledger import LedgerEntry
from engine.storage.validation_runs import mended_tests
from engine.wiring.organisation import channel_reach, correction, find_card, find_or_none

if TYPE_CHECKING:
    from engine.services import Services


SPEAKERS = {"reply": "operator", "say": "agent"}
"""The speaker of a kind of line in a transcript; all other lines are from programs."""

PAGE_LINES = 2_000
MAX_REQUESTS = 200

ALL_CANDIDATES = 100_000
MAX_RUNS = 20
MAX_CONTINUED = 100
"""The longest chain of sessions that continue each other."""

RECORD_DELAY = timedelta(seconds=1)
"""How long after an event its entry in the ledger may be written."""


def build_learnings(services: Services) -> None:
    """Build the promotion chain. It asks sessions and memory later, when they exist."""
    services.learnings = Learnings(
        services.home.data,
        services.database,
        services.clock,
        ledger=services.ledger,
        sessions=SessionSource(services),
        embed=partial(_embed, services),
        model_name=lambda: LOCAL_MODEL,
        model=_LateMemoryModel(services),
    )


class SessionSource:
    """Reads sessions for the chain; see `rules.SessionSource`."""

    def __init__(self, services: Services) -> None:
        self._core = services

    def load_record(self, session_id: str) -> SessionRecord | None:
        """The record of a session, None for an unknown one."""
        services, start_record = self._core, self.load_start(session_id)
        if start_record is None:
            return None
        view = start_record.view
        until = max(services.clock.now(), view.ended_at or view.created_at) + RECORD_DELAY
        facts = services.ledger.between(view.created_at, until, ENTRY_KINDS)
        statements = [_to_statement(capture, line) for capture, line in services.knowledge.captures.extract(session_id)]
        return SessionRecord(
            view,
            start_record.leader,
            tuple(entries_about(facts, session_id)),
            tuple(statements),
            self._permission_requests(session_id),
            correction(services, view.prediction_id) if view.flow is None else None,
            start_record.failing,
            start_record.continues,
            start_record.own_words,
            channel_reach(services, view.channel),
        )

    def load_start(self, session_id: str) -> SessionRecord | None:
        """The record of the session as of its start, None for an unknown one."""
        services = self._core
        view = find_or_none(services.sessions.get, session_id)
        if view is None:
            return None
        start = view.started_at or view.created_at
        before = [run for run in services.validation_runs.latest(view.workspace, MAX_RUNS) if run.ran_at < start]
        failing = before[0].check.failing if before else ()
        first = self._first_of_chain(session_id)
        return SessionRecord(
            view,
            self._leader(view.agent),
            failing=tuple(failing),
            continues=first if first != session_id else "",
            own_words=_has_own_words(services, view),
        )

    def transcript(self, session_id: str) -> Iterable[TranscriptLine]:
        """Its transcript."""
        return _transcript_lines(self._core, session_id)

    def secrets(self) -> Iterable[str]:
        """Secrets that must not be stored."""
        return self._core.keys.secrets()

    def report(self, where: str, words: str) -> None:
        """Report a fault to the operator."""
        self._core.report(where, words)

    def offer(self, entry: LearningEntry) -> None:
        """Offer a learning to the agent's leader, where the gates check it. Its category comes from its text and from
        the specialty of its channel."""
        services = self._core
        view = find_or_none(services.sessions.get, entry.session_id)
        channel = None if view is None else services.settings.current.channels.get(view.channel)
        scores = Score(entry.confidence, entry.reasons[:1]), Score(entry.importance, entry.reasons[1:])
        concerns = topics_of(entry.text, channel.specialty if channel else "")
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
        services = self._core
        remove_lesson(lesson, services.bubbles, services.profiles, services.teaching)
        for candidate in services.adaptation.candidates(type=CandidateType.PROMPT_FRAGMENT, limit=ALL_CANDIDATES):
            if not isinstance(candidate.effect, PromptFragment) or lesson not in lessons_of(candidate.effect.guidance):
                continue
            if candidate.status is CandidateStatus.PROMOTED:
                services.adaptation.roll_back(candidate.id, f"its lesson was retracted: {reason}")
            elif not candidate.status.is_decided:
                services.adaptation.reject(candidate.id, f"its lesson was retracted: {reason}")

    def _first_of_chain(self, session_id: str) -> str:
        """The first of the sessions that this one continues; itself when it continues none."""
        for _ in range(MAX_CONTINUED):
            before = self._core.sessions.continues(session_id)
            if not before:
                break
            session_id = before
        return session_id

    def _leader(self, agent: str) -> str:
        if not agent:
            return ""
        try:
            leaders = self._core.agents.lineage(agent).leaders
        except Refusal:  # it was retired meanwhile
            return ""
        return leaders[0].id if leaders else ""

    def _permission_requests(self, session_id: str) -> tuple[PermissionRequest, ...]:
        requests = self._core.permissions.latest(MAX_REQUESTS, session_id=session_id)
        return tuple(reversed(requests))


class _LateMemoryModel:
    """The model that the settings name for memory; what asks it is built after the learnings."""

    def __init__(self, services: Services) -> None:
        self._core = services

    def ask(self, question: Question, /) -> Answer | None:
        return MemoryModel(self._core.settings, self._core.completions).ask(question)


def _has_own_words(services: Services, view: SessionView) -> bool:
    """Whether the operator wrote the prompt of a session."""
    made_card = find_card(services, view.prediction_id)
    return made_card is not None and made_card.source is Source.OPERATOR


def _to_statement(captured: CapturedSentence, line: TranscriptLine) -> Statement:
    return Statement(
        captured.kind.value, captured.text, SPEAKERS.get(line.kind, "program"), "preference" in captured.tags
    )


def _transcript_lines(services: Services, session_id: str) -> Iterator[TranscriptLine]:
    after = 0
    while page := services.sessions.transcript(session_id, after=after, limit=PAGE_LINES):
        yield from page
        after = page[-1].number


def _embed(services: Services, texts: Sequence[str]) -> list[bytes] | None:
    try:
        return services.memory.embed_texts(texts)
    except NoEmbedder:
        return None


MAX_LINES = 4_000
"""The last lines of a transcript that are read."""

MAX_CORRECTIONS = 3
"""The latest corrections and decisions of a session that are used."""

RECENT = timedelta(days=30)
"""Older calls and sessions do not count as present use of a model."""

MAX_SESSIONS = 100

PROMPT_SHARE = 4
"""Agents send about four tokens for each that they receive."""


def build_adaptation(services: Services) -> None:
    """Build adaptation on top of everything that it learns from."""
    services.adaptation = Adaptation(
        services.database,
        clock=services.clock,
        settings=services.settings,
        randomness=services.randomness,
        ledger=services.ledger,
        sources=_Sources(services),
        trials=services.trials,
    )


class _Sources:
    """See `engine.learning.candidates.records.Sources`."""

    def __init__(self, services: Services) -> None:
        self._core = services

    def entries_between(self, start: datetime, end: datetime, kinds: tuple[str, ...], /) -> Sequence[LedgerEntry]:
        return self._core.ledger.between(start, end, kinds)

    def card_correction(self, card_id: str, /) -> Correction | None:
        return correction(self._core, card_id)

    def kept_fact(self, fact_id: str, /) -> ParaFact | None:
        return find_or_none(self._core.knowledge.para.get, fact_id)

    def healed_tests(self, session_id: str, /) -> HealedTests | None:
        services = self._core
        runs = services.validation_runs.of_session(session_id)
        if not runs:
            return None
        view = services.sessions.get(session_id)
        before = [run for run in services.validation_runs.latest(view.workspace) if run.ran_at <= view.created_at]
        before = [run for run in before if run.project == runs[-1].project]
        mended_by_run = mended_tests(before, runs[-1])
        return (
            HealedTests(
                {test: self._signature(run.session_id, test) for test, run in mended_by_run.items()},
                runs[-1].project,
                view.agent,
                view.cost,
            )
            if mended_by_run
            else None
        )

    def _signature(self, session_id: str, test: str) -> str:
        view = self._session(session_id)
        return "" if view is None else str(view.facts.get("signatures", {}).get(test, ""))

    def local_day(self, at: datetime, /) -> str:
        return at.astimezone(self._core.clock.local().tzinfo).date().isoformat()

    def session_ended(self, session_id: str, /) -> bool:
        view = self._session(session_id)
        return view is None or view.state.over

    def transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        view = self._session(session_id)
        if view is None:
            return ()
        return self._core.sessions.transcript(session_id, after=max(0, view.lines - MAX_LINES), limit=MAX_LINES)

    def changed_files(self, session_id: str, /) -> Sequence[str]:
        change = self._core.changes.for_session(session_id)
        return [file.path for file in change.files] if change is not None else ()

    def patch(self, session_id: str, /, *, landed: bool) -> str:
        if landed:
            return self._core.changes.patch(session_id)
        runs = self._core.validation_runs.of_session(session_id)
        red = [run for run in runs[:-1] if not run.check.green and run.tree]
        view = self._session(session_id)
        if not red or not runs[-1].tree or view is None:
            return ""
        return make_patch(Git(Path(view.workspace)).pin(), red[-1].tree, runs[-1].tree)

    def title(self, session_id: str, /) -> str:
        """ "" when the operator discarded or undid the work."""
        change, view = self._core.changes.for_session(session_id), self._session(session_id)
        thrown_away = change is not None and change.state in (ChangeState.DISCARDED, ChangeState.UNDONE)
        return "" if view is None or thrown_away else view.prompt

    def summary(self, session_id: str, /) -> str:
        view = self._session(session_id)
        return "" if view is None else view.summary

    def corrections(self, session_id: str, /) -> Sequence[str]:
        captures = self._core.knowledge.captures.of_session(session_id)
        texts = [
            capture.text for capture in captures if capture.kind in ("correction", "decision") and not capture.forgotten
        ]
        return texts[-MAX_CORRECTIONS:]

    def memory_text(self, memory_id: str, /) -> tuple[str, Trust]:
        entry = self._core.memory.store.get(memory_id)
        return ("", Trust.QUOTED) if entry is None or entry.forgotten else (entry.text, entry.trust)

    def guidance_text(self, ref: str, /) -> tuple[str, Trust]:
        leader = ref.partition("#")[0]
        try:
            profile = self._core.profiles.get(leader)
        except Refusal:
            return "", Trust.QUOTED
        matching = (item for item in guidance_items(profile) if item.ref == ref)
        return next(((item.text, item.trust) for item in matching), ("", Trust.QUOTED))

    def models(self, agent: str, /) -> ModelsUsed | None:
        since = self._core.clock.now() - RECENT
        models_used = self._core.calls.models_of(agent, since)
        if not models_used:
            return None
        current = models_used[0]
        own = price(self._core.model_router, current)
        if own is None:
            return None
        others = [
            ModelPrice(model, cost)
            for model in self._other_models(current)
            if (cost := price(self._core.model_router, model)) is not None
        ]
        worked = self._core.sessions.list(agent=agent, limit=MAX_SESSIONS)
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
        return self._core.predictions.phase().number

    def block_reason(self) -> str:
        return self._core.safety.kill_switch.block_reason()

    def secrets(self) -> Iterable[str]:
        return self._core.keys.secrets()

    def objection_to(self, candidate: Candidate, /) -> str:
        """The objection of the content filter to texts for every prompt, or to commands (SPEC 3.5); "" for none."""
        effect, safety = candidate.effect, self._core.safety
        match effect:
            case PromptFragment():
                verdicts = [safety.check_prompt(text) for text in effect.guidance]
            case FixTemplate():
                verdicts = [safety.check_prompt(repair) for repair in effect.repairs]
            case FlowOffload():
                verdicts = [safety.check_command(command) for command in effect.commands]
            case _:
                return ""
        return next((verdict.reason for verdict in verdicts if verdict.verdict is not Verdict.ALLOW), "")

    def max_healing_attempts(self) -> int:
        return self._core.settings.current.validation.tries

    def _session(self, session_id: str) -> SessionView | None:
        return find_or_none(self._core.sessions.get, session_id)

    def _other_models(self, current: str) -> list[str]:
        """Every usable model in the settings except this one."""
        services = self._core
        models = [
            f"{provider.name}:{provider.settings.model}"
            for provider in services.model_router.providers()
            if provider.settings.model
        ]
        models += [channel.model for channel in services.settings.current.channels.values() if channel.model]
        for agent in services.agents.ids():
            models += services.agents.tools(agent).models.values()
        usable = []
        for model in dict.fromkeys(models):
            try:
                services.model_router.choose_named(model, "a cheaper one is looked for")
            except Refusal:
                continue
            usable.append(model)
        return [model for model in usable if model != current]


def price(router: ModelRouter, model: str) -> int | None:
    """Micro-dollars for a million tokens of `PROVIDER:MODEL` at the usual share of prompt and answer; 0 for a model
    without a bill, None when the price is unknown. The first call imports the price list, which takes half a second."""
    try:
        choice = router.choose_named(model, "looking up its price")
    except Refusal:
        return None
    if choice.keyless:
        return 0
    from engine.execution.runners.model.prices import listed_price

    prices = listed_price(Model(choice.provider, choice.model, choice.kind, choice.base_url))
    return None if prices is None else (PROMPT_SHARE * prices["input"] + prices["output"]) // (PROMPT_SHARE + 1)

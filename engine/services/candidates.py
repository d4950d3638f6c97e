"""Builds the candidates of changed behaviour (SPEC 5): what the active ones change, and the service that proposes them.

`_CandidateSources` reads for it from cards, sessions, memory, guidance, models and rails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from engine.execution.runners.flows import FLOWS, FlowRegistry, LearnedFlow, make_learned_flow
from engine.execution.trees import make_patch
from engine.git import Git
from engine.hierarchy.guidance import select_items
from engine.learning.candidates import HealedTests, ModelPrice, ModelsUsed
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.effects import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.memory.capture_rules import CaptureKind
from engine.model import ParaFact, Refusal, SessionView, TranscriptLine, Trust
from engine.model.adaptation import Candidate, FlowOffload, Overlay
from engine.model.base import find_or_none
from engine.model.decisions import Correction
from engine.prediction.templates.agent_work import LearnedFlowOffer
from engine.services.learnings import find_correction

if TYPE_CHECKING:
    from engine.services import Services

MAX_TRANSCRIPT_LINES = 4_000
"""The last lines of a transcript that are read."""

MAX_CORRECTIONS = 3
"""The latest corrections and decisions of a session that are used."""

PRESENT_USE = timedelta(days=30)
"""Older calls do not count as present use of a model."""

MAX_AGENT_SESSIONS = 100
"""Number of the newest sessions of an agent that are read."""


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
        return view is None or view.state.over

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

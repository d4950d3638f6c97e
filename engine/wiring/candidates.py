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
from engine.git.reader import is_in_history
from engine.git.repository import LOST_CODES, find_workspace_refusal
from engine.hierarchy.guidance import select_items
from engine.learning.candidates import HealedTests, ModelPrice, ModelsUsed
from engine.learning.candidates.adaptation import Adaptation
from engine.learning.candidates.effects import split_command
from engine.learning.candidates.overlays import LearnedGuidance, Overlays, Trials
from engine.memory.capture_rules import CaptureKind
from engine.model import ParaFact, Refusal, SessionView, TranscriptLine, Trust
from engine.model.adaptation import Candidate, FixTemplate, FlowOffload, Overlay, PromptFragment
from engine.model.base import find_or_none
from engine.model.learnings import Correction
from engine.prediction.templates.tasks import LearnedFlowOffer
from engine.storage.validation_runs import find_mended_tests
from engine.wiring.learnings import find_correction

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
    """What adaptation reads of other services; `engine.learning.candidates.Sources` describes each method."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def find_correction(self, card_id: str, /) -> Correction | None:
        return find_correction(self._services, card_id)

    def find_kept_fact(self, fact_id: str, /) -> ParaFact | None:
        return find_or_none(self._services.knowledge.para.get, fact_id)

    def find_healed_tests(self, session_id: str, /) -> HealedTests | None:
        services = self._services
        runs = services.validation_runs.read_of_session(session_id)
        if not runs:
            return None
        view = services.sessions.get(session_id)
        refusal = find_workspace_refusal(view.workspace)
        if refusal and refusal.code in LOST_CODES:  # what failed there before cannot be told any more
            return None
        before = [
            run
            for run in services.validation_runs.read_newest(view.workspace)
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

    def has_ended(self, session_id: str, /) -> bool:
        view = self._find_session(session_id)
        return view is None or view.state.over

    def read_transcript(self, session_id: str, /) -> Sequence[TranscriptLine]:
        view = self._find_session(session_id)
        if view is None:
            return ()
        return self._services.sessions.transcript(
            session_id, after=max(0, view.lines - MAX_TRANSCRIPT_LINES), limit=MAX_TRANSCRIPT_LINES
        )

    def list_changed_files(self, session_id: str, /) -> Sequence[str]:
        change = self._services.changes.for_session(session_id)
        return [file.path for file in change.files] if change is not None else ()

    def read_patch(self, session_id: str, /, *, landed: bool) -> str:
        if landed:
            return self._services.changes.patch(session_id)
        runs = self._services.validation_runs.read_of_session(session_id)
        failed = [run for run in runs[:-1] if not run.check.green and run.tree]
        view = self._find_session(session_id)
        if not failed or not runs[-1].tree or view is None:
            return ""
        return make_patch(Git(Path(view.workspace)).pin(), failed[-1].tree, runs[-1].tree)

    def find_landed_prompt(self, session_id: str, /) -> str:
        change, view = self._services.changes.for_session(session_id), self._find_session(session_id)
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
        since = self._services.clock.now() - PRESENT_USE
        current = next(iter(self._services.calls.find_models_of(agent, since)), "")
        own_price = self._services.model_router.find_usual_price(current) if current else None
        if own_price is None:
            return None
        others = [
            ModelPrice(model, price)
            for model in self._list_named_models()
            if model != current and (price := self._services.model_router.find_usual_price(model)) is not None
        ]
        sessions = self._services.sessions.list(agent=agent, limit=MAX_AGENT_SESSIONS)
        channels = Counter(view.channel for view in sessions)
        prompt_lengths = [len(view.prompt) for view in sessions]
        return ModelsUsed(
            ModelPrice(current, own_price),
            channel=channels.most_common(1)[0][0] if channels else "",
            others=tuple(others),
            median_prompt=round(median(prompt_lengths)) if prompt_lengths else None,
        )

    def list_flows(self) -> Collection[str]:
        return FLOWS

    def read_phase(self) -> int:
        return self._services.embedded_twin.read_phase().number

    def find_block_reason(self) -> str:
        return self._services.safety.kill_switch.block_reason()

    def list_secrets(self) -> Iterable[str]:
        return self._services.keys.secrets()

    def find_objection(self, candidate: Candidate, /) -> str:
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

    def _find_session(self, session_id: str) -> SessionView | None:
        return find_or_none(self._services.sessions.get, session_id)

    def _list_named_models(self) -> Iterable[str]:
        """Every model that the settings or the folders of agents name, usable or not."""
        services = self._services
        models = [
            f"{provider.name}:{provider.settings.model}"
            for provider in services.model_router.providers()
            if provider.settings.model
        ]
        models += [channel.model for channel in services.settings.current.channels.values() if channel.model]
        for agent in services.agents.list_ids():
            models += services.agents.read_tools(agent).models.values()
        return dict.fromkeys(models)

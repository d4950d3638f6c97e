"""What was learnt and is in force: the overlay store, its trials, and where each kind of effect takes hold."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.learned import LearnedFlow, Registry, learned
from engine.learning.candidates.effects import words
from engine.learning.candidates.fragments import LearnedGuidance
from engine.learning.candidates.trials import Overlays, Trials
from engine.model.adaptation import FlowOffload, Overlay
from engine.prediction.templates.work import LearnedWork

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine) -> None:
    """Before anything that an effect may change."""
    core.overlays = Overlays(core.database)
    core.trials = Trials(core.database, core.overlays, core.settings, facts=core.ledger)
    core.fragments = LearnedGuidance(core.overlays, core.trials, core.settings)
    core.flows = Registry(FLOWS, partial(_learned_flows, core))


def _learned_flows(core: Engine) -> list[type[LearnedFlow]]:
    return [
        _flow(overlay, overlay.effect) for overlay in core.overlays.flows() if isinstance(overlay.effect, FlowOffload)
    ]


def _flow(overlay: Overlay, effect: FlowOffload) -> type[LearnedFlow]:
    commands = tuple(tuple(words(command)) for command in effect.commands)
    return learned(effect.name, effect.title, commands, overlay.workspace)


def learned_work(core: Engine) -> list[LearnedWork]:
    """Learned flows as prediction offers them."""
    return [
        LearnedWork(effect.name, f"Run {_flow(overlay, effect).words()}", overlay.since, overlay.workspace)
        for overlay in core.overlays.flows()
        if isinstance(effect := overlay.effect, FlowOffload)
    ]

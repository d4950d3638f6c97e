"""What was learnt and is in force: the overlay store, its trials, and where each kind of effect takes hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.adaptation.fragments import LearnedGuidance
from engine.adaptation.overlays import Overlays, words
from engine.adaptation.trials import Trials
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.learned import LearnedFlow, Registry
from engine.prediction.templates.learned import LearnedWork
from engine.values import Refusal, microusd
from engine.values.adaptation import FlowOffload, Overlay

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine) -> None:
    """Before anything that an effect may change."""
    core.overlays = Overlays(core.database, core.randomness, present=_Present(core), flows=lambda: FLOWS)
    core.trials = Trials(core.database, core.overlays, core.settings, facts=core.ledger)
    core.fragments = LearnedGuidance(core.overlays, core.trials, core.settings)
    core.flows = Registry(FLOWS, partial(_learned_flows, core))


def _learned_flows(core: Engine) -> list[LearnedFlow]:
    return [_flow(one, one.effect) for one in core.overlays.flows() if isinstance(one.effect, FlowOffload)]


def _flow(one: Overlay, effect: FlowOffload) -> LearnedFlow:
    commands = tuple(tuple(words(command)) for command in effect.commands)
    return LearnedFlow(effect.name, effect.title, commands, one.workspace)


def learned_work(core: Engine) -> list[LearnedWork]:
    """Learned flows as prediction offers them."""
    return [
        LearnedWork(effect.name, f"Run {_flow(one, effect).words}", one.since, one.workspace)
        for one in core.overlays.flows()
        if isinstance(effect := one.effect, FlowOffload)
    ]


class _Present:
    """How things are done where no overlay says otherwise."""

    def __init__(self, core: Engine) -> None:
        self._core = core

    def guidance(self, overlays: Sequence[Overlay], /) -> tuple[str, ...]:
        return self._core.fragments.lines(overlays)

    def model(self, hint: tuple[str, str] | None, agent: str, channel: str, run_kind: str, /) -> str:
        serving = self._core.settings.current.channels.get(channel)
        try:
            choice = self._core.models.follow(hint, agent or (serving.agent if serving else ""), channel, run_kind)
        except Refusal as refusal:
            return f"none: {refusal.message}"
        return f"{choice.id} ({choice.reason})"

    def caps(self) -> tuple[int, int]:
        settings = self._core.settings.current.validation
        return settings.tries, microusd(settings.cost_cap)

    def flows(self) -> Sequence[str]:
        return tuple(FLOWS)

"""How things are done without an effect and with it, as lines that a screen can compare (SPEC 5.4, 9.5)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Protocol

from engine.values import dollars
from engine.values.adaptation import (
    Candidate,
    EffectPreview,
    FixTemplate,
    FlowOffload,
    Overlay,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)


class Present(Protocol):
    """How things are done now, where no overlay says otherwise."""

    def guidance(self, overlays: Sequence[Overlay], /) -> tuple[str, ...]:
        """How these fragments stand in a prompt."""

    def model(self, hint: tuple[str, str] | None, agent: str, channel: str, run_kind: str, /) -> str:
        """The model of a run with this hint (a model's id and why) or none, or why there is none, in words."""

    def caps(self) -> tuple[int, int]:
        """How often, and for how many micro-dollars, the validation loop heals."""

    def flows(self) -> Sequence[str]:
        """Names of the program's own flows."""


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a flow, with a number where it is taken; at most 40 letters."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name[:36].rstrip('_')}_{number}", number + 1
    return found


def preview(candidate: Candidate, others: Sequence[Overlay], present: Present) -> EffectPreview:
    """What `candidate` changes where `others` are in force."""
    with_it = Overlay(
        f"{candidate.id}*",
        candidate.id,
        candidate.type,
        candidate.agent_id,
        candidate.run_kind,
        candidate.workspace,
        candidate.effect,
        candidate.changed_at,
    )
    without = [
        one
        for one in others
        if one.type is candidate.type and one.applies(candidate.agent_id, candidate.run_kind, candidate.workspace)
    ]
    return EffectPreview(_lines(candidate, without, present), _lines(candidate, [*without, with_it], present))


def _lines(candidate: Candidate, overlays: Sequence[Overlay], present: Present) -> tuple[str, ...]:
    match candidate.effect:
        case PromptFragment():
            return present.guidance(overlays)
        case FixTemplate(failing=failing):
            return _repairs(failing, overlays)
        case RoutingHint():
            return _model(candidate, candidate.effect, overlays, present)
        case PolicyTweak():
            return _caps(overlays, present)
        case FlowOffload():
            return _flows(overlays, present)


def _repairs(failing: Sequence[str], overlays: Sequence[Overlay]) -> tuple[str, ...]:
    told = dict.fromkeys(
        line
        for one in reversed(overlays)
        if isinstance(one.effect, FixTemplate) and set(failing).intersection(one.effect.failing)
        for line in one.effect.repairs
    )
    patches = [one.effect.patch for one in overlays if isinstance(one.effect, FixTemplate) and one.effect.patch]
    shown = [line for patch in patches for line in patch.splitlines()]
    return (*(f"red: {name}" for name in failing), *(f"told: {line}" for line in told or ("no repair",)), *shown)


def _model(candidate: Candidate, asked: RoutingHint, overlays: Sequence[Overlay], present: Present) -> tuple[str, ...]:
    fitting = [
        one
        for one in overlays
        if isinstance(one.effect, RoutingHint)
        and one.effect.channel in ("", asked.channel)
        and (one.effect.longest_prompt is None or one.effect.longest_prompt >= (asked.longest_prompt or 0))
    ]
    newest = fitting[-1].effect if fitting else None
    hint = (newest.model, newest.why or "a hint was learnt") if isinstance(newest, RoutingHint) else None
    about = f"runs of {candidate.agent_id or 'any agent'} on {asked.channel or 'any channel'}"
    if asked.longest_prompt is not None:
        about += f", prompts of at most {asked.longest_prompt} characters"
    return about, f"model: {present.model(hint, candidate.agent_id, asked.channel, candidate.run_kind or 'task')}"


def _caps(overlays: Sequence[Overlay], present: Present) -> tuple[str, ...]:
    tries, cost = present.caps()
    for one in overlays:
        if isinstance(one.effect, PolicyTweak):
            tries = tries if one.effect.tries is None else min(tries, one.effect.tries)
            cost = cost if one.effect.cost is None else min(cost, one.effect.cost)
    return f"tries to heal: {tries}", f"cost of healing: ${dollars(cost):.2f} at most"


def _flows(overlays: Sequence[Overlay], present: Present) -> tuple[str, ...]:
    lines, taken = [f"flows of the program: {', '.join(present.flows())}"], set(present.flows())
    for one in overlays:
        if isinstance(one.effect, FlowOffload):
            name = free_name(one.effect.name, taken)
            taken.add(name)
            lines += [f"flow: {name} ({one.effect.title})"]
            lines += [f"  $ {shlex.join(shlex.split(command))}" for command in one.effect.commands]
    return tuple(lines)

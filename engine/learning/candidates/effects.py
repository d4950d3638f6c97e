"""Effects of candidates (SPEC 5.4): validation, their texts, and previews. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from engine.config.service_settings import model_problem
from engine.model import Refusal, dollars, sanitise
from engine.model.adaptation import (
    CandidateType,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)

MAX_LINES = 20
"""Maximum number of lines of guidance, repairs or commands in one effect."""

MAX_LINE_LENGTH = 500
"""Maximum number of characters of each line."""

_FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")


def validate_effect(effect: Effect) -> Effect:
    """Check an effect, and return it with each text in a single line. Raises `Refusal` `bad_effect` with the
    problem."""
    match effect:
        case PromptFragment():
            return PromptFragment(_lines("guidance", effect.guidance))
        case FixTemplate():
            if not effect.failing:
                raise _invalid_effect("it names no failing test")
            return replace(effect, repairs=_lines("repairs", effect.repairs))
        case RoutingHint():
            if problem := model_problem(effect.model):
                raise _invalid_effect(problem)
            return effect
        case PolicyTweak():
            if effect.tries is None and effect.cost is None:
                raise _invalid_effect("it changes no limit")
            return effect
        case FlowOffload():
            return _validate_flow(effect)


def _validate_flow(flow: FlowOffload) -> FlowOffload:
    if not _FLOW_NAME.fullmatch(flow.name):
        name = sanitise(flow.name)[:80]
        raise _invalid_effect(f"{name!r} is not a valid flow name: use lower-case letters, digits and _")
    commands = _lines("commands", flow.commands)
    for command in commands:
        split_command(command)
    return FlowOffload(flow.name, _line(flow.title) or flow.name, commands)


def split_command(command: str) -> list[str]:
    """The program and arguments of a flow's command, which runs without a shell. Raises `Refusal` `bad_effect`."""
    try:
        tokens = list(shlex.shlex(command, posix=True, punctuation_chars=True))
        arguments = shlex.split(command)
    except ValueError as error:
        raise _invalid_effect(f"{command[:80]!r} is not a command: {error}") from error
    if not arguments or arguments[0].startswith("-"):
        raise _invalid_effect(f"{command[:80]!r} is not a command")
    if any(token and set(token) <= set("();<>|&") for token in tokens):
        raise _invalid_effect(f"{command[:80]!r} needs a shell")
    return arguments


def _lines(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    lines = tuple(line for text in texts if (line := _line(text)))
    if not lines:
        raise _invalid_effect(f"{name} says nothing")
    if len(lines) > MAX_LINES:
        raise _invalid_effect(f"{name} has {len(lines)} lines, at most {MAX_LINES}")
    return lines


def _line(text: str) -> str:
    line = " ".join(sanitise(text).split())
    if len(line) > MAX_LINE_LENGTH:
        raise _invalid_effect(f"a line has {len(line)} characters, at most {MAX_LINE_LENGTH}: {line[:60]}…")
    return line


def _invalid_effect(problem: str) -> Refusal:
    return Refusal("bad_effect", f"this change cannot be activated: {problem}", "reject its candidate")


def free_name(name: str, used_names: Collection[str]) -> str:
    """An unused name for a flow, at most 40 characters: `name`, with a number if `name` is used already."""
    unused, number = name, 2
    while unused in used_names:
        unused, number = f"{name[:36].rstrip('_')}_{number}", number + 1
    return unused


def list_texts(effect: Effect) -> tuple[str, ...]:
    """Every text of an effect."""
    values = (value for key, value in effect.to_json().items() if key != "kind")
    return tuple(
        text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    )


def map_texts(effect: Effect, change: Callable[[str], str]) -> Effect:
    """The effect with `change` applied to each text, without texts that become empty. If a diff or a command of a flow
    changes, the whole diff or all commands are removed, because the rest would do something else."""

    def change_all(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line for text in lines if (line := change(text)))

    match effect:
        case PromptFragment():
            return PromptFragment(change_all(effect.guidance))
        case FixTemplate():
            patch = effect.patch if change(effect.patch) == effect.patch else ""
            failing, repairs, causes = map(change_all, (effect.failing, effect.repairs, effect.causes))
            return replace(effect, failing=failing, repairs=repairs, causes=causes, patch=patch)
        case RoutingHint():
            return replace(effect, why=change(effect.why))
        case FlowOffload():
            whole = change_all(effect.commands) == effect.commands
            return FlowOffload(effect.name, change(effect.title) or effect.name, effect.commands if whole else ())
    return effect


def format_preview(
    type: CandidateType, effects: Sequence[Effect], *, model: str, tries: int, cost: int, flows: Collection[str]
) -> list[str]:
    """The behaviour with these effects of one type (oldest first), as lines that a screen can compare. `model`,
    `tries`, `cost` (in micro-dollars) and `flows` are the values without effects."""
    if type is CandidateType.POLICY_TWEAK:
        tweaks = [effect for effect in effects if isinstance(effect, PolicyTweak)]
        tries = min([tries, *(tweak.tries for tweak in tweaks if tweak.tries is not None)])
        cost = min([cost, *(tweak.cost for tweak in tweaks if tweak.cost is not None)])
        return [f"tries to heal: {tries}", f"cost of healing: ${dollars(cost):.2f} at most"]
    lines = [f"model: {model}"] if type is CandidateType.ROUTING_HINT else []
    flow_names = set(flows)
    for effect in effects:
        if isinstance(effect, FlowOffload):
            effect = replace(effect, name=free_name(effect.name, flow_names))
            flow_names.add(effect.name)
        lines += _describe_effect(effect)
    return lines


def _describe_effect(effect: Effect) -> list[str]:
    match effect:
        case PromptFragment():
            return [f"- {line}" for line in effect.guidance]
        case FixTemplate():
            failing = [f"failing: {name}" for name in effect.failing]
            advice = [f"advice: {line}" for line in effect.repairs]
            patch = [line for line in effect.patch.splitlines() if not line.startswith("index ")]
            return [*failing, *advice, *patch]
        case RoutingHint():
            limit = f" of at most {effect.longest_prompt} characters" if effect.longest_prompt is not None else ""
            return [f"prompts{limit} on {effect.channel or 'any channel'}: {effect.model} ({effect.why})"]
        case FlowOffload():
            commands = [f"  $ {shlex.join(shlex.split(command))}" for command in effect.commands]
            return [f"flow: {effect.name} ({effect.title})", *commands]
    return []

"""The effects of candidates: whether one is valid, what its texts are, how it reads in a preview (SPEC 5.4). Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, replace
from itertools import chain

from engine.config import find_model_problem
from engine.model import Refusal
from engine.model.adaptation import (
    Effect,
    EffectPreview,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)
from engine.text import one_line, sanitise
from engine.wording import money

MAX_LINES = 20
"""Maximum number of lines of guidance, repairs or commands in one effect."""

MAX_LINE_CHARS = 500
"""Maximum number of characters of each line."""

_FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
"""A valid name of a flow."""

_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\[^$`]|[^"\\$`])*(\\?[$`]?)(?:\\.|[^"\\])*\"""")
"""A text that a shell takes as it stands, and a variable or command in double quotes that it does not."""

_NEEDS_SHELL = re.compile(
    r"[|&;<>()$`*?\n]|(?<!\S)[~#]|^!\s|^(?:env\s+)?\w+=|\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}|(?<!\S)(?:(?!::)\S)*\[(?:[!^]|(?:\w-\w)+\])"
)
"""What a shell does more with than to pass it on, and variables, which a flow sets none of. Brackets count with a
range or a negation: others are the extras of a package, the name of a page or, after `::`, part of a test's name."""


def validate_effect(effect: Effect) -> Effect:
    """Check an effect, and return it with each text in a single line. Raises `Refusal` `bad_effect` with the
    problem."""
    match effect:
        case PromptFragment():
            return PromptFragment(_validate_lines("guidance", effect.guidance))
        case FixTemplate():
            _require_valid(effect.failing, "it names no failing test")
            return replace(effect, repairs=_validate_lines("repairs", effect.repairs))
        case RoutingHint():
            problem = find_model_problem(effect.model)
            _require_valid(not problem, problem)
        case PolicyTweak():
            _require_valid((effect.tries, effect.cost) != (None, None), "it changes no limit")
        case FlowOffload(name):
            problem = f"{sanitise(name)[:80]!r} is not a valid flow name: use lower-case letters, digits and _"
            _require_valid(_FLOW_NAME.fullmatch(name), problem)
            commands = _validate_lines("commands", effect.commands)
            for command in commands:
                split_command(command)
                _require_valid(not needs_shell(command), f"{command[:80]!r} needs a shell")
            return FlowOffload(name, _validate_line(effect.title) or name, commands)
    return effect


def needs_shell(command: str) -> bool:
    """Whether a shell would do something else with a command than to pass its words on, or variables are set for it."""
    return _NEEDS_SHELL.search(_QUOTED.sub(r"_\1", command)) is not None


def split_command(command: str) -> list[str]:
    """The program and arguments of a flow's command, which runs without a shell. Raises `Refusal` `bad_effect`."""
    quoted = f"{command[:80]!r}"
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise _make_invalid_effect_refusal(f"{quoted} is not a command: {error}") from error
    _require_valid(arguments and not arguments[0].startswith("-"), f"{quoted} is not a command")
    return arguments


def _validate_lines(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Check the texts of the field `name`, and return each that is not empty in a single line."""
    lines = tuple(filter(None, map(_validate_line, texts)))
    _require_valid(lines, f"{name} says nothing")
    _require_valid(len(lines) <= MAX_LINES, f"{name} has {len(lines)} lines, at most {MAX_LINES}")
    return lines


def _validate_line(text: str) -> str:
    """Check the length of a text, and return it in a single line."""
    line = one_line(text)
    problem = f"a line has {len(line)} characters, at most {MAX_LINE_CHARS}: {line[:60]}…"
    _require_valid(len(line) <= MAX_LINE_CHARS, problem)
    return line


def _require_valid(condition: object, problem: str) -> None:
    """Refuse an effect with this problem unless the condition is true."""
    if not condition:
        raise _make_invalid_effect_refusal(problem)


def _make_invalid_effect_refusal(problem: str) -> Refusal:
    """The refusal of an effect with this problem."""
    return Refusal("bad_effect", f"this change cannot be activated: {problem}", "reject its candidate")


def make_unused_flow_name(name: str, used_names: Collection[str]) -> str:
    """An unused name for a flow, at most 40 characters: `name`, with a number if `name` is used already."""
    unused, number = name, 2
    while unused in used_names:
        unused, number = f"{name[:36].rstrip('_')}_{number}", number + 1
    return unused


def list_texts(effect: Effect) -> tuple[str, ...]:
    """Every text of an effect."""
    values = (value if isinstance(value, tuple) else (value,) for value in astuple(effect))
    return tuple(text for text in chain.from_iterable(values) if isinstance(text, str))


def replace_texts(effect: Effect, change: Callable[[str], str]) -> Effect:
    """The effect with `change` applied to each text, without texts that become empty. If a diff or a command of a flow
    changes, the whole diff or all commands are removed, because the rest would do something else."""

    def change_all(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, map(change, lines)))

    match effect:
        case PromptFragment():
            return PromptFragment(change_all(effect.guidance))
        case FixTemplate(failing, repairs, patch, causes):
            patch = patch if change(patch) == patch else ""
            return FixTemplate(change_all(failing), change_all(repairs), patch, change_all(causes), effect.project)
        case RoutingHint():
            return replace(effect, why=change(effect.why))
        case FlowOffload(name, title, commands):
            return FlowOffload(name, change(title) or name, commands if change_all(commands) == commands else ())
    return effect


def is_same_change(effect: Effect, other: Effect) -> bool:
    """Whether two effects make the same change: the same repair of a test, the same model for a channel, or equal
    effects."""
    match effect, other:
        case FixTemplate(), FixTemplate():
            return bool({*effect.failing} & {*other.failing}) and effect.repairs == other.repairs
        case RoutingHint(), RoutingHint():
            return (effect.model, effect.channel) == (other.model, other.channel)
    return effect == other


def make_preview(effect: Effect, others: Sequence[Effect], *, model: str, tries: int, cost: int) -> EffectPreview:
    """The behaviour with the `others`, and with the effect as well, as lines that a screen can compare. The others are
    active effects of its type, oldest first. `model`, `tries` and `cost` (in micro-dollars) are the values without
    effects."""
    if isinstance(effect, PolicyTweak):
        limits = [PolicyTweak(tries, cost), *others]
        return EffectPreview(_describe_limits(limits), _describe_limits([*limits, effect]))
    before = [f"model: {model}"] if isinstance(effect, RoutingHint) else []
    before += chain.from_iterable(map(_describe_effect, others))
    return EffectPreview(tuple(before), (*before, *_describe_effect(effect)))


def _describe_limits(tweaks: Sequence[Effect]) -> tuple[str, ...]:
    """The lowest of these limits."""
    limits = [tweak for tweak in tweaks if isinstance(tweak, PolicyTweak)]
    tries = min(limit.tries for limit in limits if limit.tries is not None)
    cost = min(limit.cost for limit in limits if limit.cost is not None)
    return f"tries to heal: {tries}", f"cost of healing: {money(cost)} at most"


def _describe_effect(effect: Effect) -> list[str]:
    """The lines of one effect in a preview."""
    match effect:
        case PromptFragment():
            return [f"- {line}" for line in effect.guidance]
        case FixTemplate():
            failing = [f"failing: {name}" for name in effect.failing]
            advice = [f"advice: {line}" for line in effect.repairs]
            return failing + advice + [line for line in effect.patch.splitlines() if not line.startswith("index ")]
        case RoutingHint():
            limit = f" of at most {effect.longest_prompt} characters" if effect.longest_prompt is not None else ""
            return [f"prompts{limit} on {effect.channel or 'any channel'}: {effect.model} ({effect.why})"]
        case FlowOffload():
            commands = [f"  $ {shlex.join(shlex.split(command))}" for command in effect.commands]
            return [f"flow: {effect.name} ({effect.title})", *commands]
    return []

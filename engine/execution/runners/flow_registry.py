"""The flows that there are: which one a prompt names, its parameters as text (SPEC 9.2), and learned flows (SPEC 5.4).

Learned flows are commands that agents ran again and again, one after the other, without a model. Each is like any other
flow: the content filter checks every command, the sandbox confines it, it works in a worktree of its own, its changes
wait for review. One that was rolled back cannot be started.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from engine.execution.runners.flow import Flow, FlowError, FlowResult, Job, Place
from engine.files import read_table
from engine.model import FlowForm, Refusal, sanitise
from engine.model.text import count, join_names, last_line

# -- Parameters -----------------------------------------------------------------------------------------------------

_FILLERS = frozenset({"the", "a", "an", "my", "our", "all", "please", "this", "project", "repository", "code"})
"""Words that change nothing when they stand beside the name of a flow."""

ALIASES: Mapping[str, Sequence[str]] = read_table(__file__, "flow_aliases.toml")
"""Common requests by flow; see `flow_aliases.toml`."""

_PAIR = re.compile(r"\s*(?:\w+[ \t]*=|$)")
"""The beginning of a further line of parameters. Any other line makes it prose, such as a pasted paragraph."""

VALUE = re.compile(r"\w*[\d_/:~^.]\S*[\w/]|\d+")
"""Matches a file, a test, a commit or a number. Sentences rarely consist of these alone."""

PROSE = "prose"
"""The code of the refusal of an edit that is a sentence, and no mistyped parameter."""


def named_flow(prompt: str, flows: Collection[str]) -> tuple[str, str] | None:
    """The flow that a prompt names, and the text of its parameters; None for prose.

    `run_tests`, `Run the tests`, `draft the change-log` and the `ALIASES` name a flow; so does `run_tests paths=src` or
    `run_tests {"paths": ["src"]}`, where parameters follow. `bisect tests/test_cart.py` does too: its parameters lack
    their names, and the flow says which it takes.
    """
    normalised = _normalise_words(prompt)
    for flow in flows:
        if normalised in (_normalise_words(name) for name in (flow, *ALIASES.get(flow, ()))):
            return flow, ""
    first, _, rest = prompt.partition(" ")
    rest = rest.strip()
    are_pairs = "=" in rest and all(map(_PAIR.match, rest.split("\n")[1:]))
    if first in flows and (rest.startswith("{") or are_pairs or _are_values(rest)):
        return first, rest
    return None


def _are_values(text: str) -> bool:
    words = text.split()
    return bool(words) and all(VALUE.fullmatch(word) for word in words)


def _normalise_words(text: str) -> str:
    """The words of a text in lower case, without fillers and separators: equal for texts that mean the same."""
    words = text.lower().rstrip(" .!?").replace("-", " ").replace("_", " ").split()
    return "".join(word for word in words if word not in _FILLERS)


def validate_parameters(flow: type[Flow], values: Mapping[str, Any]) -> Flow:
    """The flow with its parameters. Raises `Refusal` `bad_parameters` with what is wrong and what is accepted."""
    try:
        return flow.model_validate(dict(values))
    except ValidationError as error:
        raise parameter_refusal(flow, _describe_faults(flow, error)) from error


def _describe_faults(flow: type[Flow], error: ValidationError) -> str:
    unknown, missing, wrong = [], [], []
    for fault in error.errors(include_url=False, include_context=False)[:5]:
        place = ".".join(map(str, fault["loc"])) or "parameters"
        match fault["type"]:
            case "extra_forbidden":
                unknown.append(place)
            case "missing":
                missing.append(place)
            case _:
                wrong.append(f"{flow.name}: {place}: {fault['msg'].removeprefix('Value error, ')}")
    sentences = [f"{flow.name} has no parameter {join_names(unknown)}"] if unknown else []
    sentences += [f"{flow.name} needs {join_names(missing)}"] if missing else []
    return sanitise("; ".join([*sentences, *wrong]))


def parameter_refusal(flow: type[Flow], problem: str, *, code: str = "bad_parameters") -> Refusal:
    """The refusal of parameters, with how they are written and what each means."""
    fields = _sorted_fields(flow)
    if not fields:
        return Refusal(code, problem, "it has no parameters")
    form = " ".join(f"{name}=…" if field.is_required() else f"[{name}=…]" for name, field in fields)
    accepted = "; ".join(_describe_field(name, field) for name, field in fields)
    return Refusal(code, problem, f"`{flow.name} {form}`; {accepted}")


def _sorted_fields(flow: type[Flow]) -> list[tuple[str, FieldInfo]]:
    """The parameters of a flow by name, required ones first."""
    return sorted(flow.model_fields.items(), key=lambda named: not named[1].is_required())


def edit_parameters(flow: type[Flow], present: Mapping[str, Any], edit: str) -> Flow:
    """The flow after an edit of its parameters: a JSON object, `key=value` pairs or `key: value` lines. Parameters that
    are not named stay. Items of a list are separated by commas or white space.

    Raises `Refusal` `bad_parameters`, and `PROSE` for a sentence.
    """
    text = edit.strip()
    if text.startswith("{"):
        try:
            changes = json.loads(text)
        except json.JSONDecodeError as error:
            raise parameter_refusal(flow, f"{flow.name}: the edit is not JSON: {error}") from error
    else:
        changes = _parse_pairs(flow, text)
    return validate_parameters(flow, {**present, **changes})


def _parse_pairs(flow: type[Flow], text: str) -> dict[str, Any]:
    known_names = "|".join(map(re.escape, flow.model_fields)) or "(?!)"
    before, *pieces = re.split(rf"(?:^|(?<=[\s,;]))({known_names})[ \t]*[=:](?!:)", text)
    names, values, stray = pieces[::2], pieces[1::2], before.strip()
    if typo := re.search(r"(?:^|\s)([A-Za-z_]\w*)=", " ".join([stray, *values])):
        raise parameter_refusal(flow, f"{flow.name} has no parameter {typo[1]}")
    if len(stray.split()) > 1 and not _are_values(stray):
        message = f"{flow.name} takes parameters, and no model or agent is configured for other text"
        raise parameter_refusal(flow, message, code=PROSE)
    if stray or not names:
        problem = f"which parameter is {sanitise(stray)[:80]!r}?" if stray else "the edit contains no parameter"
        raise parameter_refusal(flow, f"{flow.name}: {problem}")
    pairs = zip(names, values, strict=True)
    return {name: _parse_value(flow.model_fields[name], value.strip().rstrip(",;").rstrip()) for name, value in pairs}


def _parse_value(field: FieldInfo, text: str) -> Any:
    if get_origin(field.annotation) is list and not text.startswith("["):
        return [item for item in re.split(r"[,\s]+", text) if item]
    if text[:1] in '["{' or field.annotation is not str:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text  # validation reports it
    return text


def _describe_field(name: str, field: FieldInfo) -> str:
    kind = "list" if get_origin(field.annotation) is list else getattr(field.annotation, "__name__", "text")
    default = ""
    if not field.is_required():
        default = f" = {json.dumps(field.get_default(call_default_factory=True), default=str)}"
    note = f" ({field.description})" if field.description else ""
    return f"{name}: {'text' if kind == 'str' else kind}{default}{note}"


# -- Learned flows --------------------------------------------------------------------------------------------------


class LearnedFlow(Flow):
    """A flow of commands without parameters. Each active one is a class of its own, see `learned_flow`."""

    place = Place.CHANGE_SET
    commands: ClassVar[tuple[tuple[str, ...], ...]]
    """Each a program with its arguments."""
    workspace: ClassVar[str]
    """The only workspace that it is for, "" for all."""

    @classmethod
    def describe_commands(cls) -> str:
        """The commands as a card shows them for approval."""
        return ", then ".join(map(shlex.join, cls.commands))

    def describe(self) -> str:
        """The commands."""
        return f"Run {self.describe_commands()}"

    def run(self, job: Job) -> FlowResult:
        """Run every command; the first that fails ends the flow."""
        for number, argv in enumerate(self.commands, start=1):
            done = job.run(argv)
            if not done.ok:
                raise FlowError(
                    f"step {number} of {len(self.commands)}, `{shlex.join(argv)}`, ended with exit code "
                    f"{done.exit_code}: {last_line(done.output)}"
                )
        return FlowResult(f"{count(len(self.commands), 'command')} of {self.name} ran")


def learned_flow(name: str, label: str, commands: Sequence[Sequence[str]], workspace: str = "") -> type[LearnedFlow]:
    """The flow of one overlay."""
    attributes = {"name": name, "label": label, "commands": tuple(map(tuple, commands)), "workspace": workspace}
    return type("LearnedFlow", (LearnedFlow,), {**attributes, "__module__": __name__})


class FlowRegistry(Mapping[str, type[Flow]]):
    """The present flows by name. The program's own come first and cannot be replaced."""

    def __init__(self, own: Mapping[str, type[Flow]], learned: Callable[[], Sequence[type[LearnedFlow]]]) -> None:
        self._own = own
        self._learned = learned

    def __getitem__(self, name: str) -> type[Flow]:
        flow = self._own.get(name)
        return self._learned_by_name()[name] if flow is None else flow

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._learned_by_name() if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find_named(self, prompt: str) -> str:
        """The flow that `prompt` names, "" for prose."""
        named = named_flow(prompt, tuple(self))
        return named[0] if named else ""

    def forms(self) -> list[FlowForm]:
        """The form of each flow, required parameters first. Blocking: the learned flows are in the database."""
        return [
            FlowForm(
                flow.name,
                flow.label,
                tuple((name, field.description or "", field.is_required()) for name, field in _sorted_fields(flow)),
            )
            for flow in self.values()
        ]

    def _learned_by_name(self) -> Mapping[str, type[Flow]]:
        return {flow.name: flow for flow in self._learned()}

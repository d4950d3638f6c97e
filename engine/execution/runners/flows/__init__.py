"""The flows, which are work without a model (SPEC 3.9): all of them by name, and how a prompt names them with their
parameters (SPEC 9.2).

Each is a class, a `Flow` of `runners.flow`. A learned flow (SPEC 5.4) is a list of commands that agents often ran one
after the other. It runs without a model, and like any other flow: the content filter checks every command, the sandbox
confines it, it works in a worktree of its own, and its changes wait for review. A learned flow that was rolled back
cannot be started.

Flows may import `runners.flow`, `runners.toolchains`, `execution.trees`, engine.git, engine.files and engine.model.
They start programs and change files only through their `Job`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import CommandLine, Flow, FlowResult, Job, stays_inside
from engine.execution.runners.flows.branches import KeepCommits, LookAtPullRequest, ReportBranches
from engine.execution.runners.flows.change_log import DraftChangelog, LookAtRelease
from engine.execution.runners.flows.documentation import LookAtMentions, UpdateDocs, WriteAgentsMd
from engine.execution.runners.flows.failing_tests import ApplyFix, Bisect, NarrowFailures, RehearseRevert
from engine.execution.runners.flows.history import FindJointChanges, SummariseDay
from engine.execution.runners.flows.housekeeping import ReclaimSpace, UndoLanding
from engine.execution.runners.flows.linting import FixLint, Lint
from engine.execution.runners.flows.merging import ForecastConflicts, RehearseAutosquash, RehearseMerge
from engine.execution.runners.flows.own_changes import LookAtChanges, LookForLeftovers, RemoveLeftovers
from engine.execution.runners.flows.packages import PrepareEnvironment, UpdateLock
from engine.execution.runners.flows.testing import CheckCleanHead, RunTests, UncoveredLines
from engine.execution.runners.flows.unfinished import LookAtStash, UnfinishedOperation
from engine.execution.runners.flows.unpushed import ReviewUnpushed
from engine.execution.runners.flows.unreliable_tests import HuntFlakes, Quarantine, TimeTests
from engine.execution.runners.toolchains import TEST_FILE
from engine.files import read_table
from engine.model import FlowForm, Refusal
from engine.text import find_last_error_line, sanitise
from engine.wording import count, join_names

_FLOW_CLASSES = (
    RunTests, Bisect, RehearseMerge, RehearseRevert, ApplyFix, HuntFlakes, CheckCleanHead, DraftChangelog, Lint,
    FixLint, ForecastConflicts, ReviewUnpushed, LookAtChanges, UndoLanding, ReclaimSpace, ReportBranches,
    SummariseDay, PrepareEnvironment, UpdateLock, WriteAgentsMd, FindJointChanges, LookAtRelease, UnfinishedOperation,
    KeepCommits, RehearseAutosquash, LookAtStash, LookForLeftovers, RemoveLeftovers, LookAtMentions, UpdateDocs,
    NarrowFailures, UncoveredLines, Quarantine, TimeTests, LookAtPullRequest,
)  # fmt: skip

FLOWS: Mapping[str, type[Flow]] = MappingProxyType({flow.name: flow for flow in _FLOW_CLASSES})
"""Every flow of the program by its name."""


_LANDS_CHANGES = "you land the changes"
"""The changes of work whose diff waits until the operator lands it: that of models and agents, and of most flows."""

_CHANGES_BY_PLACE = {Place.INSTALL: "installs packages", Place.BRANCH: "makes a branch"}
"""The changes of a flow, for each place from which something else than a diff comes."""


def name_work(flow: str) -> str:
    """What sort of work a flow does, in a word such as `tests`. A learned flow is called by its name."""
    known_flow = FLOWS.get(flow)
    return known_flow.work if known_flow else flow.replace("_", " ")


def describe_changes(flow: str | None) -> str:
    """What a flow changes, in words for a card that is not read-only. None stands for a model or an agent."""
    known_flow = FLOWS.get(flow or "")
    if known_flow is None:
        return _LANDS_CHANGES
    return known_flow.changes or _CHANGES_BY_PLACE.get(known_flow.place, _LANDS_CHANGES)


def gives_change_set(flow: str | None) -> bool:
    """Whether the changes of a flow wait until they are landed, so that the undo of its card undoes their landing. None
    stands for a model or an agent."""
    known_flow = FLOWS.get(flow or "")
    return known_flow is None or known_flow.place is Place.CHANGE_SET


class LearnedFlow(Flow):
    """A flow that runs commands and has no parameters. `make_learned_flow` makes a class for each active one."""

    place = Place.CHANGE_SET
    commands: ClassVar[tuple[tuple[str, ...], ...]]
    """The commands, each as a program with its arguments."""
    workspace: ClassVar[str]
    """The only workspace in which it may run; "" for all."""

    @classmethod
    def describe_commands(cls) -> str:
        """The commands as a card shows them for approval."""
        return ", then ".join(map(shlex.join, cls.commands))

    def describe(self) -> str:
        """The commands."""
        return f"Run {self.describe_commands()}"

    def run(self, job: Job) -> FlowResult:
        """Run the commands in order. Raises `WorkFailed` at the first one that fails."""
        for number, argv in enumerate(self.commands, start=1):
            result = job.run(argv)
            if not result.ok:
                raise WorkFailed(
                    f"step {number} of {len(self.commands)}, `{shlex.join(argv)}`, ended with exit code "
                    f"{result.exit_code}: {find_last_error_line(result.output)}"
                )
        return FlowResult(f"{count(len(self.commands), 'command')} of {self.name} ran")


def make_learned_flow(
    name: str, label: str, commands: tuple[tuple[str, ...], ...], workspace: str
) -> type[LearnedFlow]:
    """Make the class of a learned flow."""
    attributes = {"name": name, "label": label, "commands": commands, "workspace": workspace, "__module__": __name__}
    return type("LearnedFlow", (LearnedFlow,), attributes)


class FlowRegistry(Mapping[str, type[Flow]]):
    """All flows by name. The flows of the program itself come first, and a learned flow cannot replace them."""

    def __init__(self, learned: Callable[[], Sequence[type[LearnedFlow]]]) -> None:
        self._learned = learned

    def __getitem__(self, name: str) -> type[Flow]:
        return FLOWS.get(name) or self._read_all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_all())

    def __len__(self) -> int:
        return len(self._read_all())

    def find_data_parameters(self, name: str | None) -> frozenset[str]:
        """The parameters of a flow that are data; see `Flow.find_data_parameters`. A learned flow has none."""
        flow = FLOWS.get(name or "")
        return flow.find_data_parameters() if flow else frozenset()

    def forms(self) -> list[FlowForm]:
        """The form of each flow, with required parameters first. Blocks, because it reads learned flows from the
        database."""
        return [
            FlowForm(
                flow.name,
                flow.label,
                tuple((name, field.description or "", field.is_required()) for name, field in flow.list_parameters()),
            )
            for flow in self.values()
        ]

    def _read_all(self) -> dict[str, type[Flow]]:
        """All flows. The learned ones are read from the database."""
        return {**FLOWS, **{flow.name: flow for flow in self._learned()}, **FLOWS}


# -- finding the flow of a prompt

_FILLERS = frozenset({"the", "a", "an", "my", "our", "all", "please", "this", "project", "repository", "code", "and"})
"""Words beside the name of a flow that are ignored."""

_FILLER_WORDS = rf"(?:(?:{'|'.join(_FILLERS)})\s+)*+"
"""Matches any number of `_FILLERS` before another word, in one way only: a long prompt must not be slow."""

ALIASES: Mapping[str, Sequence[str]] = read_table(__file__, "flow_aliases.toml")
"""Common requests in words, by flow. `{paths}` stands for the values of this parameter."""

_SLOT = re.compile(r"\{(\w+)\}")
"""The parameter in a request."""

_VERB_AND_SLOT = re.compile(r"\w+ \{\w+\}")
"""A request of a verb alone and its files. The verb alone is not similar to it: `run it` is no request for tests."""

_PATH = re.compile(r"[\w./-]*\w\.\w+|(?:[\w.-]+/)+[\w.-]*")
"""Matches the name of a file with a suffix, or a path. The words of a sentence have neither."""

_ITEM = re.compile(r"""\"([^"]+)\"(?=[,\s]|$)|'([^']+)'(?=[,\s]|$)|([^,\s]+)""")
"""An item of a list, which may stand in quotes."""

VALUE = re.compile(r"[\w-]*[\d_/:~^.]\S*[\w/]|\d+")
"""Matches a file, a test, a commit or a number. A sentence rarely has only such words."""

_PAIR = re.compile(r"\s*(?:\w+[ \t]*=|$)")
"""The beginning of each line of parameters after the first. If a line has another beginning, the text is a prompt."""

MIN_SIMILARITY = 0.85
"""From this similarity on, a prompt is nearly the name of a flow. `run it` and `run lint` have 0.83."""


def find_named_flow(prompt: str, flows: Collection[str], workspace: str) -> tuple[str, str] | None:
    """The flow that a prompt names, and the text of its parameters. None if the prompt names no flow.

    `run_tests`, `Run the tests`, `draft the change-log` and the `ALIASES` name a flow, the latter also with files of
    `workspace` or with tests, as in `run the tests of src/cart.py`. Parameters may follow, as in `run_tests paths=src`
    and `run_tests {"paths": ["src"]}`. `bisect tests/test_cart.py` names a flow, too, although the name of the
    parameter is missing: the refusal then says which parameters the flow has.
    """
    requests = [(flow, flow) for flow in flows] + [(flow, alias) for flow in flows for alias in ALIASES.get(flow, ())]
    for flow, request in requests:
        if slot := _SLOT.search(request):
            if values := _find_values(prompt, request, Path(workspace)):
                return flow, json.dumps({slot[1]: values})
        elif normalise_words(prompt) == normalise_words(request):
            return flow, ""
    first, _, rest = prompt.partition(" ")
    return (first, rest.strip()) if first in flows and _are_parameters(rest) else None


def find_similar_flow(prompt: str, flows: Collection[str]) -> str:
    """The flow whose name is nearly that in a prompt, as in `bisct test=a` and `test cart`; "" for none."""
    first, _, rest = prompt.strip().partition(" ")
    name = normalise_words(first if _are_parameters(rest) else " ".join(_select_plain_words(prompt)))
    flow_by_name = {
        normalise_words(_SLOT.sub("", alias)): flow
        for flow in flows
        for alias in (*ALIASES.get(flow, ()), flow)
        if not _VERB_AND_SLOT.fullmatch(alias)
    }
    close_names = difflib.get_close_matches(name, flow_by_name, 1, MIN_SIMILARITY)
    transposed_names = [flow_name for flow_name in flow_by_name if sorted(flow_name) == sorted(name)]
    first_words = [normalise_words(first)] if len(prompt.split()) < 4 else []  # a longer text is a sentence
    candidates = (*close_names, *transposed_names, *first_words)
    return next((flow_by_name[candidate] for candidate in candidates if candidate in flow_by_name), "")


def find_missing_file(prompt: str, flows: Collection[str], workspace: str) -> str:
    """The first file that a prompt with the words of a request names, and that `workspace` does not have; "" for
    none."""
    requests = [alias for flow in flows for alias in ALIASES.get(flow, ()) if _SLOT.search(alias)]
    texts = [match[1] for alias in requests if (match := _match_request(prompt, alias))]
    paths = [item for text in texts for item in _split_items(text) if _PATH.fullmatch(item) and stays_inside(item)]
    return next((path for path in paths if not os.path.lexists(Path(workspace) / path)), "")


def _split_items(text: str) -> list[str]:
    return ["".join(groups) for groups in _ITEM.findall(text.replace("`", '"'))]


def _match_request(prompt: str, alias: str) -> re.Match[str] | None:
    """The match of a prompt with the words of a request; its group 1 is what stands in the place of the parameter."""
    before, _, after = _SLOT.split(alias)
    words = "".join(rf"{word}[\s_-]++{_FILLER_WORDS}" for word in before.split())
    return re.fullmatch(rf"{_FILLER_WORDS}{words}(.+?){after}(?:(?<=[\w\"'`\]])[.!?])?", prompt.strip(), re.IGNORECASE)


def _find_values(prompt: str, alias: str, top: Path) -> list[str]:
    """The values in a prompt that has the other words of a request; [] if one of them is no file of the repository
    `top`, or no test."""
    parameter, match = _SLOT.split(alias)[1], _match_request(prompt, alias)
    if match is None:
        return []

    def is_value(item: str) -> bool:
        is_present = stays_inside(item) and os.path.lexists(top / item)
        return is_present if parameter == "paths" else "::" in item or (is_present and bool(TEST_FILE.search(item)))

    if parameter == "paths" and is_value(match[1]):  # white space in its name
        return [match[1]]
    items = _split_items(match[1])
    values = [item for item in items if is_value(item)]
    return values if _FILLERS.issuperset({*items}.difference(values)) else []


def _are_parameters(text: str) -> bool:
    """Whether a text has the form of parameters: a JSON object, pairs, or values alone, also none."""
    text = text.strip()
    are_pairs = "=" in text and all(map(_PAIR.match, text.split("\n")[1:]))
    return text.startswith("{") or are_pairs or not _select_plain_words(text)


def _select_plain_words(text: str) -> list[str]:
    """The words of a text that may be those of a sentence, see `VALUE`."""
    return [word for word in re.split("[\\s,`]+", text) if word and not VALUE.fullmatch(word)]


def normalise_words(text: str) -> str:
    """The words of a text in lower case, without fillers, separators and quotes. Texts with the same meaning become
    equal."""
    words = re.sub(r"[-_]", " ", text.lower().rstrip(" .!?").replace("`", "")).split()
    return "".join(word for word in words if word not in _FILLERS)


# -- parameters

PROSE = "prose"
"""The code of the refusal of an edit that is a sentence, and not a parameter with a mistake."""


def validate_parameters(flow: type[Flow], values: Mapping[str, Any]) -> Flow:
    """The flow with its parameters. Raises `Refusal` `bad_parameters`, which says what is wrong and what is
    accepted."""
    try:
        return flow.model_validate(dict(values))
    except ValidationError as error:
        raise make_parameter_refusal(flow, _describe_faults(flow, error)) from error


def _describe_faults(flow: type[Flow], error: ValidationError) -> str:
    """What is wrong with the parameters of a flow, in words."""
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


def make_parameter_refusal(flow: type[Flow], problem: str, *, code: str = "bad_parameters") -> Refusal:
    """The refusal of parameters. It says how they are written, and what each of them means."""
    fields = flow.list_parameters()
    if not fields:
        return Refusal(code, problem, "it has no parameters")
    form = " ".join(f"{name}=…" if field.is_required() else f"[{name}=…]" for name, field in fields)
    accepted = []
    for name, field in fields:
        kind = "list" if get_origin(field.annotation) is list else getattr(field.annotation, "__name__", "text")
        default = ""
        if not field.is_required():
            default = f" = {json.dumps(field.get_default(call_default_factory=True), default=str)}"
        note = f" ({field.description})" if field.description else ""
        accepted.append(f"{name}: {'text' if kind == 'str' else kind}{default}{note}")
    return Refusal(code, problem, f"`{flow.name} {form}`; {'; '.join(accepted)}")


def edit_parameters(flow: type[Flow], present: Mapping[str, Any], edit: str) -> Flow:
    """The flow after an edit of its parameters.

    The edit is a JSON object, `key=value` pairs or `key: value` lines. Items of a list are separated by commas or white
    space; those that contain either stand in quotes. Parameters that the edit does not name stay. Raises `Refusal`
    `bad_parameters`, and `PROSE` for a sentence.
    """
    text = edit.strip()
    if text.startswith("{"):
        try:
            changes = json.loads(text)
        except json.JSONDecodeError as error:
            raise make_parameter_refusal(flow, f"{flow.name}: the edit is not JSON: {error}") from error
    else:
        changes = _parse_pairs(flow, text)
    return validate_parameters(flow, {**present, **changes})


def _parse_pairs(flow: type[Flow], text: str) -> dict[str, Any]:
    """The values of the parameters that a text names. Raises `Refusal` as `edit_parameters`."""
    known_names = "|".join(map(re.escape, flow.model_fields)) or "(?!)"
    before, *pieces = re.split(rf"(?:^|(?<=[\s,;]))({known_names})[ \t]*[=:](?!:)", text)
    names, values, stray = pieces[::2], pieces[1::2], before.strip()
    if typo := re.search(r"(?:^|\s)([A-Za-z_]\w*)=", " ".join([stray, *values])):
        raise make_parameter_refusal(flow, f"{flow.name} has no parameter {typo[1]}")
    if len(stray.split()) > 1 and _select_plain_words(stray):
        message = f"{flow.name} takes parameters, and no model or agent is configured for other text"
        raise make_parameter_refusal(flow, message, code=PROSE)
    if stray or not names:
        problem = f"which parameter is {sanitise(stray)[:80]!r}?" if stray else "the edit contains no parameter"
        raise make_parameter_refusal(flow, f"{flow.name}: {problem}")
    pairs = zip(names, values, strict=True)
    return {name: _parse_value(flow.model_fields[name], value.strip().rstrip(",;").rstrip()) for name, value in pairs}


def _parse_value(field: FieldInfo, text: str) -> Any:
    """The value of a parameter that is written as text. If it is wrong, validation reports that later. A command
    without quotes is one item, although it contains white space."""
    if get_args(field.annotation) == (CommandLine,) and text[:1] not in "[\"'":
        return [text]
    if get_origin(field.annotation) is list and not text.startswith("["):
        return ["".join(groups) for groups in _ITEM.findall(text)]
    if text[:1] in '["{' or field.annotation is not str:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text

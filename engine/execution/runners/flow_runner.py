"""Runs flows (SPEC 3.8, 3.9): finds the flow that a prompt names, reads its parameters from text (SPEC 9.2), and runs
it in its place.

`FlowRunner` is the runner of assignments that have a flow. The functions for prompts and parameters also serve the
operator who writes a prompt or edits a card.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from engine.clock import Clock
from engine.execution.housekeeping import Housekeeping
from engine.execution.live_session import LiveSession
from engine.execution.runners import UNDO_NOTES, CannotRun, Place, WorkFailed
from engine.execution.runners.flow import CommandLine, Flow, Job, ProjectFlow, stays_inside
from engine.execution.runners.flows import LearnedFlow
from engine.execution.runners.flows.tooling import InstallFlow
from engine.execution.runners.runner import RunnerResult
from engine.execution.runners.toolchains import TEST_FILE, MissingItem, find_usual_fix
from engine.execution.runners.toolchains.detection import find_missing_program
from engine.execution.runners.toolchains.installing import Installation, install_into_tree, list_possible_locks
from engine.execution.sandbox.mounts import list_written_files
from engine.execution.session_folders import RunScope, SessionFolders
from engine.files import read_table
from engine.git import Git
from engine.model import Assignment, Refusal, RunnerInfo, SessionView
from engine.text import sanitise
from engine.wording import count, join_names

MAX_NAMED_FILES = 50
"""Maximum number of discarded files in the transcript of a check."""


class FlowRunner:
    """Runs `flows`, a mapping that may change at any time. `folders` opens the folder in which a flow works, and
    stores its result."""

    name = "flow"

    def __init__(
        self,
        flows: Mapping[str, type[Flow]],
        *,
        folders: SessionFolders,
        clock: Clock,
        housekeeping: Housekeeping,
    ) -> None:
        self._flows = flows
        self._folders = folders
        self._clock = clock
        self._housekeeping = housekeeping

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the flow exists and accepts its parameters, and what it would change."""
        try:
            flow = self._resolve(assignment)
            installation = _find_installation(flow, assignment)
        except Refusal as refusal:
            return RunnerInfo(available=False, reason=refusal.message)
        except WorkFailed as unable:
            return RunnerInfo(available=False, reason=str(unable))
        info = RunnerInfo(
            available=True,
            check_only=flow.place not in (Place.CHANGE_SET, Place.BRANCH, Place.ENGINE, Place.INSTALL),
            runs_commands=flow.place not in (Place.OPERATOR_TREE, Place.BRANCH, Place.ENGINE),
            undo_note=flow.undo_note or UNDO_NOTES[flow.place],
            is_free=True,
            learned_commands=flow.describe_commands() if isinstance(flow, LearnedFlow) else "",
        )
        if installation is None:
            return info
        undo = installation.undo_note if flow.place is Place.INSTALL else info.undo_note
        return replace(info, undo_note=undo, hosts=installation.packages.hosts, learned_commands=installation.summary)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment with edited parameters, and with the prompt that describes them.

        Raises `Refusal`: `no_runner`, `bad_parameters`."""
        flow_type = self._find_flow_type(assignment)
        flow = edit_parameters(flow_type, assignment.parameters, edit)
        try:
            flow.check_requirements(Path(assignment.workspace))
        except CannotRun as unable:
            raise Refusal("bad_parameters", f"{flow_type.name}: {unable.message}", unable.fix) from unable
        try:
            _find_installation(flow, assignment)
        except WorkFailed as unable:
            raise make_parameter_refusal(flow_type, str(unable)) from unable
        return replace(assignment, prompt=sanitise(flow.describe()), parameters=flow.model_dump(mode="json"))

    def recover(self) -> list[str]:
        """See `SessionFolders.recover`."""
        return self._folders.recover()

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Run the flow to its end. Raises `Refusal`, `WorkFailed`, `SessionStopped`."""
        flow = self._resolve(live.assignment)
        installation = _find_installation(flow, live.assignment)
        network = live.confinement.network and installation is None
        hosts = installation.packages.hosts if installation else ()
        live.say(f"{flow.label} · sandbox: {live.sandbox.describe(network=network, hosts=hosts)}")
        place = flow.place
        with self._folders.open(live, view, place) as folder:
            job = Job(
                workspace=Path(live.assignment.workspace),
                folder=folder.path,
                git=live.commands.bind_git(folder.git),
                session=live,
                clock=self._clock,
                housekeeping=self._housekeeping,
            )
            with _prepare_installation(live, installation) if installation else nullcontext():
                if live.work_allowed_once:
                    live.commands.allow_once(_list_named_commands(flow, installation, live.assignment))
                result = flow.run(job)
            written_files = sorted(list_written_files(live.confinement)) if live.confinement.is_ephemeral else []
            first_lock = _find_first_lock(written_files, folder.git, installation) if installation else {}
            for name in written_files[:MAX_NAMED_FILES]:
                live.say(f"discarded: {sanitise(name)}")
            scope = RunScope(result.full, flow.project if isinstance(flow, ProjectFlow) else "")
            write = self._folders.capture(live, view, folder, check=result.check, scope=scope)
        discarded = f" · wrote {count(len(written_files), 'file')}, discarded" if written_files else ""
        return RunnerResult(
            f"{result.summary}{discarded}", result.check, result.sound, {**result.facts, **first_lock}, write
        )

    def _find_flow_type(self, assignment: Assignment) -> type[Flow]:
        """The class of a flow. Raises `Refusal` `no_runner`."""
        if assignment.flow is None:
            problem = "This text names no flow, and no model or agent is set up for it"
            raise Refusal("no_runner", problem, "`clawpy help flows` lists the flows")
        flow = self._flows.get(assignment.flow)
        if flow is None:
            raise Refusal("no_runner", f"there is no flow {assignment.flow!r}", f"flows: {', '.join(self._flows)}")
        if issubclass(flow, LearnedFlow) and flow.workspace not in ("", assignment.workspace):
            problem = f"the flow {flow.name} was learned in {flow.workspace} and works only there"
            raise Refusal("no_runner", problem, "run it there")
        return flow

    def _resolve(self, assignment: Assignment) -> Flow:
        """The flow with its parameters. Raises `Refusal`: `no_runner`, `bad_parameters`."""
        return validate_parameters(self._find_flow_type(assignment), assignment.parameters)


def _find_installation(flow: Flow, assignment: Assignment) -> Installation | None:
    """The installation that a flow makes; None if the flow installs nothing. Raises `WorkFailed` for a command that is
    not the project's own, and `CannotRun` if its program is not installed."""
    if not isinstance(flow, InstallFlow):
        return None
    top = Path(assignment.workspace)
    installation = flow.find_installation(top)
    if program := find_missing_program(installation.commands, top):
        missing = MissingItem("program", program)
        raise CannotRun(missing.sentence, find_usual_fix(missing, ""))
    return installation


def _list_named_commands(flow: Flow, installation: Installation | None, assignment: Assignment) -> list[str]:
    """The commands that stand in an assignment, exactly as the flow runs them."""
    if installation is not None:
        return installation.lines
    if isinstance(flow, LearnedFlow) and assignment.prompt == sanitise(flow.describe()):
        return [*map(shlex.join, flow.commands)]
    return []


def _find_first_lock(written_files: Sequence[str], git: Git, installation: Installation) -> dict[str, str]:
    """The fact `first_lock`: the lock file that an installation wrote where there was none, unless git ignores it. It
    is discarded with everything else, and a card offers its diff."""
    if not installation.packages.lock:
        for path in list_possible_locks(installation.packages):
            ignored = ("check-ignore", "--quiet", "--", path)
            if path in written_files and git.run(*ignored, allowed=(0, 1, 128)).returncode == 1:
                return {"first_lock": path}
    return {}


@contextmanager
def _prepare_installation(live: LiveSession, installation: Installation) -> Iterator[None]:
    """Let a flow that installs reach its hosts, and after a success put the packages in place."""
    live.say(installation.summary)
    with (
        live.commands.allow_hosts(installation.packages.hosts),
        install_into_tree(live, installation, Path(live.assignment.workspace)),
    ):
        yield


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

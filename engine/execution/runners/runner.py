"""What carries out assignments inside a session (SPEC 3.8): the protocol, and what the runners of agents
share; and the runner of flows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

from engine.config import SettingsSource
from engine.execution.environments import install_into_tree, network_access
from engine.execution.housekeeping import Housekeeping
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import ModelCalls
from engine.execution.prompts import PromptAssembly
from engine.execution.runners.flow import Flow, FlowError, Job, Place, ProjectFlow
from engine.execution.runners.flow_registry import LearnedFlow, edit_parameters, validate_parameters
from engine.execution.runners.flows.maintenance import InstallFlow
from engine.execution.runners.toolchains.installing import Installation
from engine.execution.session_workspace import UNDO_NOTES, RunScope, SessionWorkspace, SessionWorkspaces, bound_check
from engine.execution.tools.toolbelt import Toolbelts
from engine.execution.validation import Validation, ValidationResult
from engine.frozen import frozen
from engine.model import (
    Assignment,
    CheckResult,
    Prompt,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Refusal,
    RunnerInfo,
    SessionView,
    SourceKind,
    Trust,
    sanitise,
)
from engine.model.secrets import parting
from engine.storage.database import Transaction


@frozen
class RunnerResult:
    """The result of work that ran to its end; `check`, `sound` and `facts` as in `FlowResult`."""

    summary: str
    check: CheckResult | None = None
    sound: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[Transaction], str] | None = None
    """Stores the result in the session's last transaction, and returns the id of its change set or ""."""
    closing: str | None = None
    """The last line of the transcript, None for the summary: an agent's own text is there already."""


class Runner(Protocol):
    """One way to carry out assignments; `name` is the `runner` of an assignment, or "acp:*" for all that begin so."""

    @property
    def name(self) -> str: ...

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether it accepts the assignment, and its effects. Quick; the launcher adds sandbox and estimate."""

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment as the operator edited it. Raises `Refusal` `bad_parameters` or `no_runner`."""

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Carry out the assignment, in the session's own thread.

        Raises `FlowError` when it cannot be done, `CommandBlocked` when the content filter blocks it, `SessionStopped`
        when the session is ending.
        """

    def recover(self) -> list[str]:
        """At start-up, when no session runs: tidy up after sessions of an earlier run, and say what was done."""


# -- The parts of a conversation, for the X-ray (SPEC 9.6) ----------------------------------------------------------


_LABELS = {"reply": "the operator", "runner": "clawpy", "heal": "the validation loop"}
_TRUST = {"reply": Trust.OPERATOR, "heal": Trust.QUOTED}
"""Clawpy's own prompts need no label of trust; a failed run is reported in the words of the tests."""


def assistant_part(text: str, calls: Sequence[Mapping[str, Any]], call_id: str) -> PromptPart:
    """The text and the tool calls of the model's answer to the call `call_id`."""
    source = PromptSource(SourceKind.CONVERSATION, call_id, "the model", Trust.QUOTED)
    texts = text.split("\n") if text else []
    texts += [f"{call['name']}({_compact_json(call['arguments'])})" for call in calls]
    return PromptPart("answer", _prompt_lines("\n".join(texts), source), "assistant")


def result_part(tool: str, text: str, call_id: str) -> PromptPart:
    """The result of a tool."""
    name = " ".join(sanitise(tool).split())[:40]  # a model may ask for a tool by any name
    return PromptPart(
        name, _prompt_lines(text, PromptSource(SourceKind.CONVERSATION, call_id, name, Trust.QUOTED)), "tool"
    )


def operator_part(text: str, kind: str) -> PromptPart:
    """A message between turns: of the operator, of the validation loop, or of Clawpy itself."""
    source = SourceKind.OPERATOR if kind == "reply" else SourceKind.RUNNER
    named = PromptSource(source, label=_LABELS.get(kind, "clawpy"), trust=_TRUST.get(kind))
    return PromptPart(kind, _prompt_lines(text, named), "user")


def _prompt_lines(text: str, source: PromptSource) -> tuple[PromptLine, ...]:
    return tuple(PromptLine(line, source) for line in sanitise(text).split("\n"))


def _compact_json(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


# -- Text that comes in pieces --------------------------------------------------------------------------------------


MAX_LINE = 4_000
"""Characters of an incomplete line that are kept back; a longer one is written as it is."""

_SENTENCE_ENDS = re.compile(r"(?<=[^\W\d_]{2})[.!?]\s+")
"""After a word: "1." and "e.g." end no sentence."""


class StreamedText:
    """Receives text in pieces and passes whole lines to `write`: of an incomplete line its whole sentences at
    `write_sentences`, its rest at `flush` or when the kind changes. No secret is split: `clean` tells where one is.

    A slow model pauses after each word, and a single word on a line is hard to read."""

    def __init__(
        self, write: Callable[[str, str], None], clean: Callable[[str], str], *, max_line: int = MAX_LINE
    ) -> None:
        self._write = write
        self._clean = clean
        self._max_line = max_line
        self._kind = ""
        self._rest = ""

    def add(self, kind: str, text: str) -> None:
        """Add text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        whole, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline and whole.strip():
            self._write(kind, whole)
        while len(self._rest) > self._max_line and (cut := parting(self._rest, self._clean, limit=self._max_line)):
            self._write_until(cut)

    def write_sentences(self) -> None:
        """Write the whole sentences so far: no text came for a while."""
        for end in reversed(list(_SENTENCE_ENDS.finditer(self._rest))):
            if parting(self._rest, self._clean, limit=end.end()) == end.end():
                self._write_until(end.end())
                return

    def _write_until(self, place: int) -> None:
        """Write the text before `place`."""
        head, self._rest = self._rest[:place], self._rest[place:]
        if head.strip():
            self._write(self._kind, head)

    def flush(self) -> None:
        """Write the rest: the text is complete."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)


# -- The base class of runners for agents ---------------------------------------------------------------------------


@frozen
class AgentServices:
    """The services of every runner for agents."""

    workspaces: SessionWorkspaces
    prompts: PromptAssembly
    calls: ModelCalls
    belts: Toolbelts
    settings: SettingsSource
    validation: Validation | None = None
    """Runs the tests on the changes; None for no validation."""


class AgentRunner:
    """A runner of text prompts that works in a worktree, whose diff becomes a change set."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """An edit of prose is a new prompt. Raises `Refusal` `bad_parameters` for an empty one."""
        prompt = sanitise(edit).strip()
        if not prompt:
            raise Refusal("bad_parameters", "the prompt is empty", "say what to do")
        return replace(assignment, prompt=prompt)

    def recover(self) -> list[str]:
        """Nothing to do: worktrees and model calls are recovered by their own services."""
        return []

    def _prompt(self, live: LiveSession, view: SessionView, workspace: SessionWorkspace, kind: str) -> Prompt:
        prompt = self._services.prompts.assemble(
            PromptRequest(
                agent=view.agent,
                channel=view.channel,
                workspace=view.workspace,
                task=live.assignment.prompt,
                run_kind=kind,
                session_id=view.id,
                prediction_id=view.prediction_id,
                folder=str(workspace.folder),
            )
        )
        for note in prompt.notes:
            live.say(note)
        return prompt

    def _validate(
        self,
        live: LiveSession,
        view: SessionView,
        workspace: SessionWorkspace,
        *,
        heal: Callable[[str], None],
        reply: Callable[[], None],
    ) -> ValidationResult:
        """Validate the changes, let `heal` repair them, and let `reply` answer the operator, until both are done."""
        while True:
            validated = ValidationResult()
            if self._services.validation is not None:
                validated = self._services.validation.validate(live, view, workspace, heal)
            if live.stop_listening():
                return validated
            reply()

    def _result(
        self,
        live: LiveSession,
        view: SessionView,
        workspace: SessionWorkspace,
        validated: ValidationResult,
        *,
        summary: str,
        closing: str,
        facts: Mapping[str, Any],
    ) -> RunnerResult:
        """The result of a session, with its change set. The runs of the validation are recorded already."""
        write = self._services.workspaces.keep(live, view, workspace, Place.CHANGE_SET, check=validated.check)
        check = validated.check and bound_check(validated.check, live.without_secrets)
        return RunnerResult(summary, check, facts=facts, write=write, closing=closing)


# Runs flows (SPEC 3.8, 3.9): finds the flow, checks its parameters, and runs it in its place.


class FlowRunner:
    """Runs `flows`, which may change at any time; `workspaces` give them a place and store their results."""

    name = "flow"

    def __init__(
        self, flows: Mapping[str, type[Flow]], *, workspaces: SessionWorkspaces, upkeep: Housekeeping | None = None
    ) -> None:
        self._flows = flows
        self._workspaces = workspaces
        self._upkeep = upkeep

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the flow exists and accepts its parameters, and the traces that it would leave."""
        try:
            flow = self._resolve(assignment)
            installation = _find_installation(flow, assignment)
        except Refusal as refusal:
            return RunnerInfo(available=False, reason=refusal.message)
        except FlowError as unable:
            return RunnerInfo(available=False, reason=str(unable))
        info = RunnerInfo(
            available=True,
            check_only=flow.place not in (Place.CHANGE_SET, Place.BRANCH, Place.ENGINE, Place.INSTALL),
            undo_note=UNDO_NOTES[flow.place],
            is_free=True,
            learned_commands=flow.describe_commands() if isinstance(flow, LearnedFlow) else "",
        )
        if installation is None:
            return info
        undo = installation.undo_note if flow.place is Place.INSTALL else info.undo_note
        return replace(info, undo_note=undo, hosts=installation.hosts, learned_commands=installation.summary)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment with edited parameters, and with the prompt that describes them."""
        flow = edit_parameters(self._flow_type(assignment), assignment.parameters, edit)
        return replace(assignment, prompt=sanitise(flow.describe()), parameters=flow.model_dump(mode="json"))

    def recover(self) -> list[str]:
        """See `SessionWorkspaces.recover`."""
        return self._workspaces.recover()

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Run the flow to its end, or raise why not."""
        flow = self._resolve(live.assignment)
        installation = _find_installation(flow, live.assignment)
        network, hosts = (False, installation.hosts) if installation else (live.confinement.network, ())
        live.say(f"{flow.label} · sandbox: {live.sandbox.describe(network=network, hosts=hosts)}")
        place = flow.place
        with self._workspaces.open(live, place) as workspace:
            job = Job(
                workspace=Path(live.assignment.workspace),
                folder=workspace.folder,
                git=live.git(workspace.git),
                session=live,
                upkeep=self._upkeep,
            )
            with _prepare_installation(live, installation, place) if installation else nullcontext():
                result = flow.run(job)
            discarded_files = self._workspaces.describe_discarded(live)
            scope = RunScope(result.full, flow.project if isinstance(flow, ProjectFlow) else "")
            write = self._workspaces.keep(live, view, workspace, place, check=result.check, scope=scope)
        check = result.check and bound_check(result.check, live.without_secrets)
        summary = f"{result.summary} · {discarded_files}" if discarded_files else result.summary
        return RunnerResult(summary, check, result.sound, result.facts, write)

    def _flow_type(self, assignment: Assignment) -> type[Flow]:
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
        return validate_parameters(self._flow_type(assignment), assignment.parameters)


def _find_installation(flow: Flow, assignment: Assignment) -> Installation | None:
    """The installation of a flow that installs, None for every other flow. Raises `FlowError` for a command that is not
    the project's own."""
    return flow.installation(Path(assignment.workspace)) if isinstance(flow, InstallFlow) else None


@contextmanager
def _prepare_installation(live: LiveSession, installation: Installation, place: Place) -> Iterator[None]:
    """Give a flow that installs its network, and put the packages in place after a success."""
    live.say(installation.summary)
    with network_access(live, installation.hosts):
        if place is Place.INSTALL:
            with install_into_tree(live, installation, Path(live.assignment.workspace)):
                yield
        else:
            (live.confinement.caches / installation.cache).mkdir(parents=True, exist_ok=True)
            yield

"""The protocol of runners, which carry out assignments in a session (SPEC 3.8), and what the runners of models and
coding agents share: how a prompt is assembled, how changes are validated, and how a conversation is stored for the
X-ray."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.config import SettingsSource
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import ModelCalls
from engine.execution.prompts import PromptAssembly
from engine.execution.runners.flow import WorkResult
from engine.execution.session_folders import SessionFolder, SessionFolders
from engine.execution.tools.toolbelt import Toolbelts
from engine.execution.validation import Validation, ValidationResult
from engine.frozen import frozen
from engine.model import (
    Assignment,
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
from engine.model.text import one_line
from engine.storage.database import Transaction

TASK, HEAL, REPLY = "task", "heal", "reply"
"""Kinds of runs: the prompt of the card, a repair after a failed validation, a message of the operator. Models and
overlays are chosen by kind (SPEC 5.4, 5.5)."""


_LABELS = {REPLY: "the operator", HEAL: "the validation loop"}
"""Who speaks in a message, by its kind. Others are from Clawpy itself."""

_TRUST = {REPLY: Trust.OPERATOR, HEAL: Trust.QUOTED}
"""The trust in a message by its kind. A heal message quotes the output of tests. Clawpy's own prompts have no
entry."""


@frozen
class RunnerResult(WorkResult):
    """The result of a session's work, and how it is stored."""

    write: Callable[[Transaction], str] | None = None
    """Stores the result in the session's last transaction, and returns the id of its change set, "" for none."""
    closing: str | None = None
    """The last line of the transcript, None for the summary. Agents set it, because their own text is in the transcript
    already."""


class Runner(Protocol):
    """One way to carry out assignments. Its `name` is compared with the `runner` of an assignment; "acp:*" matches all
    that begin with "acp:"."""

    @property
    def name(self) -> str:
        """The name by which assignments choose it."""

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether it accepts the assignment, and what it would change. This must be quick. The launcher adds the
        sandbox and the estimated cost."""

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment after an edit of the operator. Raises `Refusal` `bad_parameters` or `no_runner`."""

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Carry out the assignment, in the session's own thread.

        Raises `WorkFailed` when it cannot be done, `CommandBlocked` when the content filter blocks it, `SessionStopped`
        when the session is ending.
        """

    def recover(self) -> list[str]:
        """Tidy up after sessions of an earlier run of the engine, and return what was done. It is called at start-up,
        when no session runs."""


# -- the parts of a conversation, for the X-ray (SPEC 9.6)


def make_assistant_part(text: str, calls: Sequence[Mapping[str, Any]], call_id: str) -> PromptPart:
    """The text and the tool calls of the model's answer to the call `call_id`."""
    source = PromptSource(SourceKind.CONVERSATION, call_id, "the model", Trust.QUOTED)
    lines = text.split("\n") if text else []
    lines += [f"{call['name']}({_make_compact_json(call['arguments'])})" for call in calls]
    return PromptPart("answer", make_prompt_lines("\n".join(lines), source), "assistant")


def make_result_part(tool: str, text: str, call_id: str) -> PromptPart:
    """The result of a tool."""
    name = one_line(tool)[:40]  # a model may ask for a tool by any name
    source = PromptSource(SourceKind.CONVERSATION, call_id, name, Trust.QUOTED)
    return PromptPart(name, make_prompt_lines(text, source), "tool")


def make_operator_part(text: str, kind: str) -> PromptPart:
    """A message between turns, from the operator, the validation loop, or Clawpy itself."""
    source_kind = SourceKind.OPERATOR if kind == REPLY else SourceKind.RUNNER
    source = PromptSource(source_kind, label=_LABELS.get(kind, "clawpy"), trust=_TRUST.get(kind))
    return PromptPart(kind, make_prompt_lines(text, source), "user")


def make_prompt_lines(text: str, source: PromptSource) -> tuple[PromptLine, ...]:
    """The lines of a text, sanitised, each with its source."""
    return tuple(PromptLine(line, source) for line in sanitise(text).split("\n"))


def _make_compact_json(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


# -- the base class of runners for agents


@frozen
class AgentServices:
    """The services of every runner for agents."""

    folders: SessionFolders
    prompts: PromptAssembly
    calls: ModelCalls
    belts: Toolbelts
    settings: SettingsSource
    validation: Validation


class AgentRunner:
    """A runner of text prompts that works in a worktree, whose diff becomes a change set."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """Replace the prompt by `edit`. Raises `Refusal` `bad_parameters` if it is empty."""
        prompt = sanitise(edit).strip()
        if not prompt:
            raise Refusal("bad_parameters", "the prompt is empty", "say what to do")
        return replace(assignment, prompt=prompt)

    def recover(self) -> list[str]:
        """Nothing to do: worktrees and model calls are recovered by their own services."""
        return []

    def _assemble_prompt(self, live: LiveSession, view: SessionView, folder: SessionFolder, kind: str) -> Prompt:
        prompt = self._services.prompts.assemble(
            PromptRequest(
                agent=view.agent,
                channel=view.channel,
                workspace=view.workspace,
                task=live.assignment.prompt,
                run_kind=kind,
                session_id=view.id,
                prediction_id=view.prediction_id,
                folder=str(folder.path),
            )
        )
        for note in prompt.notes:
            live.say(note)
        return prompt

    def _validate(
        self,
        live: LiveSession,
        view: SessionView,
        folder: SessionFolder,
        *,
        heal: Callable[[str], None],
        reply: Callable[[], None],
    ) -> ValidationResult:
        """Validate the changes, let `heal` repair them, and let `reply` answer the operator, until both are done."""
        while True:
            validated = self._services.validation.validate(live, view, folder, heal)
            if live.replies.stop_listening():
                return validated
            reply()

    def _make_result(
        self,
        live: LiveSession,
        view: SessionView,
        folder: SessionFolder,
        validated: ValidationResult,
        *,
        summary: str,
        closing: str,
        facts: Mapping[str, Any],
    ) -> RunnerResult:
        """The result of a session, with its change set. The runs of the validation are recorded already."""
        write = self._services.folders.capture(live, view, folder, check=validated.check)
        return RunnerResult(summary, validated.check, validated.sound, facts=facts, write=write, closing=closing)

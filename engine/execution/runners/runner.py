"""The protocol of runners, which carry out assignments in a session (SPEC 3.8).

`AgentRunner` is the base class of the runners for models and coding agents. It assembles a prompt, and has the changes
validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from engine.config.settings import SettingsSource
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import ModelCalls
from engine.execution.prompts import PromptAssembly
from engine.execution.runners import WorkResult
from engine.execution.runners.validation import Validation, ValidationResult
from engine.execution.session_folders import SessionFolder, SessionFolders
from engine.execution.tools.toolbelt import ToolbeltFactory
from engine.frozen import frozen
from engine.model import Assignment, Prompt, PromptRequest, Refusal, RunnerInfo, SessionView
from engine.model.prompts import RunKind
from engine.storage.database import Transaction
from engine.text import sanitise


@frozen
class RunnerResult(WorkResult):
    """The result of a session's work, and how it is stored."""

    write: Callable[[Transaction], str] | None = None
    """Stores the result in the session's last transaction, and returns the id of its change set, "" for none."""
    last_line: str | None = None
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


@frozen
class AgentServices:
    """The services of every runner for agents."""

    folders: SessionFolders
    prompts: PromptAssembly
    calls: ModelCalls
    belts: ToolbeltFactory
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

    def _assemble_prompt(self, live: LiveSession, view: SessionView, folder: SessionFolder, kind: RunKind) -> Prompt:
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
        last_line: str,
        facts: Mapping[str, Any],
    ) -> RunnerResult:
        """The result of a session, with its change set. The runs of the validation are recorded already."""
        write = self._services.folders.capture(live, view, folder, check=validated.check)
        return RunnerResult(
            summary, validated.check, validated.has_problem, facts=facts, write=write, last_line=last_line
        )

"""The base class of runners for agents: the prompt, the validation of the changes, and the end of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.config import SettingsSource
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import ModelCalls
from engine.execution.prompt_assembly import PromptAssembly
from engine.execution.runners.flow import Place
from engine.execution.runners.runner import RunnerResult
from engine.execution.session_workspace import SessionWorkspace, SessionWorkspaces, bound_check
from engine.execution.tools.toolbelt import Toolbelts
from engine.execution.validation import Validation, ValidationResult
from engine.frozen import frozen
from engine.model import Assignment, Prompt, PromptRequest, Refusal, SessionView, sanitise


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

"""Chooses the runner of a card's work, and starts, stops and edits it (SPEC 2.7, 3.8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.config import SettingsSource
from engine.config.agents import AUTO, FLOW, MODEL
from engine.execution.runners.flow_registry import PROSE
from engine.execution.sessions import Sessions
from engine.model import Assignment, Permit, Refusal, RunnerInfo, SessionView, microusd


class Launcher:
    """Chooses the runner of an assignment, and starts it."""

    def __init__(self, sessions: Sessions, settings: SettingsSource) -> None:
        self._sessions = sessions
        self._settings = settings

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The assignment with the runner that would do it now, and a sentence on a replaced runner, "" for none.

        `auto` becomes a flow, or for prose the runner of the channel, else a model. A runner that is not available is
        replaced by the first of the channel's `fallback` that is. Without any the assignment stays as it is, and
        `check` says what is missing.
        """
        chosen = self._with_runner(assignment)
        info = self._check_runner(chosen)
        if info.available:
            return chosen, ""
        for other in self._list_fallbacks(chosen):
            instead = self._check_runner(other)
            if instead.available:
                return other, f"served by {instead.executor or other.runner}: {chosen.runner} cannot ({info.reason})"
        return assignment, ""

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether a runner is available, its effects and sandbox, and the estimated cost (SPEC 3.4): 0 for a free
        runner, else the usual cost of the runner's sessions on the channel, before the first of them
        `costPerTrigger`."""
        chosen, _ = self.choose(assignment) if assignment.runner == AUTO else (assignment, "")
        chosen = self._with_runner(chosen)
        info = self._check_runner(chosen)
        if not info.available:
            return info
        settings = self._settings.current
        usual = 0 if info.is_free else self._sessions.usual_cost(chosen.runner, chosen.channel)
        if usual is None:
            usual = microusd(settings.cost_per_trigger)
        sandbox = self._sessions.sandbox
        note = info.undo_note
        if not sandbox.confines:
            warning = "no sandbox on this machine: what its commands do outside the workspace cannot be undone"
            note = f"{warning}; {note}".removesuffix("; ")
        described = sandbox.describe(network=settings.workspace(chosen.workspace).network, hosts=info.hosts)
        return replace(info, undo_note=note, sandbox=described, estimate=usual)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment after the operator's edit. A sentence turns a flow into work for an agent or a model, if one
        is available. Raises `Refusal` `no_runner` or `bad_parameters`."""
        try:
            return self._sessions.admission.runner_of(assignment).apply_edit(assignment, edit)
        except Refusal as refusal:
            if refusal.code != PROSE:
                raise
            prose, _ = self.choose(replace(assignment, prompt=edit, runner=AUTO, flow=None, parameters={}))
            if self._check_runner(prose).available:
                return prose
            raise Refusal("bad_parameters", refusal.message, refusal.fix) from None

    def start(
        self, permit: Permit, assignment: Assignment, *, agent: str, mode: str, estimate: int, without_sandbox: bool
    ) -> SessionView:
        """See `Sessions.start`."""
        return self._sessions.start(
            permit, assignment, agent=agent, mode=mode, estimate=estimate, without_sandbox=without_sandbox
        )

    def blocking_reason(self, assignment: Assignment) -> str:
        """Why an assignment may not start by itself now, "" when it may: no runner, or `Admission.blocking_reason`."""
        info = self.check(assignment)
        if not info.available:
            return info.reason
        chosen, _ = self.choose(assignment)
        return self._sessions.admission.blocking_reason(chosen)

    def session_of(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card."""
        return self._sessions.of_prediction(prediction_id)

    def session(self, session_id: str) -> SessionView:
        """See `Sessions.get`."""
        return self._sessions.get(session_id)

    def stop(self, session_id: str, reason: str) -> None:
        """See `Sessions.stop`."""
        self._sessions.stop(session_id, reason)

    def _with_runner(self, assignment: Assignment) -> Assignment:
        """The assignment with a runner in place of `auto`: the present runner of its channel."""
        if assignment.runner != AUTO:
            return assignment
        if assignment.flow is not None:
            return replace(assignment, runner=FLOW)
        channel = self._settings.current.channels.get(assignment.channel)
        return replace(assignment, runner=MODEL if channel is None or channel.runner == AUTO else channel.runner)

    def _check_runner(self, assignment: Assignment) -> RunnerInfo:
        try:
            return self._sessions.admission.runner_of(assignment).check(assignment)
        except Refusal as refusal:
            if assignment.runner == MODEL and assignment.flow is None and refusal.code == "no_runner":
                options = "`clawpy key set openai`, or a coding agent (`clawpy doctor` names yours)"
                return RunnerInfo(available=False, reason=f"No model or agent is set up for text prompts: {options}")
            return RunnerInfo(available=False, reason=refusal.message)

    def _list_fallbacks(self, assignment: Assignment) -> Iterator[Assignment]:
        """The assignment with each fallback of its channel; none for a flow, whose parameters no agent understands."""
        channel = self._settings.current.channels.get(assignment.channel)
        if channel is None or assignment.flow is not None:
            return
        for name in channel.fallback:
            if name != assignment.runner:
                yield replace(assignment, runner=name)

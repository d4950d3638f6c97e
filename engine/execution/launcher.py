"""What cards see of execution: is there a runner, start it, stop it, edit it (SPEC 2.7, 3.8)."""

from __future__ import annotations

from dataclasses import replace

from engine.config import SettingsSource
from engine.execution.sessions import Sessions
from engine.values import Assignment, Permit, Refusal, RunnerInfo, SessionView, microusd


class Launcher:
    """The port that prediction is handed."""

    def __init__(self, sessions: Sessions, settings: SettingsSource) -> None:
        self._sessions = sessions
        self._settings = settings

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether there is a runner for it, what it would do, where, and what it is thought to cost (SPEC 3.4): the
        runner's own history on that channel, before the first the setting `costPerTrigger`."""
        try:
            info = self._sessions.runner_of(assignment).check(assignment)
        except Refusal as refusal:
            return RunnerInfo(takes=False, reason=refusal.message)
        settings = self._settings.current
        usual = self._sessions.usual_cost(assignment.runner, assignment.channel)
        sandbox = self._sessions.sandbox
        note = info.undo_note
        if info.takes and not sandbox.confines:
            note = f"{note}; without a sandbox here, what its commands do outside cannot be undone".removeprefix("; ")
        return replace(
            info,
            undo_note=note,
            sandbox=sandbox.describe(network=settings.workspace(assignment.workspace).network),
            estimate=microusd(settings.cost_per_trigger) if usual is None else usual,
        )

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment as the operator edited it. Raises `Refusal` `no_runner` or `bad_parameters`."""
        return self._sessions.runner_of(assignment).reparameterise(assignment, edit)

    def start(self, permit: Permit, assignment: Assignment, *, agent: str, mode: str, estimate: int) -> SessionView:
        """See `Sessions.start`."""
        return self._sessions.start(permit, assignment, agent=agent, mode=mode, estimate=estimate)

    def hindrance(self, assignment: Assignment) -> str:
        """Why this may not start by itself just now, "" when it may: no runner, or see `Sessions.hindrance`."""
        info = self.check(assignment)
        return self._sessions.hindrance(assignment) if info.takes else info.reason

    def session_of(self, prediction_id: str) -> SessionView | None:
        """The newest session of a card."""
        return self._sessions.of_prediction(prediction_id)

    def stop(self, session_id: str, reason: str) -> None:
        """See `Sessions.stop`."""
        self._sessions.stop(session_id, reason)

"""Chooses the runner of a session, and decides whether the session may start, in which sandbox and at what estimated
cost (SPEC 3.4, 3.7, 3.8). `Sessions` builds on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from engine.clock import Clock
from engine.config import SettingsSource
from engine.config.service_settings import AUTO, FLOW, MODEL
from engine.execution.runners.flow_registry import PROSE
from engine.execution.runners.runner import Runner
from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.execution.session_store import SessionStore
from engine.execution.session_terms import AUTONOMOUS, SessionRails
from engine.model import SANDBOX_FIX, Assignment, Refusal, RunnerInfo, microusd
from engine.storage.database import Database

log = logging.getLogger(__name__)

QUIET_PERIOD = timedelta(minutes=10)
"""The time without other writes in a workspace before a session that can write may start there by itself (SPEC 3.8)."""

NOTHING_BY_ITSELF = "nothing runs by itself without a sandbox, and no sandbox works here"
NOT_CONFIRMED = "it was approved to run in a sandbox, but no sandbox works on this machine any more"


class Admission(SessionStore):
    """Checks a session when it is created, and again before it starts."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: SettingsSource,
        rails: SessionRails,
        runners: Sequence[Runner],
    ) -> None:
        super().__init__(database, rails.consume)
        self._clock = clock
        self._settings = settings
        self._rails = rails
        self._runners = {runner.name: runner for runner in runners}
        self._sandbox = rails.sandbox

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of sessions. The best one of this machine is found when it is first needed."""
        if self._sandbox is None:
            self._sandbox = find_best_sandbox()
        return self._sandbox

    # Runners

    def runner_of(self, assignment: Assignment) -> Runner:
        """The runner of an assignment. `acp:*` serves `acp:claude` and all others of that family. Raises `Refusal`
        `no_runner`."""
        family, colon, _ = assignment.runner.partition(":")
        runner = self._runners.get(f"{family}:*" if colon else assignment.runner)
        if runner is None:
            names = ", ".join(self._runners) or "none"
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}", f"built in: {names}")
        return runner

    def choose(self, assignment: Assignment) -> tuple[Assignment, str]:
        """The assignment with the runner that would do it now, and a sentence if that replaces another one, else "".

        The runner `auto` becomes a flow if the assignment has one, else the runner of the channel, else a model. A
        runner that is not available is replaced by the first available one of the channel's `fallback`. A flow is not
        replaced, because no agent understands its parameters. If none is available, the assignment stays as it is, and
        `check` says what is missing.
        """
        chosen = self._with_runner(assignment)
        info = self._check_runner(chosen)
        if info.available:
            return chosen, ""
        channel = self._settings.current.channels.get(chosen.channel)
        for name in channel.fallback if channel is not None and chosen.flow is None else ():
            fallback = replace(chosen, runner=name)
            instead = self._check_runner(fallback)
            if instead.available:
                return fallback, f"served by {instead.executor or name}: {chosen.runner} cannot ({info.reason})"
        return assignment, ""

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether a runner is available, its effects and sandbox, and the estimated cost (SPEC 3.4).

        A free runner costs 0. For others the estimate is the usual cost of the runner's sessions on the channel; before
        the first of them it is `costPerTrigger`.
        """
        chosen, _ = self.choose(assignment) if assignment.runner == AUTO else (assignment, "")
        chosen = self._with_runner(chosen)
        info = self._check_runner(chosen)
        if not info.available:
            return info
        settings = self._settings.current
        usual = 0 if info.is_free else self.usual_cost(chosen.runner, chosen.channel)
        if usual is None:
            usual = microusd(settings.cost_per_trigger)
        note = info.undo_note
        if not self.sandbox.confines:
            warning = "no sandbox on this machine: what its commands do outside the workspace cannot be undone"
            note = f"{warning}; {note}".removesuffix("; ")
        workspace = settings.workspace(chosen.workspace)
        described = self.sandbox.describe(network=workspace.network, hosts=(*workspace.hosts, *info.hosts))
        return replace(info, undo_note=note, sandbox=described, estimate=usual)

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment after the operator's edit. A sentence turns a flow into work for an agent or
        a model, if one is available. Raises `Refusal` `no_runner` or `bad_parameters`."""
        try:
            return self.runner_of(assignment).apply_edit(assignment, edit)
        except Refusal as refusal:
            if refusal.code != PROSE:
                raise
            prose, _ = self.choose(replace(assignment, prompt=edit, runner=AUTO, flow=None, parameters={}))
            if self._check_runner(prose).available:
                return prose
            raise Refusal("bad_parameters", refusal.message, refusal.fix) from None

    def _with_runner(self, assignment: Assignment) -> Assignment:
        """The assignment with a definite runner in place of `auto`; see `choose`."""
        if assignment.runner != AUTO:
            return assignment
        if assignment.flow is not None:
            return replace(assignment, runner=FLOW)
        channel = self._settings.current.channels.get(assignment.channel)
        return replace(assignment, runner=MODEL if channel is None or channel.runner == AUTO else channel.runner)

    def _check_runner(self, assignment: Assignment) -> RunnerInfo:
        try:
            return self.runner_of(assignment).check(assignment)
        except Refusal as refusal:
            if assignment.runner == MODEL and assignment.flow is None and refusal.code == "no_runner":
                options = "`clawpy key set openai`, or a coding agent (`clawpy doctor` names yours)"
                return RunnerInfo(available=False, reason=f"No model or agent is set up for text prompts: {options}")
            return RunnerInfo(available=False, reason=refusal.message)

    # Whether it may start

    def stop_reason(self) -> str:
        """Why nothing may run now, by the kill switch; "" when it may. A kill switch that raises stops everything."""
        try:
            return self._rails.stop_signal()
        except Exception as error:
            log.exception("the kill switch cannot be asked")
            return f"the kill switch cannot be read: {error}"

    def admit(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> None:
        """Raise `Refusal` when the assignment may not start now: `no_runner`, `no_sandbox`, `unattended`,
        `workspace_busy`, `stopped`. `without_sandbox` says that it was approved to run unconfined."""
        info = self.runner_of(assignment).check(assignment)
        if not info.available:
            raise Refusal("no_runner", info.reason, "`clawpy doctor` shows what is set up; then approve the card again")
        if mode == AUTONOMOUS and not self.sandbox.confines:
            raise Refusal("no_sandbox", NOTHING_BY_ITSELF, SANDBOX_FIX)
        if not (without_sandbox or self.sandbox.confines):
            raise Refusal("no_sandbox", NOT_CONFIRMED, "look at the card and approve it again")
        if mode == AUTONOMOUS and (reason := self._rails.unattended(assignment.workspace)):
            raise Refusal("unattended", reason, "approve it yourself, or wait")
        if mode == AUTONOMOUS and (busy := self.blocking_reason(assignment)):
            raise Refusal("workspace_busy", busy, "it may run once nobody has written there for 10 minutes")
        if reason := self.stop_reason():
            raise Refusal("stopped", reason, "clawpy resume")

    def late_refusal(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> str:
        """Why an assignment that was admitted may no longer start after its time in the queue; "" when it may."""
        if reason := self.stop_reason():
            return reason
        if not (without_sandbox or self.sandbox.confines):
            return NOT_CONFIRMED
        if mode != AUTONOMOUS:
            return ""
        return self._rails.unattended(assignment.workspace) or self.blocking_reason(assignment)

    def blocking_reason(self, assignment: Assignment) -> str:
        """Why an assignment may not start by itself now; "" when it may (SPEC 3.8).

        It may not without a runner or a sandbox, nor when it can write in a workspace where somebody wrote less than
        `QUIET_PERIOD` ago. To find that out, git is started.
        """
        info = self._check_runner(self.choose(assignment)[0])
        if not info.available:
            return info.reason
        if not self.sandbox.confines:
            return NOTHING_BY_ITSELF
        last_write = None if info.check_only else self._rails.last_write(assignment.workspace)
        if last_write is None or (age := self._clock.now() - last_write) >= QUIET_PERIOD:
            return ""
        return f"somebody wrote to {Path(assignment.workspace).name} {max(0, int(age.total_seconds() // 60))} min ago"

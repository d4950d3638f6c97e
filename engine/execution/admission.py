"""Decides whether a session may start now, with which runner and in which sandbox (SPEC 3.7, 3.8, 7)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from engine.clock import Clock
from engine.execution.channels import AUTONOMOUS
from engine.execution.live_session import SessionRails
from engine.execution.runners.runner import Runner
from engine.execution.sandbox import Sandbox, best_sandbox
from engine.execution.session_supervisor import read_stop_reason
from engine.model import Assignment, Refusal

QUIET_PERIOD = timedelta(minutes=10)
"""The time without other writes in a workspace before a session that can write may start there by itself (SPEC 3.8)."""

NOTHING_BY_ITSELF = "nothing runs by itself without a sandbox, and no sandbox works here"
NOT_CONFIRMED = "it was approved to run in a sandbox, but no sandbox works on this machine any more"


class Admission:
    """Checks a session when it is created, and again before it starts."""

    def __init__(self, clock: Clock, rails: SessionRails, runners: Sequence[Runner]) -> None:
        self._clock = clock
        self._rails = rails
        self._runners = {runner.name: runner for runner in runners}
        self._sandbox = rails.sandbox

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of sessions; the best rung of this machine is tried when it is first needed."""
        if self._sandbox is None:
            self._sandbox = best_sandbox()
        return self._sandbox

    def admit(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> None:
        """Raises `Refusal` when the assignment may not start now: `no_runner`, `no_sandbox`, `unattended`,
        `workspace_busy`, `stopped`. `without_sandbox`: it was approved to run unconfined."""
        info = self.runner_of(assignment).check(assignment)
        if not info.available:
            raise Refusal("no_runner", info.reason)
        if mode == AUTONOMOUS and not self.sandbox.confines:
            raise Refusal("no_sandbox", NOTHING_BY_ITSELF, "install bubblewrap")
        if not (without_sandbox or self.sandbox.confines):
            raise Refusal("no_sandbox", NOT_CONFIRMED, "look at the card and approve it again")
        if mode == AUTONOMOUS and (reason := self._rails.unattended(assignment.workspace)):
            raise Refusal("unattended", reason, "approve it yourself, or wait")
        if mode == AUTONOMOUS and (busy := self.blocking_reason(assignment)):
            raise Refusal("workspace_busy", busy, "it may run once nobody has written there for 10 minutes")
        if stop_reason := read_stop_reason(self._rails.stop_signal):
            raise Refusal("stopped", stop_reason, "clawpy resume")

    def late_refusal(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> str:
        """Why an admitted assignment may not start after its time in the queue, "" when it may."""
        reason = read_stop_reason(self._rails.stop_signal)
        if reason:
            return reason
        if not (without_sandbox or self.sandbox.confines):
            return NOT_CONFIRMED
        if mode != AUTONOMOUS:
            return ""
        return self._rails.unattended(assignment.workspace) or self.blocking_reason(assignment)

    def runner_of(self, assignment: Assignment) -> Runner:
        """The runner of an assignment; `acp:*` serves `acp:claude` and all others of that family. Raises `Refusal`
        `no_runner`."""
        family, colon, _ = assignment.runner.partition(":")
        runner = self._runners.get(f"{family}:*" if colon else assignment.runner)
        if runner is None:
            names = ", ".join(self._runners) or "none"
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}", f"built in: {names}")
        return runner

    def blocking_reason(self, assignment: Assignment) -> str:
        """Why an assignment may not start by itself now, "" when it may (SPEC 3.8). Starts git when the assignment can
        write. Raises `Refusal` `no_runner`."""
        if not self.sandbox.confines:
            return NOTHING_BY_ITSELF
        if self.runner_of(assignment).check(assignment).check_only:
            return ""
        last_write = self._rails.last_write(assignment.workspace)
        if last_write is None or (age := self._clock.now() - last_write) >= QUIET_PERIOD:
            return ""
        return f"somebody wrote to {Path(assignment.workspace).name} {max(0, int(age.total_seconds() // 60))} min ago"

    def recover(self) -> list[str]:
        """At start-up: let each runner tidy up after a crash. Returns messages on what was done."""
        return [message for runner in self._runners.values() for message in runner.recover()]

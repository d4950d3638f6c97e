"""Decides whether a session may start now, with which runner and in which sandbox, and says why not (SPEC 3.7, 3.8,
7)."""

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

CALM = timedelta(minutes=10)
"""So long nobody else may have written in a workspace where a session that can write starts by itself (SPEC 3.8)."""

NOTHING_BY_ITSELF = "nothing runs by itself without a sandbox, and no sandbox works here"
NOT_CONFIRMED = "it was approved to run in a sandbox, but no sandbox works on this machine any more"


class Admission:
    """Is asked when a session is created, and again before it starts."""

    def __init__(self, clock: Clock, rails: SessionRails, runners: Sequence[Runner]) -> None:
        self._clock = clock
        self._rails = rails
        self._runners = {runner.name: runner for runner in runners}
        self._sandbox = rails.sandbox

    @property
    def sandbox(self) -> Sandbox:
        """The best rung of this machine, tried when it is first needed."""
        if self._sandbox is None:
            self._sandbox = best_sandbox()
        return self._sandbox

    def admit(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> None:
        """Raise why this may not begin now: `Refusal` `no_runner`, `no_sandbox`, `unattended`, `workspace_busy`,
        `stopped`. `without_sandbox`: it was approved to run where nothing confines it."""
        if not (info := self.runner_of(assignment).check(assignment)).available:
            raise Refusal("no_runner", info.reason)
        if mode == AUTONOMOUS and not self.sandbox.confines:
            raise Refusal("no_sandbox", NOTHING_BY_ITSELF, "install bubblewrap")
        if not (without_sandbox or self.sandbox.confines):
            raise Refusal("no_sandbox", NOT_CONFIRMED, "look at the card and approve it again")
        if mode == AUTONOMOUS and (reason := self._rails.unattended(assignment.workspace)):
            raise Refusal("unattended", reason, "approve it yourself, or wait")
        if mode == AUTONOMOUS and (busy := self.hindrance(assignment)):
            raise Refusal("workspace_busy", busy, "it may run once nobody has written there for 10 minutes")
        if stop_reason := read_stop_reason(self._rails.stop_signal):
            raise Refusal("stopped", stop_reason, "clawpy resume")

    def withdrawn(self, assignment: Assignment, mode: str, *, without_sandbox: bool) -> str:
        """Why what was admitted may not begin after all, "" when it may: it waited its turn, or for a restart, and
        meanwhile things may have changed."""
        if reason := read_stop_reason(self._rails.stop_signal):
            return reason
        if not (without_sandbox or self.sandbox.confines):
            return NOT_CONFIRMED
        if mode != AUTONOMOUS:
            return ""
        return self._rails.unattended(assignment.workspace) or self.hindrance(assignment)

    def runner_of(self, assignment: Assignment) -> Runner:
        """The runner an assignment names; `acp:claude` is of the family that `acp:*` serves. Raises `Refusal`
        `no_runner`."""
        family, colon, _ = assignment.runner.partition(":")
        runner = self._runners.get(f"{family}:*" if colon else assignment.runner)
        if runner is None:
            names = ", ".join(self._runners) or "none"
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}", f"built in: {names}")
        return runner

    def hindrance(self, assignment: Assignment) -> str:
        """Why this may not start by itself just now, in words (SPEC 3.8); "" when it may.

        Costs git processes when it can write. Raises `Refusal` `no_runner`.
        """
        if not self.sandbox.confines:
            return NOTHING_BY_ITSELF
        if self.runner_of(assignment).check(assignment).check_only:
            return ""
        last_write = self._rails.last_write(assignment.workspace)
        if last_write is None or (age := self._clock.now() - last_write) >= CALM:
            return ""
        return f"somebody wrote to {Path(assignment.workspace).name} {max(0, int(age.total_seconds() // 60))} min ago"

    def recover(self) -> list[str]:
        """At start-up: each runner tidies up what a crash left of its own; what was done, in words."""
        return [message for runner in self._runners.values() for message in runner.recover()]

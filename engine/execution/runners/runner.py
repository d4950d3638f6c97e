"""The protocol of runners, which carry out assignments inside a session (SPEC 3.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from engine.execution.live_session import LiveSession
from engine.frozen import frozen
from engine.model import Assignment, CheckResult, RunnerInfo, SessionView
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

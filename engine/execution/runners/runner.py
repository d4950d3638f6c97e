"""What every runner is: something that can take an assignment and carry it out inside a session (SPEC 3.8)."""

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
    """What work that ran to its end has to say; `sound` as in `FlowResult`.

    `closing` is what the transcript ends with, None for the summary: what an agent said stands there already.
    `write` puts what belongs to it into the session's last transaction, and returns the id of its change set or "".
    """

    summary: str
    check: CheckResult | None = None
    sound: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    write: Callable[[Transaction], str] | None = None
    closing: str | None = None


class Runner(Protocol):
    """One way to carry out assignments; `name` is the `runner` of an assignment, or "acp:*" for all that begin so."""

    @property
    def name(self) -> str: ...

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether it takes this, and what it would do. Quick; sandbox and estimate are filled in by the launcher."""

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment as the operator edited it. Raises `Refusal` `bad_parameters` or `no_runner`."""

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Do it, in the session's own thread.

        Raises `FlowUnable` when it cannot be done, `CommandBlocked` when the content filter said no, `Stopped` when
        the session is ending.
        """

    def recover(self) -> list[str]:
        """At start-up, when no session runs: tidy what sessions of an earlier run left, and say what."""

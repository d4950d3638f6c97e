"""Agents at work: tasks, sessions, and the operator's queue (SPEC 1.1, 2.12, 3.8, 9.3). What sessions changed is in
`changes`.

`engine.execution` runs sessions. Screens draw these values, and the last ones are kept for the first frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.frozen import frozen

ENGINE_CLOSED = "the engine was closed"
"""The error of a session that was cancelled because its engine ended."""

PROBLEM_FOUND = "problem found"
"""The outcome of a session that ran to its end and found a problem. This is not a failure of the session."""

HAS_PROBLEM = "has_problem"
"""Key in the facts of a result: a problem other than failing tests was found, such as a secret or a conflict."""

KEPT_DURATIONS = 50
"""Maximum number of slowest tests kept with a result; a suite may have tens of thousands."""

UNDONE = "undone by the operator"
"""The reason for stopping a session whose card was undone. Its changes are deleted."""

HANDED_BACK_MARK = "; back to the agent, try "
"""Part of the note with which the validation loop returns failing tests to the agent."""

CALL_FAILED_MARK = " failed: "
CALL_REFUSED_MARK = " refused: "
"""Between a call and its error in a line of the kind "tool"."""


# -- tasks and agents


class TaskState(StrEnum):
    """The state of a task."""

    OPEN = "open"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@frozen
class Task:
    """One entry of the task board. It needs other tasks done first: `needs` are all of them, `waits_for` those that are
    not done yet."""

    id: str
    title: str
    state: TaskState
    channel: str
    workspace: str
    source: str
    created_at: datetime
    updated_at: datetime
    session_id: str | None = None
    note: str = ""
    needs: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()


@frozen
class AgentActivity:
    """The current work of an agent, and the totals of all its sessions."""

    state: str = "idle"
    """"idle", "queued", "running", "waiting" (for the operator's word), "broken" or "retired"."""
    current_tokens: int = 0
    """The tokens of its current work."""
    sessions: int = 0
    total_tokens: int = 0
    total_cost: int = 0
    """In micro-dollars."""


@frozen
class AgentView:
    """An agent as its folder says, and its activity. `broken` holds the reason when the folder cannot be read."""

    id: str
    title: str
    reports_to: str
    tier: int
    tier_rule: str
    domain: str
    channels: tuple[str, ...]
    activity: AgentActivity = AgentActivity()
    broken: str = ""
    archetype: str = ""


# -- sessions


class SessionState(StrEnum):
    """The state of a session (SPEC 3.8)."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANNOT_RUN = "cannot_run"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    INTERRUPTED = "interrupted"

    @property
    def is_over(self) -> bool:
        """Whether the session will not change any more."""
        return self not in (SessionState.QUEUED, SessionState.RUNNING)


class Result(StrEnum):
    """The result of a session that is over (SPEC 2.12)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # a check found a problem (`SessionView.has_problem`), or the work was not done
    CANNOT_RUN = "cannot_run"  # a program, package, permission or network was missing
    CANCELLED = "cancelled"  # somebody, a rail or the end of the engine stopped it


SESSION_LABELS = {"succeeded": "finished", "cannot_run": "could not run", "cancelled": "stopped"}
"""States and outcomes of sessions whose stored name is not a word that you would use."""


def label_outcome(outcome: str) -> str:
    """An outcome of a session as the operator reads it."""
    return SESSION_LABELS.get(outcome, outcome)


def describe_outcome(state: str, result: str) -> str:
    """The outcome of a session in `state` with this result, in a word."""
    return PROBLEM_FOUND if (state, result) == (SessionState.SUCCEEDED, Result.FAILED) else result or state


@frozen
class CheckResult:
    """The result of a run of the project's own tests."""

    tool: str
    passed: int
    failed: int
    skipped: int = 0
    errors: int = 0
    seconds: float = 0.0
    failing: tuple[str, ...] = ()
    """The ids of failing tests, or of what holds them, such as a file: each can be run again without the others. If the
    tests are not counted, the command."""
    durations: tuple[tuple[str, float], ...] = ()
    """(test id, seconds) of the tests that ran, slowest first: of some tools only the slow ones, or none."""
    counted: bool = True
    """False if the output named no tests: then one `passed` or `failed` stands for the end of the command, and `tool`
    is the command."""
    failed_before: tuple[str, ...] | None = None
    """Those of `faults` that are also there on the files which the tested changes build on; None if that is not
    known."""
    error: str = ""
    """What was wrong besides tests, as the run printed it, such as a compiler's sentence; "" if nothing was."""

    @property
    def green(self) -> bool:
        """True when nothing failed and at least one test ran."""
        return self.failed == 0 and self.errors == 0 and self.passed > 0

    @property
    def faults(self) -> tuple[str, ...]:
        """What was wrong by name: the failing tests, or else the error that is no test."""
        return self.failing or ((self.error,) if self.error else ())

    @property
    def all_failed_before(self) -> bool:
        """Whether everything that fails is known to fail without the tested changes as well. Names are counted, because
        tests of two projects may have the same name, and `faults` has only one of the errors of several tools."""
        failed_before = self.failed_before or ()
        return self.failed + self.errors <= len(failed_before) and Counter(self.faults) <= Counter(failed_before)

    @property
    def has_new_failures(self) -> bool:
        """Whether something may fail because of the tested changes. That is also so if errors, such as a failed import,
        kept all tests from running."""
        ran_nothing = self.errors and not self.passed + self.failed
        return bool(ran_nothing) or not self.all_failed_before

    def for_storage(self, redact: Callable[[str], str]) -> CheckResult:
        """The result with the slowest `KEPT_DURATIONS` tests only, and with names from which `redact` removed secrets,
        such as a key in a test's parameter (SPEC 11.1)."""
        slowest = tuple((redact(test), seconds) for test, seconds in self.durations[:KEPT_DURATIONS])
        failed_before = None if self.failed_before is None else tuple(map(redact, self.failed_before))
        return replace(
            self,
            failing=tuple(map(redact, self.failing)),
            durations=slowest,
            failed_before=failed_before,
            error=redact(self.error),
        )


@frozen
class SessionView:
    """The values of a session for screens and verbs."""

    id: str
    prediction_id: str
    prompt: str
    workspace: str
    channel: str
    agent: str
    runner: str
    flow: str | None
    state: SessionState
    mode: str  # "approved" or "autonomous"
    sandbox: str
    cwd: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    tokens: int
    cost: int
    summary: str
    error: str = ""
    check: CheckResult | None = None
    change_set_id: str | None = None
    lines: int = 0
    next_step: str = ""
    """The kind of card that its result names as the next step (SPEC 2.10), "" for none."""
    discarded_at: datetime | None = None
    """When the operator discarded its changes, None otherwise."""
    not_begun: bool = False
    """Whether it failed before it did anything, because something was missing that may be there later. Its card is then
    pending again."""
    gone: str = ""
    """Why `cwd` no longer exists, and what happened to the changes in it, in words; "" while it exists."""
    project: str = ""
    """The folder of the project that its flow worked in, "" for the top of the repository."""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """The findings of its flow, for programs (`FlowResult.facts`)."""

    @property
    def has_problem(self) -> bool:
        """Whether it ran to its end and found a problem: tests that did not fail before its changes, or a finding of a
        check."""
        is_red = self.check is not None and self.check.has_new_failures
        return self.state is SessionState.SUCCEEDED and (is_red or bool(self.facts.get(HAS_PROBLEM)))

    @property
    def result(self) -> Result | None:
        """Its result, None before its end."""
        match self.state:
            case SessionState.QUEUED | SessionState.RUNNING:
                return None
            case SessionState.SUCCEEDED:
                return Result.FAILED if self.has_problem else Result.SUCCEEDED
            case SessionState.FAILED | SessionState.CANNOT_RUN:
                return Result(self.state.value)
        return Result.CANCELLED

    @property
    def outcome(self) -> str:
        """The outcome: "discarded" if its changes were deleted, "problem found", or its result; "" before its end."""
        if self.discarded_at:
            return "discarded"
        return describe_outcome(self.state, self.result) if self.result else ""


@frozen
class TranscriptLine:
    """One line of a session's transcript.

    kind: "command", "output", "note", "error" or "exit"; of agents also "say" (what it told the operator), "thought",
    "tool" (a call it made), "ask" (a permission it wants) and "reply" (what the operator told it).
    """

    number: int
    at: datetime
    kind: str
    text: str


# -- the queue


@frozen
class Waiting:
    """One entry of the operator's queue (SPEC 9.3)."""

    kind: str  # "change_set", "permission", "bubble", "candidate", "interrupted", "fact", "learning", "notification"
    id: str
    title: str
    since: datetime
    session_id: str | None = None
    text: str = ""
    """The whole text of a quote that would guide agents, "" for other entries."""

    hostile: str = ""
    """The objection of the content filter to `text`, "" for none."""


class PermissionAnswer(StrEnum):
    """A person's answer to a permission request (SPEC 9.3)."""

    ALLOW_ONCE = "allow-once"
    ALLOW_SESSION = "allow-session"
    DENY_ONCE = "deny-once"
    DENY_SESSION = "deny-session"

    @property
    def allows(self) -> bool:
        """Whether the answer allows the request."""
        return self in (PermissionAnswer.ALLOW_ONCE, PermissionAnswer.ALLOW_SESSION)

    @property
    def is_for_session(self) -> bool:
        """Whether the answer is valid for the rest of the session."""
        return self in (PermissionAnswer.ALLOW_SESSION, PermissionAnswer.DENY_SESSION)

    @property
    def words(self) -> str:
        """`denied`, `allowed for this session`."""
        return ("allowed" if self.allows else "denied") + (" for this session" if self.is_for_session else "")


@frozen
class PermissionRequest:
    """A request of a session that a person must decide on. `detail` is the exact command, diff or URL, and `reason`
    says why the session asks. `answer` is None while it waits. `withdrawn` means that the session ended before an
    answer."""

    id: str
    session_id: str
    agent: str
    workspace: str
    tool: str
    title: str
    detail: str
    reason: str
    asked_at: datetime
    answered_at: datetime | None = None
    answer: PermissionAnswer | None = None
    withdrawn: bool = False
    by: str = ""

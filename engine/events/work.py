"""Sessions, their calls and tools, and what they changed (SPEC 3.8, 3.9, 4.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQueued(Event):
    prediction_id: str
    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted(Event):
    prediction_id: str
    sandbox: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutput(Event):
    """New transcript lines; `last_line` is the number of the newest. Volatile: the transcript file is the record."""

    volatile: ClassVar[bool] = True
    last_line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    """`result` as `SessionView.result` has it."""

    prediction_id: str
    state: str
    summary: str
    cost: int
    result: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallBegan(Event):
    """A call of a model, or a turn of an agent, began. Volatile: the table of calls is the record."""

    volatile: ClassVar[bool] = True
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEnded(Event):
    """It ended: "done", "failed", "cancelled" or "interrupted"."""

    volatile: ClassVar[bool] = True
    session_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(Event):
    """A session wants something that a person must look at (SPEC 9.3)."""

    session_id: str
    tool: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswered(Event):
    """`answer` is a `PermissionAnswer`; `by` names the request whose answer for the session counted again."""

    session_id: str
    tool: str
    answer: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionWithdrawn(Event):
    """Its session ended before anybody answered."""

    session_id: str
    tool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRefused(Event):
    """A session (`subject`) was not let do something: by the content filter, its agent's policy, or the jail."""

    tool: str
    what: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetReady(Event):
    session_id: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetLanded(Event):
    """All of a change set was landed, or a part: `left` files of it still wait."""

    session_id: str
    files: int
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetBranched(Event):
    session_id: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetDiscarded(Event):
    """Thrown away, or, when `continued_in` names a session, part of that one's change set now."""

    session_id: str
    continued_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetNarrowed(Event):
    """Part of it is landed, in `files` files, and the rest was discarded."""

    session_id: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetCommented(Event):
    """Its comments changed; it has `comments` of them now."""

    session_id: str
    comments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingUndone(Event):
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationFailed(Event):
    """Healing was given up: `failing` tests stay red, after so many `attempts` and micro-dollars (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationHealed(Event):
    """What an agent broke, it mended: `failing` tests were red at its first attempt (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRepeated(Event):
    """A try to heal left exactly the same tests red as the one before (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOverlapped(Event):
    """What two sessions changed touches the same files; `conflicting` ones would not land after each other. `subject`
    is the change set that came later, `other` the one that waits already."""

    session_id: str
    agent: str
    other: str
    other_session_id: str
    files: tuple[str, ...]
    conflicting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentErred(Event):
    """A tool call of an agent's failed in a way that it cannot have meant, or its model or program did."""

    agent: str
    tool: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsUsed(Event):
    """The tool calls of a session in order, each as `tool` or `exec:program word`; at most 500."""

    agent: str
    calls: tuple[str, ...]

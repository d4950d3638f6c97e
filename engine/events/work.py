"""Sessions, their calls and tools, and what they changed (SPEC 3.8, 3.9, 4.9)."""

from __future__ import annotations

from typing import ClassVar

from engine.events.bus import Event, because, by, event, joined, money
from engine.model.sessions import outcome_in_words
from engine.model.text import count


@event
class SessionQueued(Event):
    topics: ClassVar = ("sessions", "tasks")
    prediction_id: str
    flow: str


@event
class SessionStarted(Event):
    topics: ClassVar = ("sessions", "tasks", "agents")
    prediction_id: str
    sandbox: str

    def sentence(self) -> str:
        return f"session {self.subject} started for {self.prediction_id}, sandbox {self.sandbox}"


@event
class SessionOutput(Event):
    """New transcript lines; `last_line` is the number of the newest. Volatile: the transcript file is the record."""

    volatile: ClassVar[bool] = True
    last_line: int
    text: str


@event
class SessionEnded(Event):
    """`result` as `SessionView.result` has it."""

    topics: ClassVar = ("sessions", "tasks", "agents", "costs", "changes", "place")

    prediction_id: str
    state: str
    summary: str
    cost: int
    result: str = ""

    def sentence(self) -> str:
        outcome = outcome_in_words(self.state, self.result).replace("_", " ")
        return f"session {self.subject}: {outcome}, {money(self.cost)}: {self.summary}"


@event
class ModelCallBegan(Event):
    """A call of a model, or a turn of an agent, began. Volatile: the table of calls is the record."""

    volatile: ClassVar[bool] = True
    session_id: str


@event
class ModelCallEnded(Event):
    """It ended: "done", "failed", "cancelled" or "interrupted"."""

    topics: ClassVar = ("sessions",)

    volatile: ClassVar[bool] = True
    session_id: str
    state: str


@event
class PermissionAsked(Event):
    """A session wants something that a person must look at (SPEC 9.3)."""

    topics: ClassVar = ("permissions", "agents")

    session_id: str
    tool: str
    title: str

    def sentence(self) -> str:
        return f"session {self.session_id} asks permission for {self.tool}: {self.title}"


@event
class PermissionAnswered(Event):
    """`answer` is a `PermissionAnswer`; `by` names the request whose answer for the session counted again."""

    topics: ClassVar = ("permissions", "agents")

    session_id: str
    tool: str
    answer: str
    by: str

    def sentence(self) -> str:
        verb, _, lasts = self.answer.partition("-")
        verb_past = "allowed" if verb == "allow" else "denied"
        span = "for the whole session" if lasts == "session" else "once"
        return f"{by(self.by)} {verb_past} {self.tool} in session {self.session_id} {span}"


@event
class PermissionWithdrawn(Event):
    """Its session ended before anybody answered."""

    topics: ClassVar = ("permissions", "agents")

    session_id: str
    tool: str
    reason: str

    def sentence(self) -> str:
        return f"request {self.subject} no longer needs an answer: {self.reason}"


@event
class ToolRefused(Event):
    """A session (`subject`) was not let do something: by the content filter, its agent's policy, or the jail."""

    tool: str
    what: str
    rule: str
    reason: str

    def sentence(self) -> str:
        return f"session {self.subject} may not use {self.tool} ({self.rule}): {self.reason}"


@event
class ChangeSetReady(Event):
    topics: ClassVar = ("changes", "sessions")
    session_id: str
    files: int

    def sentence(self) -> str:
        return f"changes {self.subject} wait: {count(self.files, 'file')}"


@event
class ChangeSetLanded(Event):
    """All of a change set was landed, in `files` files, or parts up to now: `left` files of it still wait."""

    topics: ClassVar = ("changes", "place")

    session_id: str
    files: int
    left: int = 0

    def sentence(self) -> str:
        return f"landed: {self.subject}, {count(self.files, 'file')}" + (f", {self.left} left" if self.left else "")


@event
class ChangeSetBranched(Event):
    """It was committed to a branch; where `landed` files of it had been landed, the rest."""

    topics: ClassVar = ("changes",)
    session_id: str
    branch: str
    landed: int = 0

    def sentence(self) -> str:
        return f"changes {self.subject} were committed to the branch {self.branch}"


@event
class ChangeSetDiscarded(Event):
    """Thrown away, or, when `continued_in` names a session, part of that one's change set now."""

    topics: ClassVar = ("changes",)

    session_id: str
    continued_in: str = ""

    def sentence(self) -> str:
        if self.continued_in:
            return f"changes {self.subject} continue in session {self.continued_in}"
        return f"changes {self.subject} were discarded"


@event
class ChangeSetNarrowed(Event):
    """Part of it is landed, in `files` files, and the rest was discarded."""

    topics: ClassVar = ("changes",)

    session_id: str
    files: int

    def sentence(self) -> str:
        return f"the rest of changes {self.subject} was discarded"


@event
class ChangeSetCommented(Event):
    """Its comments changed; it has `comments` of them now."""

    topics: ClassVar = ("changes",)

    session_id: str
    comments: int

    def sentence(self) -> str:
        return f"changes {self.subject} have {count(self.comments, 'comment')}"


@event
class LandingUndone(Event):
    """The last landing of a change set was undone; `left` earlier ones, of parts, still stand."""

    topics: ClassVar = ("changes", "place", "phase")
    session_id: str
    left: int = 0

    def sentence(self) -> str:
        return f"landing undone: {self.subject}" + (f", {count(self.left, 'part')} still landed" if self.left else "")


@event
class ValidationFailed(Event):
    """Healing was given up: `failing` tests stay red, after so many `attempts` and micro-dollars (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]
    reason: str

    def sentence(self) -> str:
        spent = f"{count(self.attempts, 'attempt')} and {money(self.cost)}"
        return f"{self.agent} gave up on {_failing(self.failing)} after {spent}{because(self.reason)}"


@event
class ValidationHealed(Event):
    """What an agent broke, it mended: `failing` tests were red at its first attempt (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]

    def sentence(self) -> str:
        spent = f"{count(self.attempts, 'attempt')} and {money(self.cost)}"
        return f"{self.agent} fixed {_failing(self.failing)} after {spent}"


@event
class RetryRepeated(Event):
    """A try to heal left exactly the same tests red as the one before (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.agent} tried again, and the same tests failed: {joined(self.failing)}"


@event
class WorkOverlapped(Event):
    """What two sessions changed touches the same files; `conflicting` ones would not land after each other. `subject`
    is the change set that came later, `other` the one that waits already."""

    session_id: str
    agent: str
    other: str
    other_session_id: str
    files: tuple[str, ...]
    conflicting: tuple[str, ...] = ()

    def sentence(self) -> str:
        overlap = f"changes {self.subject} and {self.other} touch the same files: {joined(self.files)}"
        return f"{overlap}; {count(len(self.conflicting), 'file')} in conflict" if self.conflicting else overlap


@event
class AgentErred(Event):
    """A tool call of an agent's failed in a way that it cannot have meant, or its model or program did."""

    agent: str
    tool: str
    message: str

    def sentence(self) -> str:
        return f"{self.agent} in session {self.subject}: {self.tool or 'the agent'} failed, {self.message}"


@event
class ToolsUsed(Event):
    """The tool calls of a session in order, each as `tool` or `exec:program word`; at most 500."""

    agent: str
    calls: tuple[str, ...]

    def sentence(self) -> str:
        return (
            f"{self.agent} made {count(len(self.calls), 'tool call')} in session {self.subject}: {joined(self.calls)}"
        )


def _failing(tests: tuple[str, ...]) -> str:
    return f"{count(len(tests), 'failing test')} ({joined(tests)})" if tests else "failing tests"

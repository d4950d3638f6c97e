"""Sessions, their calls and tools, and what they changed (SPEC 3.8, 3.9, 4.9)."""

from __future__ import annotations

from engine.events.bus import Event, because, by, joined, money
from engine.model.sessions import outcome_in_words
from engine.model.text import count


class SessionQueued(Event, topics="sessions tasks"):
    prediction_id: str
    flow: str


class SessionStarted(
    Event, topics="sessions tasks agents", says="session {subject} started for {prediction_id}, sandbox {sandbox}"
):
    prediction_id: str
    sandbox: str


class SessionOutput(Event, volatile=True):
    """New transcript lines; `last_line` is the number of the newest. Volatile: the transcript file is the record."""

    last_line: int
    text: str


class SessionEnded(Event, topics="sessions tasks agents costs changes place"):
    """`result` as `SessionView.result` has it."""

    prediction_id: str
    state: str
    summary: str
    cost: int
    result: str = ""

    def sentence(self) -> str:
        outcome = outcome_in_words(self.state, self.result).replace("_", " ")
        return f"session {self.subject}: {outcome}, {money(self.cost)}: {self.summary}"


class ModelCallBegan(Event, volatile=True):
    """A call of a model, or a turn of an agent, began. Volatile: the table of calls is the record."""

    session_id: str


class ModelCallEnded(Event, topics="sessions", volatile=True):
    """It ended: "done", "failed", "cancelled" or "interrupted"."""

    session_id: str
    state: str


class PermissionAsked(
    Event, topics="permissions agents", says="session {session_id} asks permission for {tool}: {title}"
):
    """A session wants something that a person must look at (SPEC 9.3)."""

    session_id: str
    tool: str
    title: str


class PermissionAnswered(Event, topics="permissions agents"):
    """`answer` is a `PermissionAnswer`; `by` names the request whose answer for the session counted again."""

    session_id: str
    tool: str
    answer: str
    by: str

    def sentence(self) -> str:
        verb, _, lasts = self.answer.partition("-")
        verb_past = "allowed" if verb == "allow" else "denied"
        span = "for the whole session" if lasts == "session" else "once"
        return f"{by(self.by)} {verb_past} {self.tool} in session {self.session_id} {span}"


class PermissionWithdrawn(
    Event, topics="permissions agents", says="request {subject} no longer needs an answer: {reason}"
):
    """Its session ended before anybody answered."""

    session_id: str
    tool: str
    reason: str


class ToolRefused(Event, says="session {subject} may not use {tool} ({rule}): {reason}"):
    """A session (`subject`) was not let do something: by the content filter, its agent's policy, or the jail."""

    tool: str
    what: str
    rule: str
    reason: str


class ChangeSetReady(Event, topics="changes sessions", says="changes {subject} wait: {files:count file}"):
    session_id: str
    files: int


class ChangeSetLanded(Event, topics="changes place"):
    """All of a change set was landed, in `files` files, or parts up to now: `left` files of it still wait."""

    session_id: str
    files: int
    left: int = 0

    def sentence(self) -> str:
        return f"landed: {self.subject}, {count(self.files, 'file')}" + (f", {self.left} left" if self.left else "")


class ChangeSetBranched(Event, topics="changes", says="changes {subject} were committed to the branch {branch}"):
    """It was committed to a branch; where `landed` files of it had been landed, the rest."""

    session_id: str
    branch: str
    landed: int = 0


class ChangeSetDiscarded(Event, topics="changes"):
    """Thrown away, or, when `continued_in` names a session, part of that one's change set now."""

    session_id: str
    continued_in: str = ""

    def sentence(self) -> str:
        if self.continued_in:
            return f"changes {self.subject} continue in session {self.continued_in}"
        return f"changes {self.subject} were discarded"


class ChangeSetNarrowed(Event, topics="changes", says="the rest of changes {subject} was discarded"):
    """Part of it is landed, in `files` files, and the rest was discarded."""

    session_id: str
    files: int


class ChangeSetCommented(Event, topics="changes", says="changes {subject} have {comments:count comment}"):
    """Its comments changed; it has `comments` of them now."""

    session_id: str
    comments: int


class LandingUndone(Event, topics="changes place phase"):
    """The last landing of a change set was undone; `left` earlier ones, of parts, still stand."""

    session_id: str
    left: int = 0

    def sentence(self) -> str:
        return f"landing undone: {self.subject}" + (f", {count(self.left, 'part')} still landed" if self.left else "")


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


class ValidationHealed(Event):
    """What an agent broke, it mended: `failing` tests were red at its first attempt (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]

    def sentence(self) -> str:
        spent = f"{count(self.attempts, 'attempt')} and {money(self.cost)}"
        return f"{self.agent} fixed {_failing(self.failing)} after {spent}"


class RetryRepeated(Event, says="{agent} tried again, and the same tests failed: {failing:joined}"):
    """A try to heal left exactly the same tests red as the one before (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]


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


class AgentErred(Event, says="{agent} in session {subject}: {tool:or the agent} failed, {message}"):
    """A tool call of an agent's failed in a way that it cannot have meant, or its model or program did."""

    agent: str
    tool: str
    message: str


class ToolsUsed(Event, says="{agent} made {calls:count tool call} in session {subject}: {calls:joined}"):
    """The tool calls of a session in order, each as `tool` or `exec:program word`; at most 500."""

    agent: str
    calls: tuple[str, ...]


def _failing(tests: tuple[str, ...]) -> str:
    return f"{count(len(tests), 'failing test')} ({joined(tests)})" if tests else "failing tests"

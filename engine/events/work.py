"""Events about cards and tasks, and about the sessions that run them (SPEC 2, 3.8, 3.9, 4.9)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.events import Event, list_names
from engine.model import Tier
from engine.model.rails import describe_decider
from engine.model.sessions import describe_outcome
from engine.wording import because, count, in_words, local_time, money

# -- cards


class CycleFinished(Event, topics="cards autonomy place"):
    """A prediction cycle ended. `seconds` is its wall time; `errors` has a message for each failed collector."""

    created: int
    withdrawn: int
    seconds: float
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"cards: {self.created} new, {self.withdrawn} withdrawn{because(*self.errors)}"


class AutonomousCycleFinished(Event):
    """A cycle that may start cards ended (SPEC 7.2). `acted` is the card that it started, "" for none. `blocked` and
    `kept` say for each other card why it was not started (`pred_…: gate: …`). `reason` says why the cycle ended
    early."""

    acted: str = ""
    blocked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str = ""
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        done = f"started {self.acted}" if self.acted else self.reason or "nothing may run by itself"
        holds = [f"{len(self.blocked)} blocked"] if self.blocked else []
        holds += [f"{count(len(self.kept), 'card')} left to you"] if self.kept else []
        return ", ".join([f"autonomous cycle: {done}", *holds]) + because(*self.errors)


class PredictionCreated(Event, topics="cards"):
    """A card is pending. `tier` is 1 to 4 (SPEC 2.11). `stated` is False if its confidence is that of a cold start."""

    flow: str
    channel: str
    confidence: float
    source: str
    tier: int = 3
    stated: bool = False

    def sentence(self) -> str:
        sure = f"{self.confidence:.0%}, " if self.stated else ""
        return f"card {self.subject}: {self.flow or 'a prompt'} on {self.channel}, {sure}{Tier(self.tier).word}"


class PredictionConfirmed(Event, topics="cards phase"):
    """A card was approved; `edited` if its prompt was changed before."""

    decided_by: str
    edited: bool = False

    def sentence(self) -> str:
        return f"approved by {describe_decider(self.decided_by)}: {self.subject}"


class PredictionRejected(Event, topics="cards phase"):
    """A card was dismissed."""

    decided_by: str

    def sentence(self) -> str:
        return f"dismissed by {describe_decider(self.decided_by)}: {self.subject}"


class DismissalExplained(Event, topics="cards phase"):
    """The operator gave a reason for dismissing a card: a `DismissReason`."""

    reason: str


class MuteLifted(Event, topics="cards"):
    """A subject that dismissals had muted may appear again. `card_kind` is the kind of its cards, `title` its title."""

    card_kind: str
    title: str = ""

    def sentence(self) -> str:
        return f"unmuted: cards “{self.title or self.card_kind}” ({self.subject})"


class PredictionSnoozed(Event, topics="cards"):
    """A card is not shown before `until`, an instant in ISO format."""

    until: str

    def sentence(self) -> str:
        return f"snoozed until {local_time(self.until)}: {self.subject}"


class PredictionExpired(Event, topics="cards"):
    """The time of a card is over, or, if `withdrawn`, its evidence is gone."""

    withdrawn: bool
    reason: str

    def sentence(self) -> str:
        return f"{'withdrawn' if self.withdrawn else 'expired'}: {self.subject}, {self.reason}"


class PredictionReopened(Event, topics="cards phase"):
    """A decision was undone; `was` is the status that the card had."""

    was: str

    template = "pending again: {subject}"


class PredictionReassigned(Event, topics="cards"):
    """Another model or agent, `served`, would now carry out a pending card. If it is "", none can, and `note` says
    why."""

    served: str
    note: str

    def sentence(self) -> str:
        if self.served:
            return f"card {self.subject} would run on {self.served}"
        return f"nothing can run card {self.subject}{because(self.note)}"


class PredictionExecuted(Event, topics="cards phase"):
    """The session of a card ended. `outcome` is a `model.cards.Outcome`."""

    outcome: str

    def sentence(self) -> str:
        return f"finished: {self.subject}, {in_words(self.outcome)}"


# -- tasks


class TaskAdded(Event, topics="tasks"):
    """A task was put on the board."""

    title: str

    template = "task {subject}: {title}"


class TaskChanged(Event, topics="tasks"):
    """A task has another `state`, as in `engine.model.Task`."""

    state: str

    template = "task {subject}: {state}"


# -- sessions


class SessionQueued(Event, topics="sessions tasks"):
    """A session waits to start; `flow` is "" for a text prompt."""

    prediction_id: str
    flow: str


class SessionStarted(Event, topics="sessions tasks agents"):
    """A session started. `sandbox` is the name of the sandbox that it runs in."""

    prediction_id: str
    sandbox: str

    template = "session {subject} started for {prediction_id}, sandbox {sandbox}"


class SessionOutput(Event, volatile=True):
    """New transcript lines; `last_line` is the number of the newest. Volatile: the transcript file is the record."""

    last_line: int
    text: str


class SessionEnded(Event, topics="sessions tasks agents costs changes place"):
    """A session ended. `result` is as in `SessionView.result`."""

    prediction_id: str
    state: str
    summary: str
    cost: int
    result: str = ""

    def sentence(self) -> str:
        outcome = in_words(describe_outcome(self.state, self.result))
        return f"session {self.subject}: {outcome}, {money(self.cost)}: {self.summary}"


class ModelCallBegan(Event, volatile=True):
    """A call of a model, or a turn of an agent, began. Volatile: the table of calls is the record."""

    session_id: str


class ModelCallEnded(Event, topics="sessions", volatile=True):
    """A model call or turn ended. `state` is "done", "failed", "cancelled" or "interrupted"."""

    session_id: str
    state: str


class PermissionAsked(Event, topics="permissions agents"):
    """A session asks for a permission that a person must decide on (SPEC 9.3)."""

    session_id: str
    tool: str
    title: str

    template = "session {session_id} asks permission for {tool}: {title}"


class PermissionAnswered(Event, topics="permissions agents"):
    """A permission request was answered. `answer` is a `PermissionAnswer`. If an earlier answer for the whole session
    was used again, `by` is the id of that request."""

    session_id: str
    tool: str
    answer: str
    by: str

    def sentence(self) -> str:
        verb, _, lasts = self.answer.partition("-")
        verb_past = "allowed" if verb == "allow" else "denied"
        span = "for the whole session" if lasts == "session" else "once"
        return f"{describe_decider(self.by)} {verb_past} {self.tool} in session {self.session_id} {span}"


class PermissionWithdrawn(Event, topics="permissions agents"):
    """A permission request was withdrawn, because its session ended before anybody answered."""

    session_id: str
    tool: str
    reason: str

    template = "request {subject} no longer needs an answer: {reason}"


class ToolRefused(Event):
    """The content filter, the agent's policy or the sandbox refused a tool call of a session (`subject`). `what` is the
    command or file."""

    tool: str
    what: str
    rule: str
    reason: str

    template = "session {subject} may not use {tool} ({rule}): {reason}"


# -- changes


class ChangeSetReady(Event, topics="changes sessions"):
    """The changes of a session wait for the operator. Of the `files`, `refused` cannot be landed."""

    session_id: str
    files: int
    refused: int = 0

    def sentence(self) -> str:
        return f"changes {self.subject} wait: {count(self.files, 'file')}"


class ChangeSetLanded(Event, topics="changes place"):
    """A change set was landed: `files` files so far, and `left` files still wait."""

    session_id: str
    files: int
    left: int = 0

    def sentence(self) -> str:
        return f"landed: {self.subject}, {count(self.files, 'file')}" + (f", {self.left} left" if self.left else "")


class ChangeSetBranched(Event, topics="changes"):
    """A change set was committed to a branch. If `landed` of its files had been landed before, only the rest was
    committed."""

    session_id: str
    branch: str
    landed: int = 0

    template = "changes {subject} were committed to the branch {branch}"


class ChangeSetDiscarded(Event, topics="changes"):
    """A change set was discarded, or became a part of the change set of the session `continued_in`."""

    session_id: str
    continued_in: str = ""

    def sentence(self) -> str:
        if self.continued_in:
            return f"changes {self.subject} continue in session {self.continued_in}"
        return f"changes {self.subject} were discarded"


class ChangeSetNarrowed(Event, topics="changes"):
    """A part of a change set is landed, in `files` files, and the rest was discarded."""

    session_id: str
    files: int

    template = "the rest of changes {subject} was discarded"


class ChangeSetCommented(Event, topics="changes"):
    """The comments on a change set changed; it has `comments` comments now."""

    session_id: str
    comments: int


class LandingUndone(Event, topics="changes place phase"):
    """The last landing of a change set was undone. `left` earlier landings of its parts are still in the working
    tree."""

    session_id: str
    left: int = 0

    def sentence(self) -> str:
        return f"landing undone: {self.subject}" + (f", {count(self.left, 'part')} still landed" if self.left else "")


# -- tests, overlaps, errors and tools


class ValidationFailed(Event):
    """An agent gave up on the `failing` tests, after `attempts` attempts and a `cost` in micro-dollars (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]
    reason: str

    def sentence(self) -> str:
        spent = f"{count(self.attempts, 'attempt')} and {money(self.cost)}"
        return f"{self.agent} gave up on {_failing(self.failing)} after {spent}{because(self.reason)}"


class ValidationHealed(Event):
    """An agent fixed the tests that were `failing` after its first attempt (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]

    def sentence(self) -> str:
        spent = f"{count(self.attempts, 'attempt')} and {money(self.cost)}"
        return f"{self.agent} fixed {_failing(self.failing)} after {spent}"


class RetryRepeated(Event):
    """After another attempt exactly the same tests fail as before it (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]

    def sentence(self) -> str:
        return f"{self.agent} tried again, and the same tests failed: {list_names(self.failing)}"


class WorkOverlapped(Event):
    """Two sessions changed the same `files`. Of each of the `conflicting` files only one version can land. `subject` is
    the later change set, `other` the one that waited already."""

    session_id: str
    agent: str
    other: str
    other_session_id: str
    files: tuple[str, ...]
    conflicting: tuple[str, ...] = ()

    def sentence(self) -> str:
        overlap = f"changes {self.subject} and {self.other} touch the same files: {list_names(self.files)}"
        return f"{overlap}; {count(len(self.conflicting), 'file')} in conflict" if self.conflicting else overlap


class AgentErred(Event):
    """A tool call of an agent failed by mistake, or its model or program failed."""

    agent: str
    tool: str
    message: str

    def sentence(self) -> str:
        return f"{self.agent} in session {self.subject}: {self.tool or 'the agent'} failed, {self.message}"


class ToolsUsed(Event):
    """The tool calls of a session were recorded, in order, each as `tool` or `exec:program word`; at most 500."""

    agent: str
    calls: tuple[str, ...]


_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
"""Matches a word of a command that may be recorded: paths and options are none, and it is too short for a secret."""


def name_command(programs: Sequence[str]) -> str:
    """A command as a tool call for `ToolsUsed`, such as `exec:git status`. `programs` are the commands that it runs.
    Words that are no plain names are left out: paths, options, possible secrets."""
    parts = programs[0].split() if programs else []
    if not parts:
        return "exec"
    program = re.sub(r"(?<=^python)[\d.]+$", "", parts[0].rsplit("/", 1)[-1])
    if not _PLAIN_NAME.fullmatch(program.replace(".", "")):
        return "exec"
    second = parts[1] if len(parts) > 1 and _PLAIN_NAME.fullmatch(parts[1]) else ""
    return f"exec:{program} {second}".rstrip()


def _failing(tests: tuple[str, ...]) -> str:
    return f"{count(len(tests), 'failing test')} ({list_names(tests)})" if tests else "failing tests"

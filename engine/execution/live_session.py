"""One running session, as its runner works with it, and as others watch it, stop it and reply to it (SPEC 3.4, 3.8).

`Sessions` makes a `LiveSession` and starts its thread. The runner runs `commands`, writes the transcript and spends the
budget through it. A stop comes from another thread. The next call of the runner then raises `SessionStopped`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from engine.execution.processes import Processes
from engine.execution.runners import CommandResult, SessionStopped
from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.session_commands import Command, Echo, SessionCommands
from engine.execution.session_limits import Limits, SessionBudget, SessionRails, SessionStop, Stopwatch
from engine.execution.transcripts import ToolJournal, TranscriptWriter
from engine.model import Assignment
from engine.redaction import redact
from engine.storage.database import Transaction
from engine.text import sanitise


class LiveSession:
    """A running session. Its own thread works with it, and any thread may read and stop it."""

    def __init__(
        self,
        assignment: Assignment,
        processes: Processes,
        *,
        limits: Limits,
        stopwatch: Stopwatch,
        transcript: TranscriptWriter,
        sandbox: Sandbox,
        confinement: Confinement,
        rails: SessionRails,
    ) -> None:
        """The folders of `confinement` exist already."""
        self.id = processes.session_id
        self.assignment = assignment
        self.processes = processes
        self.transcript = transcript
        self.budget = SessionBudget(limits, assignment.channel, partial(rails.reserve, self.id))
        self.commands = SessionCommands(
            processes,
            sandbox,
            confinement,
            check=rails.check,
            secrets=rails.secrets,
            append=self._append,
            check_running=self.check_running,
        )
        self.journal = ToolJournal(rails.secrets)
        self.replies = Replies()
        self.stop_requested: SessionStop | None = None
        """The request to end it, or None."""
        self.unfinished_write: Callable[[Transaction], str] | None = None
        """Stores its changes in its last transaction, although it is stopped before its end; None if there are none."""
        self.work_allowed_once = False
        """Whether the operator allowed its work once, which the content filter blocks."""
        self._rails = rails
        self._stopwatch = stopwatch
        self._lock = threading.Lock()
        self._on_stop: list[Callable[[], None]] = []

    # -- for its runner

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of its commands."""
        return self.commands.sandbox

    @property
    def confinement(self) -> Confinement:
        """The places that its commands may touch."""
        return self.commands.confinement

    @property
    def scratch(self) -> Path:
        """A folder of the session, deleted with it; its commands write there too."""
        return self.confinement.files

    @property
    def folder(self) -> Path:
        """The folder in which it works; the only place of the operator's that is writable in the sandbox."""
        return self.confinement.folder

    def execute(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, quiet: bool = False
    ) -> CommandResult:
        """Run one command of a flow; see `Job.run`."""
        return self.commands.run(Command(argv, cwd, env or {}), echo=Echo.NOTHING if quiet else Echo.ALL)

    def check_running(self) -> None:
        """Raise `SessionStopped` if the session was asked to end."""
        if self.stop_requested is not None:
            raise SessionStopped(self.stop_requested.reason)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Register a `callback` for the request to stop, for example to cancel a question. It is called once, from any
        thread; if the session is ending already, it is called now. It must be quick and must not raise."""
        with self._lock:
            if self.stop_requested is None:
                self._on_stop.append(callback)
                return
        callback()

    def pause_clock(self) -> AbstractContextManager[None]:
        """Pause the session's clock while it waits for a person. Meanwhile another session may run in its place."""
        return self._stopwatch.pause()

    def reserve_cost(self, max_cost: int) -> None:
        """Reserve `max_cost` micro-dollars before a call that may cost as much (SPEC 3.4). After the call `charge` must
        receive the real cost, even when it is 0.

        If a limit does not allow it, the session is stopped, and this raises `SessionStopped`.
        """
        self._end_for(self.budget.reserve(max_cost))

    def charge(self, amount: int, *, tokens: int = 0) -> None:
        """Count the cost of a model call, in micro-dollars. Raises `SessionStopped` when it passes a limit."""
        self._end_for(self.budget.charge(amount, tokens))

    def _end_for(self, stop: SessionStop | None) -> None:
        """Stop the session for this reason, if there is one. Raises `SessionStopped` if it is ending."""
        if stop is not None:
            self.stop(stop)
        self.check_running()

    # -- its transcript

    def remove_secrets(self, text: str) -> str:
        """`text` without secrets, to be stored, shown and sent to a model."""
        return redact(text, self._rails.secrets())

    def say(self, text: str, *, error: bool = False) -> None:
        """Put a note, or an error, into the transcript. Raises `SessionStopped` when the session is ending."""
        self.check_running()
        self.write("error" if error else "note", text)

    def write(self, kind: str, text: str) -> None:
        """Put lines of a `TranscriptLine` kind into the transcript, even while the session is ending."""
        self._append(kind, sanitise(text).split("\n"))

    def stream(self, kind: str, text: str) -> None:
        """Put the next piece of a text that streams in into the transcript, unless the session is ending."""
        self._stopwatch.note_activity()
        if self.stop_requested is None:
            self.transcript.stream(kind, text)

    def _append(self, kind: str, lines: list[str]) -> None:
        """Note activity, and put these clean lines into the transcript."""
        self._stopwatch.note_activity()
        if lines:
            self.transcript.append(kind, lines)

    # -- for those who watch and stop it

    def stop(self, stop: SessionStop) -> bool:
        """Request its end. True for the first request, which alone counts. The caller ends the processes."""
        with self._lock:
            if self.stop_requested is not None:
                return False
            self.stop_requested = stop
            callbacks, self._on_stop = self._on_stop, []
        self.transcript.end_stream()
        self.transcript.append("note", [f"stopped: {sanitise(stop.reason)}"])
        for callback in callbacks:
            callback()
        return True

    @property
    def is_waiting(self) -> bool:
        """True while it waits for a person."""
        return self._stopwatch.is_paused

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self._stopwatch.seconds

    def explain_exceeded_limit(self) -> str:
        """Why it exceeds one of its limits; "" when it does not."""
        return self.budget.limits.explain_exceeded_time(self._stopwatch) or self.budget.explain_excess()


class Replies:
    """The operator's replies to an agent while it runs (SPEC 9.4). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread = deque[str]()
        self._is_listening = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Accept replies, until the end of the block or `stop_listening`."""
        self._is_listening = True
        try:
            yield
        finally:
            self._is_listening = False

    def stop_listening(self) -> bool:
        """Accept no more replies. False when one is unread; then more are accepted."""
        with self._lock:
            self._is_listening = bool(self._unread)
            return not self._is_listening

    def send(self, text: str) -> bool:
        """Send a reply, which is not empty. False when no agent listens, or none does any more."""
        with self._lock:
            if self._is_listening:
                self._unread.append(text)
            return self._is_listening

    def take(self) -> str:
        """Take the next unread reply; "" for none."""
        with self._lock:
            return self._unread.popleft() if self._unread else ""

"""One session while it runs: its commands, its transcript, what it may spend, and how it is told to end (SPEC 3.8)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.clock import Clock
from engine.execution.channels import Limits
from engine.execution.processes import GroupClosed, Processes
from engine.execution.runners.flow import OUTPUT_KEPT, CommandBlocked, CommandResult, FlowUnable, Stopped
from engine.execution.sandbox import SESSION_MARK, Confinement, Sandbox, session_environment
from engine.execution.transcripts import LineSplitter, TranscriptWriter
from engine.git import Git, GitError
from engine.values import Assignment, RailVerdict, SessionState, Verdict, dollars, sanitise

TIMED_OUT = 124
"""The exit code of a command that its own timeout ended, as timeout(1) has it."""


class CommandCheck(Protocol):
    """The content filter of the safety pipeline (SPEC 3.5), asked before every command."""

    def __call__(self, command: str, cwd: str, /) -> RailVerdict: ...


@dataclass(frozen=True, slots=True)
class Stop:
    """That a session is to end, as what, and why."""

    state: SessionState
    reason: str


class LiveSession:
    """A running session. Its own thread works with it; any thread may look at it and stop it.

    `folders` are made before: scratch and caches of the confinement exist.
    """

    def __init__(
        self,
        *,
        session_id: str,
        assignment: Assignment,
        limits: Limits,
        clock: Clock,
        transcript: TranscriptWriter,
        sandbox: Sandbox,
        confinement: Confinement,
        check: CommandCheck,
    ) -> None:
        self.id = session_id
        self.assignment = assignment
        self.limits = limits
        self.transcript = transcript
        self.sandbox = sandbox
        self.processes = Processes(session_id)
        self.ended = threading.Event()
        self.tokens = 0
        self.cost = 0
        self._clock = clock
        self._confinement = confinement
        self._check = check
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._began = self._active = clock.monotonic()

    # What the work sees

    @property
    def scratch(self) -> Path:
        """A folder of the session's own, gone with it."""
        return self._confinement.scratch

    @property
    def folder(self) -> Path:
        """Where it works; the only place of the operator's that is writable in the sandbox."""
        return self._confinement.folder

    @property
    def cancelled(self) -> bool:
        """True once it is to end."""
        return self._stop is not None

    def confine(self, confinement: Confinement) -> None:
        """Work somewhere else from now on: in a worktree that was made for it."""
        self._confinement = confinement

    @property
    def confinement(self) -> Confinement:
        """What its commands may touch."""
        return self._confinement

    def say(self, text: str, *, error: bool = False) -> None:
        """Put a note into the transcript. Raises `Stopped` when the session is ending."""
        self.check_running()
        self.note(text, error=error)

    def note(self, text: str, *, error: bool = False) -> None:
        """The same, also while the session is ending."""
        self._active = self._clock.monotonic()
        self.transcript.append("error" if error else "note", sanitise(text).split("\n"))

    def charge(self, amount: int, *, tokens: int = 0) -> None:
        """Count what a model call cost, in micro-dollars. Past a limit the session is stopped, raising `Stopped`."""
        with self._lock:
            self.cost += amount
            self.tokens += tokens
            over = self._overspent()
        if over:
            self.stop(Stop(SessionState.FAILED, over))
        self.check_running()

    def check_running(self) -> None:
        """Raise `Stopped` when the session is to end."""
        if self._stop is not None:
            raise Stopped(self._stop.reason)

    def git(self, plain: Git) -> Git:
        """`plain` as git of this session: it ends with the session."""
        return SessionGit(plain.folder, plain.timeout, {**plain.environment, SESSION_MARK: self.id}, self)

    def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quiet: bool = False,
    ) -> CommandResult:
        """Run one command in the sandbox; see `Job.run`."""
        self.check_running()
        command = shlex.join(argv)
        self._allow(command, cwd)
        environment = session_environment(self._confinement, self.sandbox, self.id) | dict(env or {})
        if shutil.which(argv[0], path=environment.get("PATH")) is None and not (cwd / argv[0]).is_file():
            raise FlowUnable(f"`{argv[0]}` is not there", "install it, or put it on the PATH")
        if not quiet:
            where = "" if cwd == self.folder else f"   (in {cwd})"
            self._record("command", [sanitise(command.replace("\n", " ")) + where])
        tail = _Tail()
        splitter = LineSplitter()

        def take(lines: list[str]) -> None:
            self._active = self._clock.monotonic()
            tail.add(lines)
            if lines and not quiet:
                self.transcript.append("output", lines)

        try:
            finished = self.processes.run(
                self.sandbox.wrap(argv, self._confinement, cwd=cwd),
                cwd=cwd,
                env=environment,
                on_output=lambda chunk: take(splitter.feed(chunk)),
                timeout=timeout,
            )
        except GroupClosed:
            raise Stopped(self.id) from None
        except OSError as error:
            raise FlowUnable(f"`{command[:200]}` cannot be started: {error.strerror}") from error
        take(splitter.end())
        exit_code = TIMED_OUT if finished.timed_out else finished.exit_code
        if not quiet:
            ending = f"ended after its {timeout:g} s" if finished.timed_out else f"exit {exit_code}"
            self._record("exit", [f"{ending} · {finished.seconds:.1f} s"])
        self.check_running()
        return CommandResult(exit_code, tail.text(), finished.seconds, finished.timed_out)

    def _allow(self, command: str, cwd: Path) -> None:
        verdict = self._check(command, str(cwd))
        if verdict.verdict is not Verdict.ALLOW:
            raise CommandBlocked(f"`{command[:200]}` was not run: {verdict.reason}")

    def _record(self, kind: str, lines: list[str]) -> None:
        self._active = self._clock.monotonic()
        self.transcript.append(kind, lines)

    # What its keepers see

    @property
    def stop_requested(self) -> Stop | None:
        """Why and as what it is to end, or None."""
        return self._stop

    def stop(self, stop: Stop) -> bool:
        """Tell it to end; the first word counts. True when this was it. The processes are the caller's to end."""
        with self._lock:
            if self._stop is not None:
                return False
            self._stop = stop
        self.transcript.append("note", [f"stopped: {sanitise(stop.reason)}"])
        return True

    def over_limit(self) -> str:
        """Which limit it passed, in words; "" for none."""
        now = self._clock.monotonic()
        limits = self.limits
        if now - self._began >= limits.seconds:
            return f"it ran for {_span(limits.seconds)}, the most it may"
        if limits.silence_seconds is not None and now - self._active >= limits.silence_seconds:
            return f"it printed nothing for {_span(limits.silence_seconds)}"
        with self._lock:
            return self._overspent()

    def _overspent(self) -> str:
        if self.cost > self.limits.cost:
            return f"it spent ${dollars(self.cost):.2f} of ${dollars(self.limits.cost):.2f}"
        if self.limits.tokens is not None and self.tokens > self.limits.tokens:
            return f"it used {self.tokens:,} of {self.limits.tokens:,} tokens"
        return ""

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock.monotonic() - self._began


@dataclass(frozen=True, slots=True)
class SessionGit(Git):
    """git on behalf of a session: marked, so that it ends with the session, and refusing to begin after its end."""

    session: LiveSession | None = None

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """As `Git.run`. Raises `Stopped` when the session is ending, also out of a git that was ended with it."""
        assert self.session is not None
        self.session.check_running()
        try:
            return Git.run(self, *arguments, stdin=stdin, environment=environment, allowed=allowed, timeout=timeout)
        except GitError:
            self.session.check_running()
            raise


class _Tail:
    """The end of what a command printed, at most `OUTPUT_KEPT` characters and a line."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, lines: list[str]) -> None:
        self._lines.extend(lines)
        self._size += sum(map(len, lines)) + len(lines)
        while self._size > OUTPUT_KEPT and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"

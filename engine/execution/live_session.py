"""One session while it runs: its commands, its transcript, what it may spend, and how it is told to end (SPEC 3.8)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue

from engine.clock import Clock
from engine.execution.channels import Limits
from engine.execution.journal import Journal
from engine.execution.processes import GroupClosed, Processes
from engine.execution.runners.flow import (
    MAX_OUTPUT_CHARACTERS,
    CannotRun,
    CommandBlocked,
    CommandResult,
    SessionStopped,
)
from engine.execution.runners.toolchains.missing_tools import MissingItem, missing_fix
from engine.execution.sandbox import Confinement, HostGate, Sandbox, session_environment
from engine.execution.session_clock import SessionClock
from engine.execution.transcripts import LineSplitter, Tail, TranscriptWriter
from engine.frozen import frozen
from engine.git import Git
from engine.model import Assignment, Permit, RailVerdict, SessionState, Verdict, dollars, sanitise
from engine.model.secrets import Redactor, redact
from engine.model.text import seconds_in_words
from engine.storage.database import Transaction

TIMED_OUT = 124
"""The exit code of a command that its own timeout ended, as timeout(1) has it."""


@frozen
class SessionRails:
    """The safety rails, as sessions ask them.

    `consume` uses a permit up for what has a digest, or raises `Refusal` (SPEC 3.1). `stop_signal`: the kill switch.
    `check` is the content filter's word on a shell command in a folder (SPEC 3.5). `reserve` has the cost ledger (SPEC
    3.4) reserve a total of micro-dollars for the whole session, instead of what was reserved for it; it returns "" when
    the caps let it, else which one does not, in words. `last_write`: when someone else's process last wrote in a
    workspace, None if nothing is known of any. `unattended`: why nothing may begin by itself in a workspace now, ""
    when it may (SPEC 7). `secrets`: values that leave a session nowhere, besides what looks like one (SPEC 11.1).
    `sandbox`: where sessions work, None for the best rung of this machine.
    """

    consume: Callable[[Transaction, Permit, str], None]
    stop_signal: Callable[[], str]
    check: Callable[[str, Path], RailVerdict]
    reserve: Callable[[str, int], str] = lambda session_id, total: ""
    last_write: Callable[[str], datetime | None] = lambda workspace: None
    unattended: Callable[[str], str] = lambda workspace: ""
    secrets: Callable[[], Iterable[str]] = tuple
    sandbox: Sandbox | None = None


@frozen
class Stop:
    """A request to end a session: in which state, and why."""

    state: SessionState
    reason: str
    not_begun: bool = False
    """Nothing was done: its card is given back."""


class LiveSession:
    """A running session. Its own thread works with it; any thread may look at it and stop it.

    `folders` are made before: scratch and caches of the confinement exist.
    """

    def __init__(
        self,
        assignment: Assignment,
        processes: Processes,
        *,
        limits: Limits,
        clock: Clock,
        transcript: TranscriptWriter,
        sandbox: Sandbox,
        confinement: Confinement,
        rails: SessionRails,
    ) -> None:
        self.id = processes.session_id
        self.assignment = assignment
        self.limits = limits
        self.transcript = transcript
        self.sandbox = sandbox
        self.processes = processes
        self.ended = threading.Event()
        self.tokens = 0
        self.cost = 0
        self.journal = Journal(rails.secrets)
        self.replies: SimpleQueue[str] = SimpleQueue()
        """What the operator told it while it runs (SPEC 9.4), in order."""
        self.converses = False
        """Set by a runner that reads `replies`."""
        self.unfinished_write: Callable[[Transaction], str] | None = None
        """What goes into its last transaction when it does not come to its end: what it had changed until then."""
        self._rails = rails
        self._confinement = confinement
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._on_stop: list[Callable[[], None]] = []
        self._reserved = 0
        self._clock = SessionClock(clock)
        self.on_waiting: Callable[[], None] = lambda: None
        """Called, from its own thread, when it begins to wait for a person."""

    # What the work sees

    @property
    def scratch(self) -> Path:
        """A folder of the session's own, gone with it; its commands write there too."""
        return self._confinement.files

    @property
    def folder(self) -> Path:
        """Where it works; the only place of the operator's that is writable in the sandbox."""
        return self._confinement.folder

    def without_secrets(self, text: str) -> str:
        """`text` as it may be stored, shown and sent to a model."""
        return redact(text, self._rails.secrets())

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
        """Put a note into the transcript. Raises `SessionStopped` when the session is ending."""
        self.check_running()
        self.note(text, error=error)

    def note(self, text: str, *, error: bool = False) -> None:
        """The same, also while the session is ending."""
        self._clock.touch()
        self.transcript.append("error" if error else "note", sanitise(text).split("\n"))

    def write(self, kind: str, text: str) -> None:
        """Put lines of a `TranscriptLine` kind into the transcript; they count as a sign of life."""
        self._record(kind, sanitise(text).split("\n"))

    def waiting(self) -> AbstractContextManager[None]:
        """While a person is asked: the clock of this session is paused, because the person's time is not its own, and
        another session may run in its place, because one question must not hold up everything else."""
        return self._clock.paused(self.on_waiting)

    @property
    def asking(self) -> bool:
        """True while it waits for a person."""
        return self._clock.asking

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the session is told to end, from any thread, at once if it was already:
        cancel a request, answer a question. It must be quick and must not raise."""
        with self._lock:
            if self._stop is None:
                self._on_stop.append(callback)
                return
        callback()

    def afford(self, max_cost: int) -> None:
        """Reserve `max_cost` micro-dollars before a call that may cost as much (SPEC 3.4). When the session's own limit
        or a cap does not allow it, stop the session and raise `SessionStopped`. `charge` then receives the real cost,
        also when it is nothing."""
        with self._lock:
            total = self.cost + max_cost
        if total > self.limits.cost:
            message = f"the next call may cost ${dollars(max_cost):.2f}; it spent ${dollars(self.cost):.2f}"
            refusal = f"{message} of ${dollars(self.limits.cost):.2f}"
        else:
            refusal = self._rails.reserve(self.id, total)
        if refusal:
            self.stop(Stop(SessionState.FAILED, refusal))
        else:
            self._reserved = max_cost
        self.check_running()

    def charge(self, amount: int, *, tokens: int = 0) -> None:
        """Count the cost of a model call, in micro-dollars. Raises `SessionStopped` when it passes a limit."""
        with self._lock:
            self.cost += amount
            self.tokens += tokens
            self._reserved = 0
            exceeded = self._overspent()
        if exceeded:
            self.stop(Stop(SessionState.FAILED, exceeded))
        self.check_running()

    @property
    def cost_at_most(self) -> int:
        """What it spent, and what a call may come to that nobody told the price of yet: both are reserved."""
        with self._lock:
            return self.cost + self._reserved

    def tell(self, text: str) -> bool:
        """Have the agent hear what the operator says; False when nobody in it listens (any more)."""
        with self._lock:
            if self.converses:
                self.replies.put(text)
            return self.converses

    def hang_up(self) -> bool:
        """The agent listens no more; False when there is something that it has not heard yet: then it still does."""
        with self._lock:
            self.converses = not self.replies.empty()
            return not self.converses

    def check_running(self) -> None:
        """Raise `SessionStopped` when the session is to end."""
        if self._stop is not None:
            raise SessionStopped(self._stop.reason)

    def git(self, plain: Git) -> Git:
        """`plain` as git of this session: it ends with the session."""
        environment = {**plain.environment, **self.processes.environment_mark()}
        return replace(plain, environment=environment, check=self.check_running)

    def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quiet: bool = False,
        confinement: Confinement | None = None,
        listen: Callable[[list[str]], None] = lambda lines: None,
        cancel: threading.Event | None = None,
        cleared: bool = False,
        announced: bool = False,
    ) -> CommandResult:
        """Run one command in the sandbox; see `Job.run`. `confinement` is another than the session's; `listen` gets
        the lines that it prints as they come; when `cancel` is set this command alone is ended, as by its timeout.
        `cleared`: a person approved what the content filter asks about (a `block` stands); `announced`: the transcript
        has its line already. What is secret in its output is cut out before anybody sees it."""
        confinement = confinement or self._confinement
        environment = self._admit(argv, cwd, env, confinement, quiet=quiet or announced, cleared=cleared)
        tail = Tail(MAX_OUTPUT_CHARACTERS)
        splitter = LineSplitter(Redactor(self._rails.secrets))

        def receive(lines: list[str]) -> None:
            self._clock.touch()
            listen(lines)
            tail.add(lines)
            if lines and not quiet:
                self.transcript.append("output", lines)

        refused_hosts: list[str] = []

        def note_refusal(message: str) -> None:
            self.note(message)
            refused_hosts.append(message)

        try:
            with self._gated(confinement, note_refusal) as gated:
                finished = self.processes.run(
                    self.sandbox.wrap(argv, gated, cwd=cwd),
                    cwd=cwd,
                    env=environment,
                    on_output=lambda chunk: receive(splitter.feed(chunk)),
                    timeout=timeout,
                    cancel=cancel,
                )
        except GroupClosed:
            raise SessionStopped(self.id) from None
        except OSError as error:
            raise _cannot_start(argv, error) from error
        receive(splitter.end())
        tail.add(list(refused_hosts))  # who ran the command learns which host it did not reach
        exit_code = TIMED_OUT if finished.timed_out else finished.exit_code
        if not quiet:
            ending = f"exit {exit_code}"
            if finished.timed_out:
                ending = "ended" if cancel is not None and cancel.is_set() else f"ended after its {timeout:g} s"
            self._record("exit", [f"{ending} · {seconds_in_words(finished.seconds)}"])
        self.check_running()
        return CommandResult(exit_code, tail.text(), finished.seconds, finished.timed_out)

    @contextmanager
    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
        confinement: Confinement | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command in the sandbox that is talked to while it runs: its pipes are the caller's, it ends with the
        block. The caller does not wait for it (see `Processes.start`). It comes from the settings: what the content
        filter asks about, the operator approved there. Raises as `execute`."""
        confinement = confinement or self._confinement
        environment = self._admit(argv, cwd, env, confinement, quiet=quiet, cleared=True)
        with self._gated(confinement, self.note) as gated:
            try:
                process = self.processes.start(self.sandbox.wrap(argv, gated, cwd=cwd), cwd=cwd, env=environment)
            except GroupClosed:
                raise SessionStopped(self.id) from None
            except OSError as error:
                raise _cannot_start(argv, error) from error
            try:
                yield process
            finally:
                self.processes.finish(process)

    @contextmanager
    def _gated(self, confinement: Confinement, report: Callable[[str], None]) -> Iterator[Confinement]:
        """While a command runs that needs some hosts: the gate that leads to them, or to every public one where the
        workspace allows the network. In a sandbox that cannot hold anyone to a gate there is none."""
        if not (confinement.hosts or confinement.network) or not self.sandbox.can_filter_hosts:
            yield confinement
            return
        with HostGate(confinement.hosts, report=report, public=confinement.network) as gate:
            yield replace(confinement, gate=gate.path)

    def _admit(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str] | None,
        confinement: Confinement,
        *,
        quiet: bool,
        cleared: bool = False,
    ) -> dict[str, str]:
        """Let a command begin, or raise why not; returns its environment."""
        self.check_running()
        if confinement.is_ephemeral and not self.sandbox.can_overlay(confinement):
            raise CannotRun("this machine cannot put an overlay over your tree, so no command runs in it")
        command = shlex.join(argv)
        verdict = self.judge(command, cwd)
        if verdict.verdict is Verdict.BLOCK or (verdict.verdict is Verdict.ASK and not cleared):
            raise CommandBlocked(f"`{command[:200]}` was not run: {verdict.reason}")
        environment = session_environment(confinement, self.sandbox, self.id) | dict(env or {})
        if shutil.which(argv[0], path=environment.get("PATH")) is None and not _program_exists(
            cwd / argv[0], confinement
        ):
            missing = MissingItem("program", Path(argv[0]).name)
            raise CannotRun(missing.sentence, missing_fix(missing, ""))
        if not quiet:
            where = "" if cwd == self.folder else f"   (in {cwd})"
            self._record("command", [sanitise(command.replace("\n", " ")) + where])
        return environment

    def judge(self, command: str, cwd: Path) -> RailVerdict:
        """The content filter's word on a shell command (SPEC 3.5)."""
        return self._rails.check(command, cwd)

    def _record(self, kind: str, lines: list[str]) -> None:
        self._clock.touch()
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
            callbacks, self._on_stop = self._on_stop, []
        self.transcript.append("note", [f"stopped: {sanitise(stop.reason)}"])
        for callback in callbacks:
            callback()
        return True

    def exceeded_limit(self) -> str:
        """Which limit it passed, in words; "" for none."""
        if exceeded := self._clock.exceeded(self.limits):
            return exceeded
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
        return self._clock.seconds


def _program_exists(program: Path, confinement: Confinement) -> bool:
    """Whether a program is there as the session sees it."""
    for inside, source in confinement.bind_mounts:
        if program.is_relative_to(inside):
            return os.path.lexists(source / program.relative_to(inside))
    return program.is_file()


def _cannot_start(argv: Sequence[str], error: OSError) -> CannotRun:
    return CannotRun(f"`{shlex.join(argv)[:200]}` cannot be started: {error.strerror}")

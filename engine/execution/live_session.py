"""One running session, as its runner works with it, and as others watch and stop it (SPEC 3.8).

`Sessions` makes it and starts its thread. The runner runs commands, writes the transcript and spends the budget through
it. A stop comes from another thread. The next call of the runner then raises `SessionStopped`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from engine.clock import Clock
from engine.execution.processes import Processes, ProcessesClosed
from engine.execution.runners.flow import (
    MAX_OUTPUT_CHARS,
    CannotRun,
    CommandBlocked,
    CommandResult,
    SessionStopped,
)
from engine.execution.runners.toolchains.tool_table import MissingItem, find_usual_fix
from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.host_gate import HostGate
from engine.execution.sandbox.host_paths import make_session_environment
from engine.execution.session_terms import Limits, SessionRails, StopRequest, Stopwatch
from engine.execution.transcripts import MAX_PENDING, LineSplitter, Tail, ToolJournal, TranscriptWriter
from engine.git import Git
from engine.model import Assignment, RailVerdict, SessionState, Verdict, sanitise
from engine.model.secrets import Redactor, redact
from engine.model.text import money, seconds_in_words
from engine.storage.database import Transaction

TIMEOUT_EXIT_CODE = 124
"""The exit code of a command that its own timeout ended, as timeout(1) has it."""


class LiveSession:
    """A running session. Its own thread works with it, and any thread may read and stop it."""

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
        """The folders of `confinement` exist already."""
        self.id = processes.session_id
        self.assignment = assignment
        self.limits = limits
        self.transcript = transcript
        self.sandbox = sandbox
        self.processes = processes
        self.ended = threading.Event()
        self.tokens = 0
        self.cost = 0
        self.journal = ToolJournal(rails.secrets)
        self.replies: SimpleQueue[str] = SimpleQueue()
        """The operator's replies while it runs (SPEC 9.4), in order."""
        self.is_listening = False
        """Set by a runner that reads `replies`."""
        self.unfinished_write: Callable[[Transaction], str] | None = None
        """Stores its changes in its last transaction when it is stopped before its end."""
        self.confinement = confinement
        """The places that its commands may touch from now on."""
        self.work_allowed_once = False
        """Whether the operator allowed once its work, which the content filter blocks."""
        self.commands_allowed_once: list[str] = []
        """The commands that may each run once, although the content filter blocks them."""
        self.stop_requested: StopRequest | None = None
        """The request to end it, or None."""
        self._rails = rails
        self._lock = threading.Lock()
        self._on_stop: list[Callable[[], None]] = []
        self._reserved = 0
        self._has_reserved = False  # until then it cannot have called a model
        self._stopwatch = Stopwatch(clock)
        self.on_waiting: Callable[[], None] = lambda: None
        """Called from its own thread when it starts to wait for a person."""

    # -- for its runner

    @property
    def scratch(self) -> Path:
        """A folder of the session, deleted with it; its commands write there too."""
        return self.confinement.files

    @property
    def folder(self) -> Path:
        """The folder in which it works; the only place of the operator's that is writable in the sandbox."""
        return self.confinement.folder

    def pause_clock(self) -> AbstractContextManager[None]:
        """Pause the session's clock while it waits for a person. Meanwhile another session may run in its place."""
        return self._stopwatch.pause(self.on_waiting)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Register a `callback` for the request to stop, for example to cancel a question. It is called once, from any
        thread; if the session is ending already, it is called now. It must be quick and must not raise."""
        with self._lock:
            if self.stop_requested is None:
                self._on_stop.append(callback)
                return
        callback()

    def reserve_cost(self, max_cost: int) -> None:
        """Reserve `max_cost` micro-dollars before a call that may cost as much (SPEC 3.4).

        If the session's own limit or a cap does not allow it, the session is stopped, and this raises `SessionStopped`.
        Before the first call nothing was done, so its card is offered again.
        After the call `charge` must receive the real cost, even when it is 0.
        """
        with self._lock:
            total = self.cost + max_cost
        if total > self.limits.cost:
            message = f"the next call may cost {money(max_cost)}; it spent {money(self.cost)}"
            command = f"clawpy config set channels.{self.assignment.channel}.sessionCostCap DOLLARS"
            refusal = f"{message} of {money(self.limits.cost)}; raise it: `{command}`"
        else:
            refusal = self._rails.reserve(self.id, total)
        if refusal:
            state = SessionState.FAILED if self._has_reserved else SessionState.CANNOT_RUN
            self.stop(StopRequest(state, refusal, not_begun=not self._has_reserved))
        else:
            with self._lock:
                self._reserved, self._has_reserved = max_cost, True
        self.check_running()

    def charge(self, amount: int, *, tokens: int = 0) -> None:
        """Count the cost of a model call, in micro-dollars. Raises `SessionStopped` when it passes a limit."""
        with self._lock:
            self.cost += amount
            self.tokens += tokens
            self._reserved = 0
            exceeded = self._find_exceeded_budget()
        if exceeded:
            self.stop(StopRequest(SessionState.FAILED, exceeded))
        self.check_running()

    def stop_listening(self) -> bool:
        """Stop listening to replies. False when there is an unread reply; then it goes on listening."""
        with self._lock:
            self.is_listening = not self.replies.empty()
            return not self.is_listening

    def check_running(self) -> None:
        """Raise `SessionStopped` if the session was asked to end."""
        if self.stop_requested is not None:
            raise SessionStopped(self.stop_requested.reason)

    # -- its transcript

    def remove_secrets(self, text: str) -> str:
        """`text` without secrets, to be stored, shown and sent to a model."""
        return redact(text, self._rails.secrets())

    def make_redactor(self) -> Redactor:
        """A redactor for a new stream of output."""
        return Redactor(self._rails.secrets)

    def say(self, text: str, *, error: bool = False) -> None:
        """Put a note into the transcript. Raises `SessionStopped` when the session is ending."""
        self.check_running()
        self.note(text, error=error)

    def note(self, text: str, *, error: bool = False) -> None:
        """Put a note into the transcript, even while the session is ending."""
        self.write("error" if error else "note", text)

    def write(self, kind: str, text: str) -> None:
        """Put lines of a `TranscriptLine` kind into the transcript. They count as activity."""
        self._stopwatch.note_activity()
        self.transcript.append(kind, sanitise(text).split("\n"))

    def stream(self, kind: str, text: str) -> None:
        """Put the next piece of a text that streams in into the transcript, unless the session is ending. It counts as
        activity."""
        self._stopwatch.note_activity()
        for begin in range(0, len(text), MAX_PENDING):  # in parts, so that a stop need not wait for a huge piece
            if self.stop_requested is None:
                self.transcript.stream(kind, text[begin : begin + MAX_PENDING])

    def note_output(self, lines: Sequence[str]) -> None:
        """Note activity, and put these clean lines of a command's output into the transcript."""
        self._stopwatch.note_activity()
        if lines:
            self.transcript.append("output", [*lines])

    # -- its commands

    @contextmanager
    def allow_hosts(self, hosts: Sequence[str]) -> Iterator[None]:
        """Let its commands reach `hosts` and the hosts of the workspace's settings, but no others. Raises `CannotRun`
        when the sandbox cannot filter hosts."""
        if message := self.sandbox.find_hosts_problem(hosts):
            raise CannotRun(message, self.sandbox.describe_way_out("run the command in a terminal"))
        previous = self.confinement
        allowed = tuple(dict.fromkeys((*previous.hosts, *hosts)))
        self.confinement = replace(previous, network=False, hosts=allowed)
        try:
            yield
        finally:
            self.confinement = replace(self.confinement, network=previous.network, hosts=previous.hosts)

    def bind_git(self, plain: Git) -> Git:
        """`plain`, bound to this session, so that its commands end with the session."""
        environment = {**plain.environment, **self.processes.mark_environment()}
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
        """Run one command in the sandbox; see `Job.run`. Secrets are removed from its output.

        Args:
            confinement: replaces the session's.
            listen: receives the output line by line.
            cancel: ends this command alone, like its timeout.
            cleared: whether a person approved what the content filter asks about. A `block` stands all the same.
            announced: whether the transcript has the command already.
        """
        confinement = confinement or self.confinement
        environment = self._prepare_command(argv, cwd, env, confinement, quiet=quiet or announced, cleared=cleared)
        output = _CommandOutput(self, listen, quiet=quiet)
        with self._open_gate(confinement, output.note_refused_host) as gated, self._start_errors(argv):
            finished = self.processes.run(
                self.sandbox.wrap(argv, gated, cwd=cwd),
                cwd=cwd,
                env=environment,
                on_output=output.receive,
                timeout=timeout,
                cancel=cancel,
            )
        text = output.end()
        exit_code = TIMEOUT_EXIT_CODE if finished.timed_out else finished.exit_code
        if not quiet:
            ending = f"exit {exit_code}"
            if finished.timed_out:
                ending = "ended" if cancel is not None and cancel.is_set() else f"ended after its {timeout:g} s"
            self.write("exit", f"{ending} · {seconds_in_words(finished.seconds)}")
        self.check_running()
        return CommandResult(exit_code, text, finished.seconds, finished.timed_out)

    @contextmanager
    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        confinement: Confinement,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command in the sandbox, whose pipes are the caller's. It ends with the block.

        The caller does not reap it (see `Processes.start`). The operator approved the command in the settings, so
        nobody is asked about it, but the content filter may block it. Raises as `execute`.
        """
        environment = self._prepare_command(argv, cwd, env, confinement, quiet=False, cleared=True)
        with self._open_gate(confinement, self.note) as gated:
            with self._start_errors(argv):
                process = self.processes.start(self.sandbox.wrap(argv, gated, cwd=cwd), cwd=cwd, env=environment)
            try:
                yield process
            finally:
                self.processes.finish(process)

    @contextmanager
    def _start_errors(self, argv: Sequence[str]) -> Iterator[None]:
        """Turn the errors of a command that cannot be started into `SessionStopped` or `CannotRun`."""
        try:
            yield
        except ProcessesClosed:
            raise SessionStopped(self.id) from None
        except OSError as error:
            raise CannotRun(f"`{shlex.join(argv)[:200]}` cannot be started: {error.strerror}") from error

    @contextmanager
    def _open_gate(self, confinement: Confinement, report: Callable[[str], None]) -> Iterator[Confinement]:
        """Open a gate to the hosts of a command, or to every public host if the workspace allows the network. A sandbox
        that cannot filter hosts has no gate."""
        if not (confinement.hosts or confinement.network) or not self.sandbox.can_filter_hosts:
            yield confinement
            return
        with closing(HostGate(confinement.hosts, report=report, public=confinement.network)) as gate:
            yield replace(confinement, gate=gate.path)

    def _prepare_command(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str] | None,
        confinement: Confinement,
        *,
        quiet: bool,
        cleared: bool,
    ) -> dict[str, str]:
        """Check that a command may start, and announce it. Returns its environment. Raises when it may not start."""
        self.check_running()
        if confinement.is_ephemeral and not self.sandbox.can_overlay(confinement):
            raise CannotRun("this machine cannot put an overlay over your tree, so no command runs in it")
        command = shlex.join(argv)
        verdict = self.check_command(command)
        if verdict.blocks and command in self.commands_allowed_once:
            self.commands_allowed_once.remove(command)
            self.write("note", f"allowed once: {verdict.reason}")
        elif verdict.blocks or (verdict.verdict is Verdict.ASK and not cleared):
            raise CommandBlocked(f"`{command[:200]}` was not run: {verdict.reason}")
        environment = make_session_environment(confinement, self.sandbox, self.id) | dict(env or {})
        if shutil.which(argv[0], path=environment.get("PATH")) is None and not _program_exists(
            cwd / argv[0], confinement
        ):
            missing = MissingItem("program", Path(argv[0]).name)
            raise CannotRun(missing.sentence, find_usual_fix(missing, ""))
        if not quiet:
            where = "" if cwd == self.folder else f"   (in {cwd})"
            self.write("command", command.replace("\n", " ") + where)
        return environment

    def check_command(self, command: str) -> RailVerdict:
        """The content filter's verdict on a shell command (SPEC 3.5)."""
        return self._rails.check(command)

    # -- for those who watch and stop it

    def stop(self, stop: StopRequest) -> bool:
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
    def max_cost(self) -> int:
        """Its cost so far, with the reservation of a call that is not charged yet."""
        with self._lock:
            return self.cost + self._reserved

    def send_reply(self, text: str) -> bool:
        """Send the operator's reply to the agent. False when no agent listens, or none does any more."""
        with self._lock:
            if self.is_listening:
                self.replies.put(text)
            return self.is_listening

    def find_exceeded_limit(self) -> str:
        """Why it exceeds one of its limits; "" when it does not."""
        with self._lock:
            over_budget = self._find_exceeded_budget()
        return self.limits.find_exceeded_time(self._stopwatch) or over_budget

    def _find_exceeded_budget(self) -> str:
        if self.cost > self.limits.cost:
            return f"it spent {money(self.cost)} of {money(self.limits.cost)}"
        if self.limits.tokens is not None and self.tokens > self.limits.tokens:
            return f"it used {self.tokens:,} of {self.limits.tokens:,} tokens"
        return ""

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self._stopwatch.seconds


class _CommandOutput:
    """Passes the output of one command to the transcript and to a listener, and keeps its end for the result."""

    def __init__(self, live: LiveSession, listen: Callable[[list[str]], None], *, quiet: bool) -> None:
        self._live = live
        self._listen = listen
        self._quiet = quiet
        self._tail = Tail(MAX_OUTPUT_CHARS)
        self._splitter = LineSplitter(live.make_redactor())
        self._refused_hosts: list[str] = []

    def receive(self, chunk: bytes) -> None:
        """Accept the next bytes of the output."""
        self._add(self._splitter.split(chunk))

    def note_refused_host(self, message: str) -> None:
        """Note a host that the command could not reach. The end of its result names the host."""
        self._live.note(message)
        self._refused_hosts.append(message)

    def end(self) -> str:
        """The end of the output, once it is complete."""
        self._add(self._splitter.end())
        self._tail.add(self._refused_hosts)
        return self._tail.text()

    def _add(self, lines: list[str]) -> None:
        self._live.note_output(() if self._quiet else lines)
        self._listen(lines)
        self._tail.add(lines)


def _program_exists(program: Path, confinement: Confinement) -> bool:
    """Whether a program exists inside the session."""
    for inside, source in confinement.bind_mounts:
        if program.is_relative_to(inside):
            return os.path.lexists(source / program.relative_to(inside))
    return program.is_file()

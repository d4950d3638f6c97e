"""Runs the commands of one session: lets the content filter judge each, confines it in the sandbox, and writes it with
its output into the transcript, without secrets (SPEC 3.5, 3.8, 11.1).

`LiveSession` has one `SessionCommands`. Flows, tools and coding agents run everything through it. It begins with
`make_initial_confinement`, and its confinement changes when the session's folder is opened.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field, replace
from enum import Enum, auto
from pathlib import Path

from engine.config.settings import Settings
from engine.execution.processes import FinishedCommand, Processes, ProcessesClosed
from engine.execution.runners import MAX_OUTPUT_CHARS, CannotRun, CommandBlocked, CommandResult, SessionStopped
from engine.execution.runners.toolchains import MissingItem, find_usual_fix
from engine.execution.sandbox import Confinement, Sandbox
from engine.execution.sandbox.host_gate import HostGate
from engine.execution.sandbox.host_paths import find_secret_places, link_tools, make_session_environment
from engine.execution.transcripts import LineSplitter
from engine.frozen import frozen
from engine.git import Git
from engine.home import Home
from engine.model import RailVerdict, Verdict
from engine.redaction import Redactor
from engine.text import sanitise
from engine.wording import seconds_in_words

TIMEOUT_EXIT_CODE = 124
"""The exit code of a command that its own timeout ended, as timeout(1) has it."""


@frozen
class Command:
    """A command to run."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the clean environment of the session."""
    confinement: Confinement | None = None
    """Replaces that of the session."""
    is_approved: bool = False
    """Whether a person approved what the content filter asks about. A `block` stands all the same."""

    @property
    def line(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.argv)


class Echo(Enum):
    """How much of a command stands in the transcript."""

    ALL = auto()
    OUTPUT = auto()
    """Its output and its end. The transcript has the command already."""
    NOTHING = auto()


class _Tail:
    """The end of a command's output: about `max_length` characters of whole lines."""

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, lines: list[str]) -> None:
        """Add the next lines."""
        self._lines.extend(lines)
        self._size += sum(map(len, lines)) + len(lines)
        while self._size > self._max_length and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        """The lines that are kept."""
        return "".join(f"{line}\n" for line in self._lines)


class SessionCommands:
    """The commands of one session. They may run in several threads at once."""

    def __init__(
        self,
        processes: Processes,
        sandbox: Sandbox,
        confinement: Confinement,
        *,
        check: Callable[[str], RailVerdict],
        secrets: Callable[[], Iterable[str]],
        append: Callable[[str, list[str]], None],
        check_running: Callable[[], None],
    ) -> None:
        """`check` returns the content filter's verdict on a shell command (SPEC 3.5), and `secrets` the values that are
        removed from output, besides those that look secret. `append` puts clean lines of a kind into the transcript; it
        is called without lines, too, to note activity. `check_running` raises `SessionStopped` if the session was asked
        to end."""
        self.sandbox = sandbox
        self.confinement = confinement
        """The places that commands may touch from now on; see `confine`."""
        self._processes = processes
        self.check = check
        self._secrets = secrets
        self._append = append
        self._check_running = check_running
        self._allowed_once: list[str] = []

    def confine(self, **changes: object) -> None:
        """Change fields of the confinement of later commands."""
        self.confinement = replace(self.confinement, **changes)  # type: ignore[arg-type]

    @contextmanager
    def allow_hosts(self, hosts: Sequence[str]) -> Iterator[None]:
        """Let commands reach `hosts` and the hosts of the workspace's settings, but no others. Raises `CannotRun` when
        the sandbox cannot filter hosts."""
        if message := self.sandbox.find_hosts_problem(hosts):
            raise CannotRun(message, self.sandbox.describe_way_out("run the command in a terminal"))
        previous = self.confinement
        self.confine(network=False, hosts=tuple(dict.fromkeys((*previous.hosts, *hosts))))
        try:
            yield
        finally:
            self.confine(network=previous.network, hosts=previous.hosts)

    def allow_once(self, lines: Sequence[str]) -> None:
        """Let each of these commands run once, although the content filter blocks it, in place of earlier ones."""
        self._allowed_once = [*lines]

    def bind_git(self, plain: Git) -> Git:
        """`plain`, bound to this session, so that its commands end with the session."""
        environment = {**plain.environment, **self._processes.mark_environment()}
        return replace(plain, environment=environment, check=self._check_running)

    def run(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        listen: Callable[[list[str]], None] = lambda lines: None,
        echo: Echo = Echo.ALL,
    ) -> CommandResult:
        """Run a command to its end. It is ended after `timeout` seconds, or when `cancel` is set. `listen` receives its
        output line by line, without secrets.

        Raises `CannotRun` if the program does not exist, `CommandBlocked` if the content filter blocks it, and
        `SessionStopped` when the session is ending.
        """
        confinement = command.confinement or self.confinement
        environment = self._prepare(command, confinement, echo)
        is_shown = echo is not Echo.NOTHING
        splitter, tail = LineSplitter(Redactor(self._secrets)), _Tail(MAX_OUTPUT_CHARS)
        refused_hosts: list[str] = []

        def add(lines: list[str]) -> None:
            self._append("output", lines if is_shown else [])
            listen(lines)
            tail.add(lines)

        def note_refused_host(message: str) -> None:
            self._note(message)
            refused_hosts.append(message)

        with self._open_gate(confinement, note_refused_host) as gated, self._explain_start(command):
            finished = self._processes.run(
                self.sandbox.wrap(command.argv, gated, cwd=command.cwd),
                cwd=command.cwd,
                env=environment,
                on_output=lambda chunk: add(splitter.split(chunk)),
                timeout=timeout,
                cancel=cancel,
            )
        add(splitter.end())
        tail.add(refused_hosts)  # the end of the result names the hosts that it could not reach
        if is_shown:
            self._append("exit", [_describe_end(finished, timeout, cancel)])
        self._check_running()
        exit_code = TIMEOUT_EXIT_CODE if finished.timed_out else finished.exit_code
        return CommandResult(exit_code, tail.text(), finished.seconds, finished.timed_out)

    @contextmanager
    def spawn(self, command: Command) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command whose pipes are the caller's. It ends with the block. Raises as `run`.

        The caller does not reap it (see `Processes.start`).
        """
        confinement = command.confinement or self.confinement
        environment = self._prepare(command, confinement, Echo.ALL)
        with self._open_gate(confinement, self._note) as gated:
            with self._explain_start(command):
                argv = self.sandbox.wrap(command.argv, gated, cwd=command.cwd)
                process = self._processes.start(argv, cwd=command.cwd, env=environment)
            try:
                yield process
            finally:
                self._processes.finish(process)

    def _prepare(self, command: Command, confinement: Confinement, echo: Echo) -> dict[str, str]:
        """Check that a command may start, and announce it. Returns its environment. Raises when it may not start."""
        self._check_running()
        if confinement.is_ephemeral and not self.sandbox.can_overlay(confinement):
            raise CannotRun("this machine cannot put an overlay over your tree, so no command runs in it")
        self._let_through_filter(command)
        environment = make_session_environment(confinement, self.sandbox, self._processes.session_id)
        environment |= command.env
        program = command.argv[0]
        is_on_path = shutil.which(program, path=environment.get("PATH")) is not None
        if not is_on_path and not _program_exists(command.cwd / program, confinement):
            missing = MissingItem("program", Path(program).name)
            raise CannotRun(missing.sentence, find_usual_fix(missing, ""))
        if echo is Echo.ALL:
            where = "" if command.cwd == self.confinement.folder else f"   (in {command.cwd})"
            self._append("command", sanitise(command.line.replace("\n", "; ") + where).split("\n"))
        return environment

    def _let_through_filter(self, command: Command) -> None:
        """Raise `CommandBlocked` unless the content filter lets a command run (SPEC 3.5), or the operator allowed it
        once."""
        verdict = self.check(command.line)
        if verdict.blocks and command.line in self._allowed_once:
            self._allowed_once.remove(command.line)
            self._note(f"allowed once: {verdict.reason}")
        elif verdict.blocks or (verdict.verdict is Verdict.ASK and not command.is_approved):
            raise CommandBlocked(f"`{command.line[:200]}` was not run: {verdict.reason}")

    def _note(self, message: str) -> None:
        self._append("note", sanitise(message).split("\n"))

    @contextmanager
    def _open_gate(self, confinement: Confinement, report: Callable[[str], None]) -> Iterator[Confinement]:
        """Open a gate to the hosts of a command, or to every public host if the workspace allows the network. A sandbox
        that cannot filter hosts has no gate."""
        if not (confinement.hosts or confinement.network) or not self.sandbox.can_filter_hosts:
            yield confinement
            return
        with closing(HostGate(confinement.hosts, report=report, public=confinement.network)) as gate:
            yield replace(confinement, gate=gate.path)

    @contextmanager
    def _explain_start(self, command: Command) -> Iterator[None]:
        """Turn the errors of a command that cannot be started into `SessionStopped` or `CannotRun`."""
        try:
            yield
        except ProcessesClosed:
            raise SessionStopped(self._processes.session_id) from None
        except OSError as error:
            raise CannotRun(f"`{command.line[:200]}` cannot be started: {error.strerror}") from error


def _describe_end(finished: FinishedCommand, timeout: float | None, cancel: threading.Event | None) -> str:
    """How a command ended, and after which time."""
    ending = f"exit {finished.exit_code}"
    if finished.timed_out:
        ending = "ended" if cancel is not None and cancel.is_set() else f"ended after its {timeout:g} s"
    return f"{ending} · {seconds_in_words(finished.seconds)}"


def _program_exists(program: Path, confinement: Confinement) -> bool:
    """Whether a program exists inside the session."""
    for inside, source in confinement.bind_mounts:
        if program.is_relative_to(inside):
            return os.path.lexists(source / program.relative_to(inside))
    return program.is_file()


def make_initial_confinement(scratch: Path, workspace: str, settings: Settings, home: Home) -> Confinement:
    """The confinement of a session before its folder is opened. It may read the operator's tree, and has folders of its
    own below `scratch`, which are made here. Raises OSError."""
    workspace_settings = settings.get_workspace(workspace)
    confinement = Confinement(
        folder=Path(workspace),
        scratch=scratch,
        caches=scratch / "caches",
        tree=Path(workspace),
        readable=tuple(Path(place).expanduser() for place in workspace_settings.readable),
        hidden=find_secret_places(home),
        network=workspace_settings.network,
        hosts=workspace_settings.hosts,
        variables=workspace_settings.environment,
    )
    confinement.make()
    link_tools(confinement.home)
    return confinement

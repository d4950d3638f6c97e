"""Runs the commands of a coding agent's terminals inside its session (SPEC 3.8).

`ClientRequests` creates a terminal when the agent asks for one and its command is allowed. A terminal ends with its
command, when the agent releases it, or with the session.
"""

from __future__ import annotations

import itertools
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.background import run_in_thread
from engine.execution.live_session import LiveSession
from engine.execution.runners.flow import FlowError, SessionStopped
from engine.execution.sandbox import SESSION_MARK, Confinement
from engine.model import Refusal, sanitise

MAX_OUTPUT_BYTES = 1024 * 1024
"""Maximum number of bytes that are kept of a terminal's output. An agent may ask for fewer."""

MAX_TERMINALS = 32
"""Maximum number of open terminals of a session. An agent may forget to release them."""

_RESERVED_VARIABLES = ("LD_", "DYLD_", SESSION_MARK)
"""The beginnings of variables that an agent may not set for commands."""


@dataclass(slots=True)
class Terminal:
    """One command and its output."""

    max_bytes: int
    """The number of bytes that are kept of the end of its output."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set to end the command."""
    ended: threading.Event = field(default_factory=threading.Event)
    exit_code: int | None = None
    """None while it runs, and if a signal ended it."""
    signal: str | None = None
    """The name of the signal that ended it."""
    truncated: bool = False
    """Whether output is missing."""
    _output: bytearray = field(default_factory=bytearray)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_output(self, lines: list[str]) -> None:
        """Add clean lines (see `LiveSession.execute`)."""
        with self._lock:
            self._output += "".join(f"{line}\n" for line in lines).encode(errors="replace")
            excess = len(self._output) - self.max_bytes
            if excess > 0:
                del self._output[:excess]
                self.truncated = True

    @property
    def output(self) -> str:
        """The end of its output."""
        with self._lock:
            return self._output.decode(errors="replace")


class Terminals:
    """The terminals of one conversation. Methods may be called from any thread."""

    def __init__(self, live: LiveSession, folder: Path, confinement: Confinement) -> None:
        self._live = live
        self._folder = folder
        self._confinement = confinement
        self._terminals: dict[str, Terminal] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def create(
        self, argv: Sequence[str], *, cwd: str | None, env: Mapping[str, str], max_bytes: int | None = None
    ) -> str:
        """Start a command that was allowed, and return the terminal's id. If it cannot be started, the reason goes into
        its output.

        Raises `Refusal` `too_many_terminals`, or `outside` for a folder beyond the session's.
        """
        folder = Path(cwd).resolve() if cwd else self._folder
        if not folder.is_relative_to(self._folder.resolve()) or not folder.is_dir():
            raise Refusal("outside", f"{sanitise(str(cwd))} is not a folder of this session", f"work in {self._folder}")
        terminal = Terminal(MAX_OUTPUT_BYTES if max_bytes is None else max(0, min(max_bytes, MAX_OUTPUT_BYTES)))
        with self._lock:
            if len(self._terminals) >= MAX_TERMINALS:
                raise Refusal("too_many_terminals", f"{MAX_TERMINALS} terminals are open", "release some")
            terminal_id = f"term_{next(self._numbers)}"
            self._terminals[terminal_id] = terminal
        allowed = {name: value for name, value in env.items() if not name.startswith(_RESERVED_VARIABLES)}
        run_in_thread(f"clawpy-{self._live.id}-{terminal_id}", lambda: self._run(terminal, argv, folder, allowed))
        return terminal_id

    def get(self, terminal_id: str) -> Terminal:
        """One terminal. Raises `Refusal` `unknown_terminal`."""
        with self._lock:
            terminal = self._terminals.get(terminal_id)
        if terminal is None:
            raise Refusal("unknown_terminal", f"there is no terminal {sanitise(terminal_id)[:80]}")
        return terminal

    def release(self, terminal_id: str) -> None:
        """End a terminal and forget it. Raises `Refusal` `unknown_terminal`."""
        self.get(terminal_id).cancel.set()
        with self._lock:
            self._terminals.pop(terminal_id, None)

    def close(self) -> None:
        """End all terminals."""
        with self._lock:
            open_terminals, self._terminals = self._terminals, {}
        for terminal in open_terminals.values():
            terminal.cancel.set()

    def _run(self, terminal: Terminal, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        try:
            result = self._live.execute(
                argv,
                cwd=cwd,
                env=env,
                confinement=self._confinement,
                listen=terminal.add_output,
                cancel=terminal.cancel,
                cleared=True,
            )
            if result.timed_out:
                terminal.signal = "SIGTERM"
            elif result.exit_code < 0:
                terminal.signal = f"SIG{-result.exit_code}"
            else:
                terminal.exit_code = result.exit_code
        except FlowError as error:  # the program does not exist, or the content filter blocks it
            terminal.add_output([sanitise(str(error))])
            terminal.exit_code = 126
            self._live.note(str(error), error=True)
        except SessionStopped:
            terminal.signal = "SIGKILL"
        finally:
            terminal.ended.set()


def terminal_argv(command: str, arguments: Sequence[str] | None) -> list[str]:
    """The command to run. Agents send a program with its arguments, or a whole line for a shell."""
    if arguments:
        return [command, *arguments]
    words = command.split()
    return [command] if len(words) == 1 and shlex.quote(command) == command else ["sh", "-c", command]

"""The consoles of one engine: an app for each attached terminal, all on one event loop in a thread.

`serve` is the process that a client forks; `clawpy run` and `serve` have `Consoles`, too, for clients that attach. If a
console fails, its client gets a report of the crash, and the others go on.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import platform
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clawpy_console.attach import SHUTDOWN_S, Host, exit_after
from clawpy_console.attach.client import describe_terminal
from clawpy_console.attach.protocol import ClientEnd, TerminalDescription
from engine import Home, Refusal, __version__

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp
    from clawpy_console.attach.terminal import Terminal
    from engine import Engine


def serve(
    home: Home, workspaces: Sequence[str], opener: Callable[..., Engine], terminal: socket.socket, *, demo: bool
) -> int:
    """Open the engine of `home`, with a console for the client at `terminal` and for each that attaches later, until
    the last one is closed; returns the exit code. This process no longer writes to its own terminal."""

    engines: list[Engine] = []  # the one of all consoles, once it is open
    opening = threading.Lock()

    def open_engine() -> Engine:
        # The consoles call this in threads, so that the first frame does not wait for the engine.
        with opening:
            if not engines:
                engines.append(opener(home, workspaces=workspaces, kind="console", attach=consoles.admit))
            return engines[0]

    description = describe_terminal()
    _redirect_output_to_log(home)
    consoles = Consoles(open_engine, home, owns_engine=True, demo=demo)
    consoles.open_console(terminal.dup(), description, workspaces)
    try:
        consoles.wait()
    finally:
        consoles.close()
        for engine in engines:
            engine.close()
        consoles.release_clients()
    return 0


STOPPED = "The engine stopped. Start it again with `clawpy`."
"""Said to a client whose console is closed because its engine stops."""


class Consoles(Host):
    """Opens a console for each terminal that attaches.

    Args:
        open_engine: gives the engine, the same to every console; called in threads. Raises `Refusal`.
        owns_engine: the engine ends with the last console, unless the operator keeps it (`keeps_running`); else it ends
            by itself.
    """

    apps: dict[Terminal, ConsoleApp]

    def __init__(self, open_engine: Callable[[], Engine], home: Home, *, owns_engine: bool, demo: bool = False) -> None:
        self._open_engine = open_engine
        self._home = home
        super().__init__(owns_engine=owns_engine)
        self._is_demo = demo
        self._is_ending = False
        self._all_closed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting_clients: list[tuple[Terminal, ClientEnd]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="consoles", daemon=True)
        self._thread.start()

    def admit(self, description: object) -> Callable[[socket.socket], None]:
        """Check the description of a client's terminal. Returns the function that opens a console on its connection.

        May be called from any thread. Raises `Refusal` `bad_arguments`.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            terminal = TypeAdapter(TerminalDescription).validate_python(description)
        except ValidationError as error:
            message = "a terminal is described by its environment, size, folder and workspaces"
            raise Refusal("bad_arguments", message, "use `clawpy` of the same version to attach") from error
        return partial(self.open_console, description=terminal)

    def open_console(
        self, connection: socket.socket, description: TerminalDescription, repositories: Sequence[str] | None = None
    ) -> None:
        """Open a console for the client at `connection`. May be called from any thread.

        `repositories` are those that the engine was opened for. They are None for a client that attaches later: it gets
        those of its folders.
        """
        from clawpy_console.attach.terminal import Terminal

        terminal = Terminal(description.environment, description.size)
        connection.setblocking(False)

        def start_serving() -> None:
            task = self._loop.create_task(self._serve_client(connection, terminal, description, repositories))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(start_serving)

    def wait(self) -> None:
        """Wait until the last console is closed and the engine is not kept."""
        self._all_closed.get()

    def close(self) -> None:
        """Close every console and wait for its work. The clients wait for `release_clients`."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    def release_clients(self) -> None:
        """Let the last clients exit: the engine is closed."""
        asyncio.run_coroutine_threadsafe(self._end_waiting_clients(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _serve_client(
        self,
        connection: socket.socket,
        terminal: Terminal,
        description: TerminalDescription,
        repositories: Sequence[str] | None,
    ) -> None:
        """Serve a client until its console is closed, and tell it how that ended."""
        await self._loop.connect_accepted_socket(lambda: terminal, connection)
        if self._is_ending:
            await terminal.end_client(ClientEnd(attach_again=True))
        else:
            await self._end_client(terminal, await self._run_console(terminal, description, repositories))

    async def _run_console(
        self, terminal: Terminal, description: TerminalDescription, repositories: Sequence[str] | None
    ) -> ClientEnd:
        """Run a console on `terminal` until it is closed. Returns how its client ends, also when the console fails."""
        app: ConsoleApp | None = None
        try:
            if repositories is None:
                repositories = await asyncio.to_thread(self._find_repositories, description)
            if self._is_ending:  # the last console was closed meanwhile
                return ClientEnd(attach_again=True)
            app = self.apps[terminal] = self._make_app(terminal, repositories)
            await app.run_async(mouse=app.uses_mouse)
            if app._exception is not None:
                raise app._exception
            return ClientEnd(app.return_code or 0, attach_again=app.is_held_elsewhere)
        except Exception as error:
            engine = app.engine if app is not None else None
            return ClientEnd(1, await asyncio.to_thread(_write_report, error, self._home, engine, terminal))
        finally:
            self.apps.pop(terminal, None)
            terminal.release_app()

    def _make_app(self, terminal: Terminal, repositories: Sequence[str]) -> ConsoleApp:
        from clawpy_console.app import ConsoleApp

        app = ConsoleApp(
            lambda: self._open(app, repositories),
            self._home,
            repositories,
            demo=self._is_demo,
            terminal=terminal,
            host=self,
        )
        return app

    async def _end_client(self, terminal: Terminal, end: ClientEnd) -> None:
        """End the client of a console that was closed. The last client waits until the engine is closed, too."""
        if self._is_ending:
            self._waiting_clients.append((terminal, end if end.code or end.attach_again else ClientEnd(1, STOPPED)))
        elif self.owns_engine and not self.apps and not self.keeps_running:
            self._is_ending = True
            self._waiting_clients.append((terminal, end))
            if not terminal.is_connected:
                exit_after(SHUTDOWN_S, 1)
            self._all_closed.put(None)
        else:
            still_running = f"The engine keeps running (process {os.getpid()}). `clawpy` attaches to it."
            await terminal.end_client(end._replace(text="\n".join(filter(None, (end.text, still_running)))))
            self.garbage_collector.free_console()

    def _find_repositories(self, client: TerminalDescription) -> list[str]:
        """The repositories of a client that attaches: those of the folders that it names, else that of its own folder;
        none in the demo."""
        from engine.git import find_repository_root

        repositories = []
        for folder in () if self._is_demo else client.workspaces or [client.folder]:
            try:
                repositories.append(str(find_repository_root(Path(folder))))
            except Refusal:
                continue  # a folder that is no repository: there is nothing to look after
        return repositories

    def _open(self, app: ConsoleApp, repositories: Sequence[str]) -> Engine:
        """The engine, after it was told to watch `repositories`. If it refuses one, `app` shows why."""
        engine = self._open_engine()
        for repository in repositories:
            try:
                engine.watch_workspace(repository)
            except Refusal as refusal:
                app.workspace_refusal = refusal
        return engine

    async def _close(self) -> None:
        self._is_ending = True
        for app in list(self.apps.values()):
            app.quit()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._loop.shutdown_default_executor()

    async def _end_waiting_clients(self) -> None:
        await asyncio.gather(*(terminal.end_client(end) for terminal, end in self._waiting_clients))


MAX_LOG_BYTES = 1024 * 1024
"""Size at which `logs/console.log` starts again."""


def _redirect_output_to_log(home: Home) -> None:
    """Send the output of this process to a file: the terminal belongs to the client."""
    file = home.logs / "console.log"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_full = file.exists() and file.stat().st_size > MAX_LOG_BYTES
        log = os.open(file, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_full else os.O_APPEND), 0o600)
    except OSError:  # the engine will report that the home cannot be written
        log = os.open(os.devnull, os.O_WRONLY)
    no_input = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(no_input, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(no_input)
    faulthandler.enable(2)


def _write_report(error: BaseException, home: Home, engine: Engine | None, terminal: Terminal) -> str:
    """Write a report of `error` to `home.logs`, and the error itself to `console.log`. Returns the lines to show on the
    terminal."""
    from textual.worker import WorkerFailed

    from engine.redaction import redact

    if isinstance(error, WorkerFailed):
        error = error.error
    now = datetime.now(UTC)
    lines = _make_report_lines(error, engine, terminal, now)
    file = home.logs / f"crash-{now:%Y%m%d-%H%M%S-%f}.txt"
    headline = f"The console crashed: {type(error).__name__}."
    try:
        print(redact("".join(traceback.format_exception(error))), file=sys.stderr)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as failure:
        return f"{headline} No report could be written: {failure.strerror}."
    return (
        f"{headline} Nothing that was recorded is lost.\n"
        f"Report, without your texts: {file}\n"
        "Please send it in with what you pressed last. `clawpy` opens the console again."
    )


def _make_report_lines(error: BaseException, engine: Engine | None, terminal: Terminal, now: datetime) -> list[str]:
    """The report of `error`. It has no messages of exceptions and no values, since each may be the operator's text or a
    secret."""
    from importlib.metadata import version

    columns, rows = terminal.size
    return [
        f"clawpy {__version__}, Textual {version('textual')}, Python {platform.python_version()}",
        platform.platform(),
        f"{now.isoformat(timespec='seconds')}, terminal {columns}x{rows}, TERM={terminal.environment.get('TERM', '')}",
        *_format_stacks(error),
        "",
        "Last events:",
        *(_read_last_events(engine) if engine else ["the engine was not open"]),
    ]


def _format_stacks(error: BaseException | None) -> Iterator[str]:
    """The types of an exception and of its causes, each with its stack."""
    while error is not None:
        yield from ("", type(error).__qualname__)
        yield from (frame.rstrip("\n") for frame in traceback.format_tb(error.__traceback__))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


MAX_REPORTED_EVENTS = 30
"""Maximum number of the last events that the report of a crash names."""


def _read_last_events(engine: Engine) -> list[str]:
    """The kinds of the last events, newest first."""
    try:
        entries = engine.ledger.read_newest(MAX_REPORTED_EVENTS)
        return [f"{entry.at.isoformat(timespec='seconds')} {entry.kind}" for entry in entries]
    except Exception as failure:  # the report is worth more than its last part
        return [f"not readable: {type(failure).__name__}"]

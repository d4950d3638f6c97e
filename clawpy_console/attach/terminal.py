"""The connection to the client of a terminal, and an app of Textual that is drawn there.

`Consoles` makes a `Terminal` for each client, and `ConsoleApp` is a `TerminalApp`. Keys come in as bytes, and what is
drawn goes out as bytes; a client that does not read gets the whole screen later instead of all steps.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from textual import constants, events
from textual._xterm_parser import XTermParser  # Textual has no public way to its parser
from textual.app import App
from textual.driver import Driver
from textual.filter import Monochrome, NoColor
from textual.geometry import Size
from textual.message import Message

from clawpy_console.attach.protocol import (
    INPUT,
    OUTPUT,
    RESTORE_TERMINAL,
    RUN,
    SIZE,
    SUSPEND,
    TAKE_TERMINAL,
    TERMINAL_IS_FREE,
    ClientEnd,
    MessageParser,
    encode_message,
)
from clawpy_console.formats import one_line
from engine.text import sanitise

log = logging.getLogger(__name__)

MAX_SIZE = (2000, 1000)
"""Maximum number of columns and rows that are drawn: a terminal may claim any size, and each cell takes memory."""


def bound_size(size: Sequence[int]) -> tuple[int, int]:
    """The size of a terminal within bounds. Raises ValueError or TypeError for an invalid one."""
    columns, rows = size
    return max(1, min(int(columns), MAX_SIZE[0])), max(1, min(int(rows), MAX_SIZE[1]))


MAX_QUEUED_BYTES = 512 * 1024
"""Maximum number of bytes that wait for a client. Output beyond it is dropped, and the screen is drawn again when the
client has caught up."""


def _do_nothing() -> None:
    """Called in place of an app that is not there."""


class Terminal(asyncio.Protocol):
    """The connection to the client of one terminal. Everything here runs on the consoles' event loop.

    Args:
        environment: variables of the terminal, see `PASSED_VARIABLES`.
        size: columns and rows.
    """

    def __init__(self, environment: Mapping[str, str], size: Sequence[int]) -> None:
        self.environment = environment
        self.size = bound_size(size)
        self.is_connected = True
        self.driver: TerminalDriver | None = None
        """Draws the app, while there is one."""
        self._on_hang_up: Callable[[], None] = _do_nothing
        self.on_stop_key: Callable[[], None] = _do_nothing
        """Tells the app of F12, ahead of all keys that still wait."""
        self._parser = MessageParser()
        self._transport: asyncio.Transport | None = None
        self._is_behind = self._has_dropped_output = False
        self._closed = asyncio.Event()

    def bind_app(self, *, on_hang_up: Callable[[], None], on_stop_key: Callable[[], None]) -> None:
        """Have the app told that the client is gone, and that F12 was pressed."""
        self._on_hang_up, self.on_stop_key = on_hang_up, on_stop_key

    def release_app(self) -> None:
        """Forget the app: it has ended, and its memory is to be freed."""
        self.driver = None
        self._on_hang_up = self.on_stop_key = _do_nothing

    def apply_colours(self, app: App[Any]) -> None:
        """Have `app` use the colours of this terminal instead of those of the engine's process."""
        app.console = Console(
            color_system=constants.COLOR_SYSTEM,  # type: ignore[arg-type]
            file=app.console.file,
            highlight=False,
            emoji=False,
            force_terminal=True,
            safe_box=False,
            _environ=self.environment,
        )
        app.no_color = "NO_COLOR" in self.environment
        app._filters = [item for item in app._filters if not isinstance(item, (Monochrome, NoColor))]
        if app.no_color:
            app._filters.append(Monochrome())

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a message; ignored when the client is gone."""
        self._write(encode_message(kind, content))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def draw(self, text: str) -> None:
        """Send output, unless the client is too far behind."""
        if self._is_behind:
            self._has_dropped_output = True
        else:
            self.send(OUTPUT, text.encode(errors="replace"))

    def run(self, command: Sequence[str], folder: str, banner: str) -> None:
        """Give the terminal to a program until it ends; then draw the screen again."""
        self.send(RUN, json.dumps({"command": list(command), "folder": folder, "banner": banner}).encode())

    def suspend(self) -> None:
        """Stop the client until its shell continues it; then the screen is drawn again."""
        self.send(SUSPEND)

    async def end_client(self, end: ClientEnd) -> None:
        """Tell the client to end, and wait until it has read that or is gone."""
        self._write(end.encode())
        if self._transport is not None:
            self._transport.close()
            try:
                await asyncio.wait_for(self._closed.wait(), 2)
            except TimeoutError:  # it does not read
                self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_QUEUED_BYTES, low=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_connected = False
        self._closed.set()
        self._on_hang_up()

    def pause_writing(self) -> None:
        self._is_behind = True

    def resume_writing(self) -> None:
        self._is_behind = False
        if self._has_dropped_output and self.driver is not None:
            self._has_dropped_output = False
            self.driver.redraw()

    def data_received(self, data: bytes) -> None:
        try:
            self._handle_messages(data)
        except (ValueError, TypeError) as error:
            log.warning("a terminal sent what no client sends, and is let go: %s", error)
            if self._transport is not None:
                self._transport.abort()

    def _handle_messages(self, data: bytes) -> None:
        """Take on a new size, pass on what was typed, and draw again when the terminal is free."""
        for kind, content in self._parser.feed(data):
            if kind in (SIZE, TERMINAL_IS_FREE):
                self.size = bound_size(json.loads(content))
            if self.driver is None:
                continue
            if kind == INPUT:
                self.driver.handle_input(content)
            elif kind == SIZE:
                self.driver.update_size()
            elif kind == TERMINAL_IS_FREE:
                self.driver.enter()
                self.driver.update_size()
                self.driver.redraw()


_BEFORE_ESCAPE = re.compile("(?=\x1b)")
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"


class TerminalDriver(Driver):
    """Draws an app on a `Terminal` and passes its keys on; an Escape waits `ESCAPE_DELAY` for a longer sequence."""

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: Any = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._terminal: Terminal = app.terminal  # type: ignore[attr-defined]
        self._size = self._terminal.size
        self._parser = XTermParser(debug)
        self._parser_timer: asyncio.TimerHandle | None = None
        self._decode = getincrementaldecoder("utf-8")(errors="replace").decode
        self._is_pasting = False
        self._last_input = ""  # the last characters, which may be the beginning of `_PASTE_START`
        self._held_back = ""  # the end of what was pasted until now, which may be the beginning of `_PASTE_END`

    def write(self, data: str) -> None:
        self._terminal.draw(data)

    def start_application_mode(self) -> None:
        self._terminal.driver = self
        self.enter()

    def enter(self) -> None:
        """Set the modes that a console needs; `client.RESTORING_SEQUENCES` ends them."""
        mouse = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h" if self._mouse else ""
        # Disambiguated keys, all of them as escape codes, with their text (Kitty's keyboard protocol).
        keys = "" if constants.DISABLE_KITTY_KEY else "\x1b[>25u"
        # Asks for synchronized output. Apple's terminal would show the question.
        question = "" if self._terminal.environment.get("TERM_PROGRAM") == "Apple_Terminal" else "\x1b[?2026$p"
        modes = f"\x1b[?1049h{mouse}\x1b[?25l\x1b[?1004h{keys}{question}\x1b[?2004h\x1b[?7l"
        self._terminal.send(TAKE_TERMINAL, modes.encode())

    def handle_input(self, data: bytes) -> None:
        """Pass on what was typed. What may be the beginning of a longer sequence, as Escape and a letter are, is passed
        on when nothing more comes in time. Else all keys after it would wait, too. It is also passed on when another
        sequence begins. Else Textual would make two keys of Alt and a letter."""
        *parts, last_part = _BEFORE_ESCAPE.split(self._held_back + self._decode(data))
        self._held_back = ""
        for part in parts:
            self._feed(part)
        if self._is_pasting and len(last_part) < len(_PASTE_END) and _PASTE_END.startswith(last_part):
            self._held_back = last_part
        else:
            self._feed(last_part)
        if self._parser_timer is not None:
            self._parser_timer.cancel()
        self._parser_timer = self._loop.call_later(constants.ESCAPE_DELAY + 0.001, self._end_sequence)

    def _feed(self, part: str) -> None:
        """Pass on what was typed from one Escape to the next. An Escape that was pasted is left out: Textual would take
        the rest of what is pasted as keys, and carry them out."""
        if self._is_pasting:
            self._is_pasting = not part.startswith(_PASTE_END)
            part = part.removeprefix("\x1b") if self._is_pasting else part
        if part.startswith("\x1b"):
            self._end_sequence()
        self._dispatch(self._parser.feed(part) if part else ())
        latest = self._last_input + part
        self._is_pasting = self._is_pasting or _PASTE_START in latest
        self._last_input = latest[1 - len(_PASTE_START) :]

    def _end_sequence(self) -> None:
        """Pass on what the parser holds back as the beginning of a longer sequence."""
        if self._parser._timeout_time is not None:
            self._parser._timeout_time = 0.0  # its time is over
        self._dispatch(self._parser.tick())

    def _dispatch(self, received: Iterable[Message]) -> None:
        """Give the app its keys; the stop key goes ahead of those that still wait."""
        for message in received:
            if isinstance(message, events.Key) and message.key == "f12":
                self._terminal.on_stop_key()
            else:
                self.process_message(message)

    def send_message(self, message: Message) -> None:
        self._app.post_message(message)

    def update_size(self) -> None:
        """Take on the size of the terminal."""
        self._size = self._terminal.size
        size = Size(*self._size)
        self._app.post_message(events.Resize(size, size))

    def redraw(self) -> None:
        """Draw the whole screen again."""
        self._app.refresh(layout=True)

    def disable_input(self) -> None:
        self._terminal.driver = None

    def stop_application_mode(self) -> None:
        self.disable_input()
        self._terminal.send(RESTORE_TERMINAL)


class TerminalApp(App[None]):
    """An app on the terminal of a client; without one, on that of the process."""

    def __init__(self, terminal: Terminal | None) -> None:
        self.terminal = terminal  # before `super().__init__`, which asks for the driver
        super().__init__()
        self._disable_tooltips = True  # no widget has one, and Textual would make a widget for them on each screen
        if terminal is not None:
            terminal.apply_colours(self)
            # Textual would take the process's streams, which the consoles share, and give them back in another order.
            self._capture_stdout, self._capture_stderr = sys.stdout, sys.stderr  # type: ignore[assignment]

    def get_driver_class(self) -> type[Driver]:
        """The driver of the client's terminal, where there is one."""
        return TerminalDriver if self.terminal is not None else super().get_driver_class()

    def set_terminal_title(self, text: str) -> None:
        """Set the title of the terminal."""
        self._write_escape_sequence(f"\x1b]2;{sanitise(one_line(text))}\x1b\\")

    def notify_in_terminal(self, text: str) -> None:
        """Show a notification of the terminal (OSC 9); terminals without them ignore it."""
        self._write_escape_sequence(f"\x1b]9;{sanitise(one_line(text))[:200]}\x1b\\")

    def _write_escape_sequence(self, sequence: str) -> None:
        """Write an escape sequence to the terminal between two frames, as Textual's `copy_to_clipboard` does."""
        driver = self._driver
        if driver is not None and not driver.is_headless:
            driver.write(sequence)

    def _fatal_error(self) -> None:
        """End after an exception, which the caller of the app reports (`clawpy_console.attach.consoles`)."""
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        self._exit_renderables.clear()

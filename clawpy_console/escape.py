"""Terminal input in which a lone Escape does not lag.

Escape begins the sequences of other keys, so a terminal program waits a moment before it believes in a lone one.
Textual's input thread looks at that wait only every 100 ms; this one looks when the wait is over.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import constants
from textual._xterm_parser import XTermParser  # Textual has no public way to its parser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

IDLE = 0.1
"""Seconds between two looks at whether the program ends, while nothing is typed."""


class QuickEscape(LinuxDriver):
    """Textual's driver for Linux and macOS with an input thread of our own."""

    def run_input_thread(self) -> None:
        """Read what is typed until the program ends."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            wait = IDLE
            while not self.exit_event.is_set():
                text = ""
                if selector.select(wait):
                    text = decode(os.read(self.fileno, 4096))
                    self._hand_on(parser.feed(text) if text else ())
                self._hand_on(parser.tick())
                wait = constants.ESCAPE_DELAY if text.endswith("\x1b") else IDLE

    def _hand_on(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)

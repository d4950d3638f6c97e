"""Output that Textual (8.2) has no method for: the title of the terminal, its notifications, freeing what was drawn."""

from __future__ import annotations

from typing import Any

from textual.app import App

from clawpy_console.formats import one_line
from engine.model import sanitise


def _write_escape_sequence(app: App[Any], sequence: str) -> None:
    """Write an escape sequence to the terminal between two frames.

    Textual has no public method for this; its own `copy_to_clipboard` uses the driver too.
    """
    driver = app._driver
    if driver is not None and not driver.is_headless:
        driver.write(sequence)


def set_terminal_title(app: App[Any], text: str) -> None:
    """Set the title of the terminal."""
    _write_escape_sequence(app, f"\x1b]2;{sanitise(one_line(text))}\x1b\\")


def notify_in_terminal(app: App[Any], text: str) -> None:
    """Show a notification of the terminal (OSC 9); terminals without them ignore it."""
    _write_escape_sequence(app, f"\x1b]9;{sanitise(one_line(text))[:200]}\x1b\\")


def free_style_cache() -> None:
    """Free what the last thousand widgets of a closed app drew: Textual's cache is of the whole process."""
    from textual._styles_cache import StylesCache

    StylesCache.get_inner_outer.cache_clear()

"""Writes a report when a console crashes: where the program was, without the operator's texts."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from textual.worker import WorkerFailed

from engine import Home, __version__
from engine.model.secrets import redact

if TYPE_CHECKING:
    from clawpy_console.attach.terminal import Terminal
    from engine import Engine

MAX_EVENTS = 30
"""Maximum number of the last events that are named."""


def write_report(error: BaseException, home: Home, engine: Engine | None, terminal: Terminal) -> str:
    """Write a report of `error` to `home.logs`, and the error itself to `console.log`. Returns the lines to show on the
    terminal.

    The report has no messages of exceptions and no values, since each may be the operator's text or a secret.
    """
    if isinstance(error, WorkerFailed):
        error = error.error
    now = datetime.now(UTC)
    lines = [
        f"clawpy {__version__}, Textual {version('textual')}, Python {platform.python_version()}",
        platform.platform(),
        f"{now.isoformat(timespec='seconds')}, terminal {terminal.size[0]}x{terminal.size[1]}"
        f", TERM={terminal.environment.get('TERM', '')}",
        *_stack_lines(error),
        "",
        "Last events:",
        *(_last_events(engine) if engine else ["the engine was not open"]),
    ]
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


def _stack_lines(error: BaseException | None) -> Iterator[str]:
    """The types of an exception and of its causes, each with its stack."""
    while error is not None:
        yield from ("", type(error).__qualname__)
        yield from (frame.rstrip("\n") for frame in traceback.format_tb(error.__traceback__))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _last_events(engine: Engine) -> list[str]:
    """The kinds of the last events, newest first."""
    try:
        return [f"{fact.at.isoformat(timespec='seconds')} {fact.kind}" for fact in engine.ledger.latest(MAX_EVENTS)]
    except Exception as failure:  # the report is worth more than its last part
        return [f"not readable: {type(failure).__name__}"]

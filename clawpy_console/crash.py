"""Reports a crash of the console: a file in the home's logs, and the lines that name it."""

from __future__ import annotations

import platform
import sys
import traceback
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
    """Write a report of `error` to `home.logs`; the lines to show on the terminal.

    It holds where the program was, never what it worked on: no messages of exceptions and no values, of which any may
    be the operator's text or a secret. Those are in `console.log`, which is printed to by this.
    """
    if isinstance(error, WorkerFailed):
        error = error.error
    print(redact("".join(traceback.format_exception(error))), file=sys.stderr)
    now = datetime.now(UTC)
    lines = [
        f"clawpy {__version__}, Textual {version('textual')}, Python {platform.python_version()}",
        platform.platform(),
        f"{now.isoformat(timespec='seconds')}, terminal {terminal.size[0]}x{terminal.size[1]}"
        f", TERM={terminal.environment.get('TERM', '')}",
    ]
    chain: BaseException | None = error
    while chain is not None:
        lines += ["", type(chain).__qualname__, *traceback.format_tb(chain.__traceback__)]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    lines += ["", "Last events:", *(_events(engine) if engine else ["the engine was not open"])]
    file = home.logs / f"crash-{now:%Y%m%d-%H%M%S-%f}.txt"
    headline = f"The console crashed: {type(error).__name__}."
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text("\n".join(line.rstrip("\n") for line in lines) + "\n", encoding="utf-8")
    except OSError as failure:
        return f"{headline} No report could be written: {failure.strerror}."
    return (
        f"{headline} Nothing that was recorded is lost.\n"
        f"Report, without your texts: {file}\n"
        "Please send it in with what you pressed last. `clawpy` opens the console again."
    )


def _events(engine: Engine) -> list[str]:
    """The kinds of the last events, newest first."""
    try:
        return [f"{fact.at.isoformat(timespec='seconds')} {fact.kind}" for fact in engine.ledger.latest(MAX_EVENTS)]
    except Exception as failure:  # the report is worth more than its last part
        return [f"not readable: {type(failure).__name__}"]

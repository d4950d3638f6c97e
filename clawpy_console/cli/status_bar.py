"""`clawpy status --format short|long` (SPEC 10.3), answered from a file, because a status bar asks every few seconds.

Imports as little as possible: the engine, argparse or dataclasses would take longer than the answer.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FORMS = ("short", "long")
NO_ENGINE = "○ no engine"
"""Shown when the engine was killed: its figures are out of date."""


def read_line(home: str | None, words: Sequence[str]) -> str | None:
    """The line for a status bar; None when `words` ask for something else, or when no engine has written the file
    yet."""
    _, *options = " ".join(words).replace("=", " ").split()
    if len(options) != 2 or options[0] != "--format" or options[1] not in FORMS:
        return None
    cache, data = locate_folders(home)
    try:
        with open(os.path.join(cache, "complication.json"), "rb") as file:  # noqa: PTH118, PTH123  # pathlib costs more
            text = format_file_line(json.load(file), options[1], datetime.now(UTC))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None  # there is no such file, or it is none of ours
    if os.path.exists(os.path.join(data, "STOP")):  # noqa: PTH110, PTH118  # a stop that no engine has found yet
        return "⏸ stop"
    return NO_ENGINE if text[0] != "⏸" and _was_killed(data) else text


def format_file_line(document: Any, form: str, now: datetime) -> str:
    """The line that the file gives at `now`. Raises KeyError, TypeError, ValueError and the like for a foreign
    document."""
    if document["version"] != 1:
        raise ValueError(document["version"])
    holds = [hold for hold in document["holds"] if hold["until"] is None or _is_future(hold["until"], now)]
    cards = [
        card
        for card in document["cards"]
        if _is_future(card["expiresAt"], now) and not _is_future(card["snoozedUntil"], now)
    ]
    return format_line(form, holds[0] if holds else None, len(cards), cards[0] if cards else None, now)


def format_status_line(document: Any, form: str) -> str:
    """The line from the document of `clawpy status`."""
    hold, top = next(iter(document["holds"]), None), document["top"]
    if top is not None:
        how_sure = f"{top['confidence']:.0%}" if top["stated"] else top["tierWord"]
        top = top | {"prompt": " ".join(top["prompt"].split()), "howSure": how_sure}
    return format_line(form, hold, document["pending"], top, datetime.now(UTC))


def format_line(form: str, hold: Any, pending: int, top: Any, now: datetime) -> str:
    """The line: the active hold, else the number of pending cards, or the first card."""
    if hold is not None:
        return f"⏸ {hold['word']}"
    if form == "short" or top is None:
        return f"🔮 {pending}"
    age = _format_age(datetime.fromisoformat(top["createdAt"]), now)
    return f"🔮 {top['prompt']} · {top['targetChannel']} · {top['howSure']} · {age}"


def _format_age(instant: datetime, now: datetime) -> str:
    """As `engine.wording.short_span`, whose module takes too long to import."""
    minutes = max(0, int((now - instant).total_seconds() // 60))
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def locate_folders(home: str | None) -> tuple[str, str]:
    """The cache and data folders, as `Home.locate` has them."""
    if root_name := home or os.environ.get("CLAWPY_HOME"):
        root = os.path.abspath(os.path.expanduser(root_name))  # noqa: PTH100, PTH111
        return os.path.join(root, "cache"), os.path.join(root, "data")  # noqa: PTH118
    from engine.home import Home

    location = Home.locate()
    return str(location.cache), str(location.data)


def _is_future(instant: str | None, now: datetime) -> bool:
    """Whether an instant is still to come; False for none."""
    return instant is not None and datetime.fromisoformat(instant) > now


def _was_killed(data: str) -> bool:
    """Whether the engine that wrote the file died: its note exists, and its lock is free."""
    folder = os.path.join(data, "engine.")  # noqa: PTH118
    if not os.path.exists(folder + "json"):  # noqa: PTH110
        return False
    import fcntl

    try:
        with open(folder + "lock", "rb") as lock:  # noqa: PTH123
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False

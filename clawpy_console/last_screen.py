"""The last screen: what the first frame draws before an engine is open (SPEC 11.4).

It is kept in `cache/last_screen.json`. That file is only a cache: if it is missing, torn or of another version, the
console starts with an empty screen.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import tempfile
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from clawpy_console.state import AppState
from engine.frozen import frozen

log = logging.getLogger(__name__)

VERSION = 3

MAX_ITEMS = {
    "cards": 10, "recent": 12, "sessions": 16, "tasks": 30, "agents": 30, "waiting": 20,
    "changes": 0, "permissions": 0, "retired": 0, "log": 0, "blocked": 0, "rails": 0, "burn": 0, "chain": 0,
    "levels": 0,
}  # fmt: skip
"""Maximum number of items that are kept, by field. The first frame shows no others."""


@frozen
class LastScreen:
    """The state that was read last, and the operator's theme, keys and prompts."""

    state: AppState = field(default_factory=AppState)
    theme: str = "clawpy-dark"
    keys: Mapping[str, str] = field(default_factory=dict)
    mouse: bool = True
    welcomed: bool = False
    """Whether the operator has hidden the hints of the first run."""
    saved_at: datetime | None = None
    """None in a new home."""
    draft: str = ""
    """The text in the prompt box, or the text that was there when the box was closed."""
    draft_of: str = ""
    """The workspace of the draft."""
    prompts: tuple[str, ...] = ()
    """The prompts that were sent, newest first."""


def load(file: Path) -> LastScreen:
    """The content of `file`, or an empty one. Never raises: a bad cache is no reason not to start."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document.pop("version", None) == VERSION:
            return typing.cast(LastScreen, _read(LastScreen, document))
        log.info("%s is of another version and is not used", file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.warning("%s cannot be read and is drawn again: %s", file, error)
    return LastScreen()


def save(file: Path, screen: LastScreen) -> None:
    """Replace `file` in one step. Raises OSError when the folder cannot be written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": VERSION, **_encode(trim(screen))}, default=_encode, ensure_ascii=False)
    handle, name = tempfile.mkstemp(prefix=".last_screen", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def trim(screen: LastScreen) -> LastScreen:
    """The part of `screen` that a first frame can show. Reading it takes a millisecond or two."""
    state = dataclasses.replace(
        screen.state, **{name: getattr(screen.state, name)[:limit] for name, limit in MAX_ITEMS.items()}
    )
    return dataclasses.replace(screen, state=state, saved_at=screen.saved_at or datetime.now(UTC))


def _encode(value: Any) -> Any:
    """A value that JSON has no type for, as one that it has a type for."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, frozenset) else str(value)


_HINTS: dict[type, dict[str, Any]] = {}


def _read(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `_encode` wrote. Raises ValueError, TypeError or KeyError if there is none."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _HINTS.get(kind) or _HINTS.setdefault(kind, typing.get_type_hints(kind))
        return kind(**{name: _read(hints[name], item) for name, item in value.items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        present = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _read(present, value)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_read(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin is frozenset:
        return frozenset(_read(arguments[0], item) for item in value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind in (str, int, float, bool) and not isinstance(value, (kind, int)):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value

"""The last screen: what a console shows before its engine is open, kept in `cache/last_screen.json` (SPEC 11.4).

`Console` saves it while it runs and when it ends, and loads it at the start. The file is only a cache: if it is missing
or torn, the console starts with an empty screen.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from clawpy_console.state import AppState
from engine.frozen import frozen

log = logging.getLogger(__name__)

LAST_SCREEN_VERSION = 13
"""Raise it when fields of the state change: what the operator typed and chose is kept from any version."""

MAX_KEPT_ITEMS = {
    "cards": 10, "sessions": 16, "tasks": 30, "agents": 30, "waiting": 20,
    "changes": 0, "permissions": 0, "retired_agents": 0, "latest_log": 0, "blocked_work": 0, "rails": 0,
    "spending": 0, "trigger_chain": 0, "levels": 0, "recent_cards": 0,
}  # fmt: skip
"""Maximum number of items that are kept, by field. The first frame shows no others."""


@frozen
class LastScreen:
    """The state that was read last, and the operator's theme, keys and prompts."""

    state: AppState = field(default_factory=AppState)
    theme: str = "clawpy-dark"
    keys: Mapping[str, str] = field(default_factory=dict)
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


def load_last_screen(file: Path) -> LastScreen:
    """The content of `file` without the fields that cannot be read, and without a state of another version. Never
    raises: a bad cache is no reason not to start."""
    reading_errors = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document.get("version") != LAST_SCREEN_VERSION:
            log.info("%s is of another version: its state is not used", file)
            document.pop("state", None)
    except FileNotFoundError:
        return LastScreen()
    except reading_errors as error:
        log.warning("%s cannot be read and is drawn again: %s", file, error)
        return LastScreen()
    values = {}
    for name, expected_type in _type_hints(LastScreen).items():
        try:
            if name in document:
                values[name] = _decode(expected_type, document[name])
        except reading_errors as error:
            log.warning("%s in %s cannot be read and is left out: %s", name, file, error)
    return LastScreen(**values)


def save_last_screen(file: Path, screen: LastScreen) -> None:
    """Replace `file`, see `write_atomic`. Raises OSError when the folder cannot be written."""
    from engine.files import write_atomic  # not before the first frame

    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"version": LAST_SCREEN_VERSION, **_encode(trim_last_screen(screen))}, default=_encode, ensure_ascii=False
    )
    write_atomic(file, text.encode())


def trim_last_screen(screen: LastScreen) -> LastScreen:
    """The part of `screen` that a first frame can show. Reading it takes a millisecond or two."""
    kept = {name: getattr(screen.state, name)[:limit] for name, limit in MAX_KEPT_ITEMS.items()}
    kept["sessions"] = tuple(session for session in kept["sessions"] if session.state.is_over)  # by then no other runs
    return dataclasses.replace(
        screen, state=dataclasses.replace(screen.state, **kept), saved_at=screen.saved_at or datetime.now(UTC)
    )


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


_type_hints = cache(typing.get_type_hints)
"""The type hints of a dataclass. They are computed once, because that takes long."""


def _decode(expected_type: Any, value: Any) -> Any:
    """The value of this type that `_encode` wrote. Raises ValueError, TypeError or KeyError if there is none."""
    origin = typing.get_origin(expected_type)
    if origin is not None:
        return _decode_generic(origin, typing.get_args(expected_type), value)
    if isinstance(expected_type, type) and dataclasses.is_dataclass(expected_type):
        hints = _type_hints(expected_type)
        return expected_type(**{name: _decode(hints[name], item) for name, item in value.items()})
    if expected_type is datetime:
        return datetime.fromisoformat(value)
    if isinstance(expected_type, type) and issubclass(expected_type, Enum):
        return expected_type(value)
    accepted_types = (float, int) if expected_type is float else expected_type
    if expected_type in (str, int, float, bool) and not isinstance(value, accepted_types):
        raise TypeError(f"{value!r} is no {expected_type.__name__}")
    return value


def _decode_generic(origin: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    """The value of an optional type, a tuple, a frozen set or a mapping."""
    if origin in (types.UnionType, typing.Union):
        value_type = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _decode(value_type, value)
    if origin in (tuple, frozenset) and not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    if origin is tuple:
        item_types = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_decode(item_type, item) for item_type, item in zip(item_types, value, strict=True))
    if origin is frozenset:
        return frozenset(_decode(arguments[0], item) for item in value)
    return {name: _decode(arguments[1], item) for name, item in value.items()}

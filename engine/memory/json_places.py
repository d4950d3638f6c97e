"""Where in the text of a JSON document the value of a key stands, to point at what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import JSONDecoder

_SPACE = re.compile(r"[ \t\n\r]*")
_VALUE = JSONDecoder().raw_decode


def place(text: str, keys: Sequence[str | int]) -> tuple[int, int]:
    """Line and column (from 1) of the value to which `keys` lead, or of what holds it when it is missing.

    `text` must be JSON.
    """
    at = _find(text, _after(text, 0), list(keys))
    line = text.count("\n", 0, at) + 1
    return line, at - (text.rfind("\n", 0, at) + 1) + 1


def _find(text: str, at: int, keys: list[str | int]) -> int:
    """Where the value begins that `keys` lead to, from the value at `at`, as far as there are such keys."""
    for key in keys:
        inner = _member(text, at, key)
        if inner is None:
            return at
        at = inner
    return at


def _member(text: str, at: int, key: str | int) -> int | None:
    """Where the member `key` of the object or array at `at` begins; None when there is no such member."""
    opened = text[at : at + 1]
    if opened not in ("{", "["):
        return None
    number = 0
    at = _after(text, at + 1)
    while text[at] not in "]}":
        name: str | int = number
        if opened == "{":
            name, at = _VALUE(text, at)
            at = _after(text, _after(text, at) + 1)
        if name == key:
            return at
        at = _after(text, _VALUE(text, at)[1])
        if text[at] == ",":
            at = _after(text, at + 1)
        number += 1
    return None


def _after(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]

"""Values of YAML front matter (SPEC 6.1), as they are written and as people write them. Pure.

Written is the part of YAML that JSON is: every parser reads it. Read is what people write there by hand: words without
quotes, either kind of quotes, lists in one line or below each other, blocks of text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
"""A line `key: value`."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)")
_NUMBER = re.compile(r"-?(?:\d{1,400}(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_COMMENT = re.compile(r"(?:^|[ \t])#")
_BLOCK = re.compile(r"([|>])[+-]?\d?[ \t]*(?:#.*)?$")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(.*))?$")

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]


def written(value: Value) -> str:
    """A value as it stands after its key."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if plain or _INSTANT.fullmatch(value) else _json(value)
    return _json(value)


def read(lines: Sequence[str]) -> Value:
    """What the lines of one key say: `lines[0]` is what follows the colon, the others are those below it.

    Raises ValueError, in words.
    """
    first, below = lines[0].strip(), [line for line in lines[1:] if line.strip()]
    block = _BLOCK.match(first)
    if block:
        said = [line.strip() for line in below]
        return ("\n" if block[1] == "|" else " ").join(said)
    if not first or first.startswith("#"):
        return _list_below(below) if below else ""
    if below and first[0] not in "\"'[{":
        return " ".join([_plain(first), *(line.strip() for line in below)])  # a plain text over several lines
    return _one_line(" ".join([first, *(line.strip() for line in below)]))


def _list_below(lines: Sequence[str]) -> Value:
    found = []
    for line in lines:
        item = _ITEM.match(line)
        if item is None:
            if line.lstrip().startswith("#"):
                continue
            raise ValueError(f"{line.strip()[:60]!r} is no item of a list")
        found.append(_one_line((item[1] or "").strip()))
    return found


def _one_line(text: str) -> Value:
    if text.startswith('"') or text[:1] in "[{":
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            if text.startswith("[") and "{" not in text:
                return _loose_list(text)
            raise ValueError(f"{text[:60]!r} cannot be read") from None
        _nothing_after(text[end:])
        return value  # type: ignore[no-any-return]
    if text.startswith("'"):
        quoted = re.match(r"'((?:[^']|'')*)'", text)
        if quoted is None:
            raise ValueError(f"{text[:60]!r} has no closing quote")
        _nothing_after(text[quoted.end() :])
        return quoted[1].replace("''", "'")
    return _scalar(_plain(text))


def _loose_list(text: str) -> Value:
    """`[a, 'b', "c"]`: a list in one line whose words have no quotes, or others than JSON's."""
    found: list[Any] = []
    rest = text[1:].strip()
    while not rest.startswith("]"):
        one = re.match(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^,\[\]'\"]+", rest)
        if one is None:
            raise ValueError(f"{text[:60]!r} is no list")
        found.append(_one_line(one[0].strip()))
        rest = rest[one.end() :].strip()
        if rest.startswith(","):
            rest = rest[1:].strip()
        elif not rest.startswith("]"):
            raise ValueError(f"{text[:60]!r} is no list")
    _nothing_after(rest[1:])
    return found


def _scalar(text: str) -> Value:
    if text.lower() in ("null", "~", ""):
        return ""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"-?\d{1,400}", text) else float(text)
    return text


def _plain(text: str) -> str:
    comment = _COMMENT.search(text)
    return text[: comment.start()].strip() if comment else text.strip()


def _nothing_after(rest: str) -> None:
    if rest.strip() and not re.match(r"[ \t]+#|[ \t]*$", rest):
        raise ValueError(f"{rest.strip()[:40]!r} stands after the value")


def _json(value: Any) -> str:
    """JSON that is YAML too, in one line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)  # half a character is none
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", text)

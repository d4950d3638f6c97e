"""Values of YAML front matter (SPEC 6.1), as they are written and as people write them. Pure.

Written is the part of YAML that JSON is: every parser reads it. Read is all of YAML, and words without quotes that YAML
would not have, such as a title with a colon in it.
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
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_COMMENT = re.compile(r"(?:^|[ \t])#.*")

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]


def written(value: Value) -> str:
    """A value as it stands after its key, in one line."""
    if isinstance(value, str) and _is_word(value):
        return value
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)  # half a character is none
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def read(lines: Sequence[str]) -> Value:
    """What the lines of one key say: `lines[0]` is what follows the colon, the others are those below it.

    Raises ValueError, in words.
    """
    text = lines[0].strip() if len(lines) == 1 else ""
    if _is_word(text):
        return text
    try:
        return json.loads(text)  # type: ignore[no-any-return]  # what we wrote, and nearly all that there is
    except (ValueError, RecursionError):
        return _yaml("\n".join(lines))


def _yaml(text: str) -> Value:
    import yaml

    try:
        value = yaml.load(f"value: {text}", Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["value"]
    except (yaml.YAMLError, ValueError, RecursionError):
        said = " ".join(_COMMENT.sub("", line).strip() for line in text.split("\n")).strip()
        if said[:1] in tuple("\"'[{|>&*!%@`-"):
            raise ValueError(f"{said[:60]!r} cannot be read") from None
        return said
    return "" if value is None else value


def _is_word(text: str) -> bool:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _RESERVED
    return plain or _INSTANT.fullmatch(text) is not None

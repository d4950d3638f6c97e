"""What recurs in a text that is never quite the same: signatures of errors, of what the operator adds. Pure."""

from __future__ import annotations

import re

from engine.config_agents import ACP, MODEL
from engine.learning.candidates import weighing

LITTLE_WORDS = frozenset(
    ["the", "and", "with", "for", "also", "please", "that", "this", "then", "into", "from", "its", "all", "too", "but"]
)

_CODE = re.compile(r"^([a-z][a-z_]{2,40}): ")
_VARIES = re.compile(r"(?:[\w.~-]*/)+[\w.-]*|\S*\d\S*|[`'\"“”‘’][^`'\"“”‘’]*[`'\"“”‘’]")


def error_kind(tool: str, message: str) -> tuple[float, str, str, bool]:
    """Of an error: its points, its kind in words, a signature that the like of it has too, and whether it is one that
    the tool explains by a stable word."""
    if tool == "exec":
        return weighing.BROKE_OFF, "a command could not run or did not finish", slug(message), False
    coded = _CODE.match(message)
    if coded:
        return weighing.MISUSED, f"{tool} refused the call", coded[1], True
    if tool == MODEL or tool.startswith(ACP):
        return weighing.PROGRAM, "a model or program failed", slug(message), False
    return weighing.MISUSED, f"a call of {tool} was wrong", slug(message), False


def slug(text: str) -> str:
    """The words of a text that do not vary from case to case."""
    plain = _VARIES.sub(" ", text.lower())
    words = [word for word in re.findall(r"[a-z]{3,}", plain) if word not in LITTLE_WORDS]
    return "-".join(words[:6])[:60]


def difference(original: str, edited: str) -> float:
    """The share of words that two texts do not have in common, from 0 to 1."""
    before, after = set(original.lower().split()), set(edited.lower().split())
    return 1.0 - len(before & after) / len(before | after) if before | after else 0.0

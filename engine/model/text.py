"""Text from agents, models, files and git is hostile until it went through `sanitise`."""

from __future__ import annotations

import hashlib
import re

# Text from agents, models, files and git is hostile: escapes and control characters never reach a terminal.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, ended by BEL or ST
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[@-_]?"  # two-character escapes, stray ESC
)


_STRAY = re.compile(r"[\ud800-\udfff]")
"""Half a character: what Python makes of file names that are no UTF-8. Neither terminal nor database takes it."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `0 files`, `3,210 files`, `2 branches`; `plural` where it is made in another way."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + ('es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's')}"


def sanitise(text: str, *, tab_size: int = 4) -> str:
    """`text` without escape sequences, C0/C1 controls (newline kept, tab expanded) and direction overrides; what is no
    character becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text  # as most is
    return _STRAY.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text))).expandtabs(tab_size)


_PROMPT_WORD = re.compile(r"[a-z0-9_]{3,}")


def prompt_words(prompt: str) -> frozenset[str]:
    """The words by which prompts are compared: lower case, three characters or more."""
    return frozenset(_PROMPT_WORD.findall(prompt.lower()))


def failures(failed: int, errors: int) -> str:
    """ "1 test failed", "2 tests failed, 1 error", "1 error"."""
    tests = f"{count(failed, 'test')} failed" if failed or not errors else ""
    return ", ".join(filter(None, [tests, count(errors, "error") if errors else ""]))


def mark(text: str) -> str:
    """A short mark of free text: the same for the same words, whatever their case and the space between them. It holds
    none of them, so that what is to be forgotten does not live on in it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]

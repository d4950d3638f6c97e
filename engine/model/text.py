"""Makes hostile text safe, words values for people, and compares texts. Text from agents, models, files and git is
hostile until it was sanitised.

Screens, verbs, events and refusals word their values with it, so that a count or a time reads the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.model.base import hex_hash

if TYPE_CHECKING:
    from pydantic import ValidationError

# -- hostile text

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, ended by BEL or ST
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[@-_]?"  # two-character escapes, stray ESC
)
"""Escape sequences of terminals."""

_STRAY = re.compile(r"[\ud800-\udfff]")
"""Surrogates, which Python uses for file names that are not UTF-8. Neither terminals nor databases accept them."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters except tab and newline, direction overrides, and the byte order mark."""


def sanitise(text: str) -> str:
    """`text` without escape sequences, C0/C1 controls and direction overrides. Newlines stay, a tab becomes up to four
    spaces, and an invalid character becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text  # most texts are printable
    return _STRAY.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text))).expandtabs(4)


def one_line(text: str) -> str:
    """`text` sanitised and on one line, with single spaces."""
    return " ".join(sanitise(text).split())


@lru_cache(2_000)
def plain(text: str, max_length: int = 60) -> str:
    """`text` as `one_line` makes it, cut to `max_length` characters by an ellipsis."""
    line = one_line(text)
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def quote(text: str, max_length: int = 240) -> str:
    """Hostile text in quotes, on one line, without its full stop, cut to `max_length` characters by an ellipsis."""
    return f"“{plain(text, max_length).strip('.')}”"


def tail(path: str, max_length: int = 32) -> str:
    """A path, cut from the left to `max_length` characters."""
    line = plain(path, 4096)
    return line if len(line) <= max_length else "…" + line[1 - max_length :]


def compile_any(*patterns: str) -> re.Pattern[str]:
    """A pattern that matches any of these patterns, in any case."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_HIDDEN = re.compile(
    r"^(?:[ \t]*(?:[-*][ \t]+)?(```+|~~~+).*?(?:\n[ \t]*\1|\Z)"  # fenced code
    r"| {0,3}<!--(?:(?!<!--).)*?-->)[^\n]*",  # a comment
    re.MULTILINE | re.DOTALL,
)


def remove_code_and_comments(text: str) -> str:
    """A Markdown text with empty lines in place of fenced code, and of comments that begin a line."""
    return _HIDDEN.sub(lambda hidden: "\n" * hidden[0].count("\n"), text)


def remove_invalid_xml(text: str) -> str:
    """Hostile text without the characters that XML forbids, because in a prompt it is between tags."""
    return sanitise(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


# -- numbers, money and times in words


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with a noun: `1 file`, `0 files`, `3,210 files`. `plural` is needed if it is irregular: `2 branches`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + ('es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's')}"


def describe_first(reasons: Sequence[str]) -> str:
    """The first reason, and how many others there are; "" for none, as after forgetting."""
    if not reasons:
        return ""
    return reasons[0] + (f", and for {count(len(reasons) - 1, 'other reason')}" if reasons[1:] else "")


def failures(failed: int, errors: int) -> str:
    """ "1 test failed", "2 tests failed, 1 error", "1 error"."""
    tests = f"{count(failed, 'test')} failed" if failed or not errors else ""
    return ", ".join(filter(None, [tests, count(errors, "error") if errors else ""]))


def money(microusd: int) -> str:
    """Micro-dollars as dollars and cents."""
    return f"${microusd / 1e6:.2f}"


def seconds_in_words(seconds: float) -> str:
    """`2.4 s`, `<0.1 s`."""
    return "<0.1 s" if seconds < 0.05 else f"{seconds:.1f} s"


def span(length: timedelta) -> str:
    """A span of time in one unit, rounded down: `under a minute`, `5 min`, `3 h`, `4 days`. A negative span counts as
    zero."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 60:
        return "under a minute"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} days"


def short_span(length: timedelta) -> str:
    """The same in a few characters: `0m`, `4m`, `3h`, `2d`."""
    minutes = max(0, int(length.total_seconds() // 60))
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def moment(when: datetime, now: datetime) -> str:
    """A time in words in the zone of `now`: `11:02`, `yesterday 11:02`, `12 March`, `12 March 2024`."""
    local = when.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"{local:%H:%M}"
    if local.date() == now.date() - timedelta(days=1):
        return f"yesterday {local:%H:%M}"
    return f"{local.day} {local:%B}" + ("" if local.year == now.year else f" {local.year}")


def local_time(instant: str) -> str:
    """An instant in ISO format as local time, to the minute."""
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"


# -- sentences and lists


def article(noun: str) -> str:
    """`a` or `an`, by the first letter: `an archive`. A `u` is read as in `user`."""
    return "an" if noun[0] in "aeioAEIO" else "a"


def capitalised(sentence: str) -> str:
    """`sentence` with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def because(*reasons: str) -> str:
    """The end of a sentence: `; reason` for each reason that is not empty."""
    return "".join(f"; {reason}" for reason in reasons if reason)


def in_words(name: str) -> str:
    """`not-now` and `kept_old` with spaces."""
    return re.sub("[-_]", " ", name)


def join_names(names: Iterable[str], shown: int = 8) -> str:
    """`a`, `a and b`, `a, b and 3 more`; every name sanitised."""
    clean = [one_line(name) for name in names]
    if len(clean) <= shown:
        return " and ".join(filter(None, [", ".join(clean[:-1]), *clean[-1:]]))
    return f"{', '.join(clean[:shown])} and {len(clean) - shown} more"


def join_shortened(names: Iterable[str], shown: int = 2, max_length: int = 32) -> str:
    """The names as `join_names` writes them, each cut from the left to `max_length` characters."""
    return join_names((tail(name, max_length) for name in names), shown)


def find_last_error_line(output: str) -> str:
    """The last line that begins with "error", or else the last that is not empty; at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def describe_validation_faults(error: ValidationError) -> list[str]:
    """The errors that pydantic found in a document, in words: the place, the expected value, and the actual value."""
    return [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, not {str(fault['input'])[:60]!r}"
        for fault in error.errors(include_url=False)
    ]


def mark_approved(text: str, *, is_quote: bool) -> str:
    """A text for a prompt. A quote is marked as approved by the operator."""
    return f"{text} (approved by the operator)" if is_quote else text


# -- comparing texts

_PROMPT_WORD = re.compile(r"[a-z0-9_]{3,}")
"""See `split_prompt_words`."""


def split_prompt_words(prompt: str) -> frozenset[str]:
    """The words by which prompts are compared: in lower case, with three characters or more."""
    return frozenset(_PROMPT_WORD.findall(prompt.lower()))


def compute_text_hash(text: str) -> str:
    """A hash of free text, the same for the same words in any case and spacing. It contains no words, so nothing
    forgotten stays in it."""
    return hex_hash(" ".join(text.lower().split()), 16)


def jaccard(words: Iterable[str], others: Iterable[str]) -> float:
    """The share of common words among all words of both, from 0 to 1; 0 if there are no words."""
    first, second = set(words), set(others)
    return len(first & second) / len(first | second) if first or second else 0.0


_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
"""Matches a word of a command that may be recorded: paths and options are none, and it is too short for a secret."""


def name_command(programs: Sequence[str]) -> str:
    """A command as a tool call for `ToolsUsed`, such as `exec:git status`. `programs` are the commands that it runs.
    Words that are no plain names are left out: paths, options, possible secrets."""
    parts = programs[0].split() if programs else []
    if not parts:
        return "exec"
    program = re.sub(r"(?<=^python)[\d.]+$", "", parts[0].rsplit("/", 1)[-1])
    if not _PLAIN_NAME.fullmatch(program.replace(".", "")):
        return "exec"
    second = parts[1] if len(parts) > 1 and _PLAIN_NAME.fullmatch(parts[1]) else ""
    return f"exec:{program} {second}".rstrip()

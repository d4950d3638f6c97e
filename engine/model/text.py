"""Makes hostile text safe (`sanitise`), and words values for people: counts, spans of time, names. Text from agents,
models, files and git is hostile until it was sanitised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.frozen import frozen

if TYPE_CHECKING:
    from pydantic import ValidationError

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

_PROMPT_WORD = re.compile(r"[a-z0-9_]{3,}")
"""See `prompt_words`."""

_WORD = re.compile(r"[^\W\d_]{4,}")
"""See `words_of`."""


def validation_faults(error: ValidationError) -> list[str]:
    """The errors that pydantic found in a document, in words: the place, the expected value, and the actual value."""
    return [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, not {str(fault['input'])[:60]!r}"
        for fault in error.errors(include_url=False)
    ]


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with a noun: `1 file`, `0 files`, `3,210 files`. `plural` is needed if it is irregular: `2 branches`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + ('es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's')}"


def sanitise(text: str) -> str:
    """`text` without escape sequences, C0/C1 controls and direction overrides. Newlines stay, a tab becomes up to four
    spaces, and an invalid character becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text  # most texts are printable
    return _STRAY.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text))).expandtabs(4)


def one_line(text: str) -> str:
    """`text` sanitised and on one line, with single spaces."""
    return " ".join(sanitise(text).split())


def prompt_words(prompt: str) -> frozenset[str]:
    """The words by which prompts are compared: in lower case, with three characters or more."""
    return frozenset(_PROMPT_WORD.findall(prompt.lower()))


def failures(failed: int, errors: int) -> str:
    """ "1 test failed", "2 tests failed, 1 error", "1 error"."""
    tests = f"{count(failed, 'test')} failed" if failed or not errors else ""
    return ", ".join(filter(None, [tests, count(errors, "error") if errors else ""]))


def seconds_in_words(seconds: float) -> str:
    """`2.4 s`, `<0.1 s`."""
    return "<0.1 s" if seconds < 0.05 else f"{seconds:.1f} s"


def text_hash(text: str) -> str:
    """A hash of free text, the same for the same words in any case and spacing. It contains no words, so nothing
    forgotten stays in it."""
    import hashlib  # not before the first frame

    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def counted(items: Sequence[object], noun: str) -> str:
    """`the file` for one, `the 3 files` for more, before a list of them."""
    return f"the {noun}" if len(items) == 1 else f"the {count(len(items), noun)}"


def article(noun: str) -> str:
    """`a` or `an`, by the first letter: `an archive`. A `u` is read as in `user`."""
    return "an" if noun[0] in "aeioAEIO" else "a"


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


def moment(when: datetime, now: datetime) -> str:
    """A time in words in the zone of `now`: `11:02`, `yesterday 11:02`, `12 March`, `12 March 2024`."""
    local = when.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"{local:%H:%M}"
    if local.date() == now.date() - timedelta(days=1):
        return f"yesterday {local:%H:%M}"
    return f"{local.day} {local:%B}" + ("" if local.year == now.year else f" {local.year}")


@lru_cache(2_000)
def plain(text: str, max_length: int = 60) -> str:
    """Hostile text on one line, without controls and undecodable bytes, cut to `max_length` characters by an
    ellipsis."""
    line = " ".join(sanitise(text).encode(errors="replace").decode().split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def quote(text: str, max_length: int = 240) -> str:
    """Hostile text in quotes, on one line, without its full stop, cut to `max_length` characters by an ellipsis."""
    return f"“{plain(text, max_length).strip('.')}”"


def jaccard(words: Iterable[str], others: Iterable[str]) -> float:
    """The share of common words among all words of both, from 0 to 1; 0 if there are no words."""
    first, second = set(words), set(others)
    return len(first & second) / len(first | second) if first or second else 0.0


def without_invalid_xml(text: str) -> str:
    """Hostile text without the characters that XML forbids, because in a prompt it is between tags."""
    return sanitise(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def approved_text(text: str, *, is_quote: bool) -> str:
    """A text for a prompt. A quote is marked as approved by the operator."""
    return f"{text} (approved by the operator)" if is_quote else text


def tail(path: str, max_length: int = 32) -> str:
    """A path, cut from the left to `max_length` characters."""
    line = plain(path, 4096)
    return line if len(line) <= max_length else "…" + line[1 - max_length :]


def join_names(names: Iterable[str], shown: int = 8) -> str:
    """`a`, `a and b`, `a, b and 3 more`; every name sanitised."""
    clean = [one_line(name) for name in names]
    if len(clean) <= shown:
        return " and ".join(filter(None, [", ".join(clean[:-1]), *clean[-1:]]))
    return f"{', '.join(clean[:shown])} and {len(clean) - shown} more"


def join_shortened(names: Iterable[str], shown: int = 2, max_length: int = 32) -> str:
    """The names as `join_names` writes them, each cut from the left to `max_length` characters."""
    return join_names((tail(name, max_length) for name in names), shown)


def capitalised(sentence: str) -> str:
    """`sentence` with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def last_line(output: str) -> str:
    """The last line that is not empty, preferably of an error, at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


def words_of(text: str) -> set[str]:
    """The words of at least four letters, in lower case, to compare subjects by."""
    return {word.casefold() for word in _WORD.findall(text)}


def because(*reasons: str) -> str:
    """The end of a sentence: `; reason` for each reason that is not empty."""
    return "".join(f"; {reason}" for reason in reasons if reason)


def money(microusd: int) -> str:
    """Micro-dollars as dollars and cents."""
    return f"${microusd / 1e6:.2f}"


def local_time(instant: str) -> str:
    """An instant in ISO format as local time, to the minute."""
    return f"{datetime.fromisoformat(instant).astimezone():%Y-%m-%d %H:%M}"


def in_words(name: str) -> str:
    """`not-now` and `kept_old` with spaces."""
    return re.sub("[-_]", " ", name)


# -- a marked section of a file that others own

# It begins with the first opening mark that is followed by a closing mark without another opening mark in between.
# Every other byte of the file stays.


@frozen
class Marks:
    """The comments around a section. `name` distinguishes it from other sections."""

    name: str

    @property
    def opening(self) -> str:
        """The line before the section."""
        return f"<!-- {self.name} -->"

    @property
    def closing(self) -> str:
        """The line after the section."""
        return f"<!-- /{self.name} -->"


INHERITED = Marks("clawpy:inherited-wisdom")
"""The section in a `soul.md` with the guidance of the agent's leaders (SPEC 1.6)."""

LEARNT = Marks("clawpy:learnt")
"""The section in an `AGENTS.md` with the learnings of the project (SPEC 1.12)."""


def find_section(data: bytes, marks: Marks) -> tuple[int, int] | None:
    """(begin, end) of the section with its marks, None if there is none."""
    first, last = marks.opening.encode(), marks.closing.encode()
    at = data.find(first)
    while at >= 0:
        end = data.find(last, at + len(first))
        if end < 0:
            return None
        inner = data.rfind(first, at, end)
        if inner == at:
            return at, end + len(last)
        at = inner
    return None


def write_section(data: bytes, body: str, marks: Marks) -> bytes:
    """`data` with `body` (lines separated by "\\n", without marks) as its section.

    A new section is added at the end, after an empty line. With an empty body, no section is added, and an existing one
    keeps only its marks. Line ends are those of the file.
    """
    span = find_section(data, marks)
    if not body and span is None:
        return data
    newline = _newline(data)
    lines = [marks.opening, *(neutral(body, marks).split("\n") if body else ()), marks.closing]
    section = newline.join(line.encode(errors="replace") for line in lines)
    if span is not None:
        return data[: span[0]] + section + data[span[1] :]
    gap = b""
    if data:
        gap = newline if data.endswith((b"\n", b"\r")) else newline * 2
        if data.endswith(newline * 2):
            gap = b""
    return data + gap + section + newline


def read_section(data: bytes, marks: Marks) -> str:
    """The text of the section without its marks, lines separated by "\\n"; "" if there is none."""
    span = find_section(data, marks)
    if span is None:
        return ""
    inner = data[span[0] + len(marks.opening.encode()) : span[1] - len(marks.closing.encode())]
    return "\n".join(inner.decode(errors="replace").splitlines()).strip("\n")


def without_section(text: str, marks: Marks) -> str:
    """`text` without the section and its marks."""
    data = text.encode(errors="replace")
    span = find_section(data, marks)
    return text if span is None else (data[: span[0]] + data[span[1] :]).decode()


def neutral(body: str, marks: Marks) -> str:
    """`body`, changed so that it contains no mark."""
    for mark in (marks.opening, marks.closing):
        body = body.replace(mark, mark.replace("<", "&lt;", 1))
    return body


def _newline(data: bytes) -> bytes:
    first = re.search(rb"\r\n|\n|\r", data)
    return first[0] if first else b"\n"

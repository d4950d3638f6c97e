"""Texts of others: made safe to show, shortened, searched and compared.

Text from agents, models, files and git is hostile until it was sanitised.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, ended by BEL or ST
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[@-_]?"  # two-character escapes, stray ESC
)
"""Escape sequences of terminals."""

_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""Surrogates, which Python uses for file names that are not UTF-8. Neither terminals nor databases accept them."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Control characters except tab and newline, direction overrides, and the byte order mark."""

MAX_WORD_CHARS = 200
"""Maximum number of characters of a word that `clip_words` keeps whole."""


def sanitise(text: str) -> str:
    """`text` without escape sequences, C0/C1 controls and direction overrides. Newlines stay, a tab becomes up to four
    spaces, and an invalid character becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text  # most texts are printable
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text))).expandtabs(4)


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


def clip_words(text: str, max_words: int) -> str:
    """`text` in one line with at most `max_words` words. An ellipsis marks that it was cut."""
    words = [
        word if len(word) <= MAX_WORD_CHARS else word[: MAX_WORD_CHARS - 1] + "…" for word in sanitise(text).split()
    ]
    if len(words) <= max_words:
        return " ".join(words)
    return " ".join(words[:max_words]).rstrip(".,;:") + "…"


def shorten_path(path: str, max_length: int = 32) -> str:
    """A path, cut from the left to `max_length` characters."""
    line = plain(path, 4096)
    return line if len(line) <= max_length else "…" + line[1 - max_length :]


# Letters of other scripts that look like a Latin letter. Those that NFKC converts (full width, bold) are not listed.
_LOOKALIKE_PAIRS = (
    "аa вb сc ԁd еe ɡg һh іi јj ԛq кk ӏl ⅼl мm пn оo рp ѕs тt υu ѵv ԝw хx уy ᴢz "
    "АA ВB СC ЕE НH ІI ЈJ КK МM ОO РP ЅS ТT ХX УY "
    "αa βb εe ηn ιi κk νv οo ρp τt χx υu γy ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX "
    "ıi ȷj ɑa ɩi օo ոn սu հh ցg "
    "‐- ‑- ‒- –- —- ―- −- ﹘- ﹣- "
    "∕/ ⁄/ ⧸/ ‘' ’' ‚' ‛' “\" ”\" „\" ´' ∣| ｜| ；; ⁏;"
)
_LOOKALIKES = str.maketrans({pair[0]: pair[1] for pair in _LOOKALIKE_PAIRS.split()})
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\x85\r]")


def fold_text(text: str) -> str:
    """`text` as a reader sees it: in NFKC, look-alikes as Latin letters, with plain dashes, quotes and spaces, and
    without invisible characters. Accents and newlines stay; a line separator becomes a space. Takes linear time.
    """
    if text.isascii():
        return _INVISIBLE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _INVISIBLE.sub("", text.replace("\r\n", "\n"))
    text = _SPACES.sub(" ", text)
    return unicodedata.normalize("NFKC", text.translate(_LOOKALIKES)).translate(_LOOKALIKES)


def compile_any(*patterns: str) -> re.Pattern[str]:
    """A pattern that matches any of these patterns, in any case."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_CODE_OR_COMMENT = re.compile(
    r"^(?:[ \t]*(?:[-*][ \t]+)?(```+|~~~+).*?(?:\n[ \t]*\1|\Z)"  # fenced code
    r"| {0,3}<!--(?:(?!<!--).)*?-->)[^\n]*",  # a comment
    re.MULTILINE | re.DOTALL,
)


def remove_code_and_comments(text: str) -> str:
    """A Markdown text with empty lines in place of fenced code, and of comments that begin a line."""
    return _CODE_OR_COMMENT.sub(lambda hidden: "\n" * hidden[0].count("\n"), text)


_MARKDOWN_LINE = re.compile(r" {0,3}(?![ \t])(?:[-*+] \[(?P<mark>.)\] )?(?P<words>.*)")
"""Matches a line that is not indented as code. It has a `mark` if it is a list item with a check box."""


class MarkdownLine(NamedTuple):
    """A line of a Markdown text that is no code and no comment."""

    number: int
    """From 1."""
    mark: str | None
    """What is in its check box, " " for an empty one; None without a box."""
    text: str


def read_markdown_lines(text: str) -> Iterator[MarkdownLine]:
    """The lines of a Markdown text without its code and comments."""
    for number, line in enumerate(remove_code_and_comments(text).splitlines(), 1):
        if match := _MARKDOWN_LINE.fullmatch(line.rstrip()):
            yield MarkdownLine(number, match["mark"], match["words"].strip())


def remove_invalid_xml(text: str) -> str:
    """Hostile text without the characters that XML forbids, because in a prompt it is between tags."""
    return sanitise(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def find_last_error_line(output: str) -> str:
    """The last line that begins with "error", or else the last that is not empty; at most 300 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if line.lower().startswith("error")] or lines
    return lines[-1][:300] if lines else "it printed nothing"


_PROMPT_WORD = re.compile(r"[a-z0-9_]{3,}")


def split_prompt_words(prompt: str) -> frozenset[str]:
    """The words by which prompts are compared: in lower case, with three characters or more."""
    return frozenset(_PROMPT_WORD.findall(prompt.lower()))


def hex_hash(text: str, length: int = 64) -> str:
    """The first `length` digits of the SHA-256 of a text, in hexadecimal. A character without UTF-8 counts as "?"."""
    import hashlib  # not before the first frame

    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:length]


def compute_text_hash(text: str) -> str:
    """A hash of free text, the same for the same words in any case and spacing. It contains no words, so nothing
    forgotten stays in it."""
    return hex_hash(" ".join(text.lower().split()), 16)


def jaccard(words: Iterable[str], others: Iterable[str]) -> float:
    """The share of common words among all words of both, from 0 to 1; 0 if there are no words."""
    first, second = set(words), set(others)
    return len(first & second) / len(first | second) if first or second else 0.0

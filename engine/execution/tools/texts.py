"""Makes the texts that a model gets from its tools: parts of files, their changes, and web pages as text (SPEC 3.8).

The functions are pure. Pages may be hostile, and `html.parser` can take minutes for a few megabytes of broken HTML. So
no pattern here searches beyond the next tag or the end of a comment, and the time is proportional to the length of the
page. Broken HTML is never an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from engine.files import read_table
from engine.model import Refusal

# -- texts of files

MAX_RESULT_CHARS = 50_000
"""Maximum number of characters of a tool's result that a model receives."""

MAX_DIFF_CHARS = 20_000
"""Maximum number of characters of a diff that are shown."""

MAX_COMPARED_LINES = 5_000
"""Maximum number of lines of a file that are compared. The time grows with the square of their number."""

NO_NEWLINE = "\\ No newline at end of file"
"""The line of a diff below a line that no newline ends, as git writes it."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text, which is so if it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its newline. Only a newline ends a line, as in editors and diffs."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def cut_lines(text: str, first: int, count: int | None) -> str:
    """`count` lines of `text`, starting at line `first` (from 1). None for all lines.

    The result has at most `MAX_RESULT_CHARS` characters of whole lines. If anything was left out, a last line in square
    brackets says so.
    """
    lines = split_lines(text)
    total = len(lines)
    start = min(max(first, 1) - 1, total)
    requested = lines[start : None if count is None else start + count]
    shown_lines: list[str] = []
    size = 0
    for line in requested:
        if size + len(line) > MAX_RESULT_CHARS:
            break
        shown_lines.append(line)
        size += len(line)
    if not shown_lines and requested:
        line = requested[0]
        return f"{line[:MAX_RESULT_CHARS]}\n[line {start + 1} of {total:,} has {len(line):,} characters, cut here]"
    end = start + len(shown_lines)
    if start == 0 and end == total:
        return "".join(shown_lines)
    if not shown_lines:
        return f"[the file has {total:,} lines; nothing from line {first}]"
    more = f"; go on with first_line {end + 1}" if end < total else ""
    part = "".join(shown_lines)
    line_break = "" if part.endswith("\n") else "\n"
    return f"{part}{line_break}[lines {start + 1}-{end} of {total:,}{more}]"


def keep_tail(text: str) -> str:
    """The last `MAX_RESULT_CHARS` characters of `text`, in whole lines if possible. If anything was left out, a first
    line in square brackets says so."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    tail = text[-MAX_RESULT_CHARS:]
    tail = tail.partition("\n")[2] or tail
    return f"[the first {len(text) - len(tail):,} characters were left out]\n{tail}"


def replace_once(data: bytes, old: str, new: str) -> tuple[bytes, int]:
    """Replace the only occurrence of `old` in `data`. Returns the new data and the number of the changed line. Line
    endings stay as they are.

    Raises `Refusal` `empty_text`, `no_change`, `not_found`, `not_unique`.
    """
    if not old:
        raise Refusal("empty_text", "old_text is empty", "give the text to replace, or use write for a whole file")
    if old == new:
        raise Refusal("no_change", "old_text and new_text are the same", "give the text that old_text is to become")
    before, after = old.encode(), new.encode()
    count = data.count(before)
    if b"\r\n" in data and "\r" not in old:
        # Models write \n, also for a file that has \r\n.
        is_windows_text = not count and "\n" in old
        if is_windows_text:
            before = old.replace("\n", "\r\n").encode()
            count = data.count(before)
        if is_windows_text or data.count(b"\n") == data.count(b"\r\n"):
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
    if not count:
        raise Refusal(
            "not_found", "old_text is not in the file", "read it again and copy exactly, spaces and line ends too"
        )
    if count > 1:
        raise Refusal(
            "not_unique",
            f"old_text is in the file {count} times",
            "give more of the lines around it, so that it is one",
        )
    return data.replace(before, after), data[: data.index(before)].count(b"\n") + 1


def make_unified_diff(before: str, after: str, path: str) -> str:
    """The change of a file as a diff for the operator; "" if nothing changed. A carriage return is shown as ␍, so that
    a change of line ends can be seen."""
    old, new = split_lines(before), split_lines(after)
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return f"{path}: {len(old):,} lines become {len(new):,}"
    lines = difflib.unified_diff(old, new, path, path)
    diff = "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}\n" for line in lines)
    diff = diff.removesuffix("\n").replace("\r", "␍")
    if len(diff) <= MAX_DIFF_CHARS:
        return diff
    return f"{diff[: diff.rfind(chr(10), 0, MAX_DIFF_CHARS)]}\n… [the rest of the change is not shown]"


# -- web pages as text

_ELEMENTS = {name: frozenset(words.split()) for name, words in read_table(__file__, "html.toml").items()}

_HEADINGS = {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}
_STARTS = {
    **dict.fromkeys(_ELEMENTS["blocks"], "\n\n"), **_HEADINGS,
    "li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "\n```\n",
}  # fmt: skip
"""The text that stands for the beginning of an element."""

_ENDS = dict.fromkeys([*_ELEMENTS["blocks"], *_HEADINGS], "\n\n") | {"pre": "\n```\n"}
"""The text that stands for the end of an element."""

_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]{0,40})(?P<rest>[^<>]*)>?|<[!?/][^<>]*>?", re.S)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.I)
_HIDDEN = re.compile(r"\shidden(?=[\s=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.I)
_ATTRIBUTES = {
    name: re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.I) for name in ("href", "alt")
}
"""Match an attribute with its value, by its name."""


class _Tag(NamedTuple):
    """A tag of a page, with the text before it. A comment has no name."""

    text: str
    """As it is in the page, with character references."""
    name: str = ""
    is_end: bool = False
    """Whether it ends an element."""
    attributes: str = ""


def convert_html_to_text(html: str) -> str:
    """The text of a page: its title, then words, headings, lists and links. Scripts, styles and hidden parts are left
    out."""
    page = _PageText()
    for tag in _find_visible_tags(html):
        page.add(tag)
    title = _TITLE.search(html)
    return "\n\n".join(filter(None, [" ".join(unescape(title[1]).split()) if title else "", page.text()]))


class _PageText:
    """The text of a page, which grows tag by tag."""

    def __init__(self) -> None:
        self._pieces = ["\n"]
        self._link_targets: list[str] = []
        """The targets of the links that are open, "" for one that is not shown."""
        self._is_preformatted = False

    def add(self, tag: _Tag) -> None:
        """Add the text before a tag, and what stands for the tag itself."""
        text = unescape(tag.text)
        if not self._is_preformatted:
            text = re.sub(r"\s+", " ", text)
            text = text.lstrip() if self._pieces[-1][-1] in " \n" else text
        if tag.name == "pre":
            self._is_preformatted = not tag.is_end
        self._pieces += filter(None, [text, self._render(tag)])

    def text(self) -> str:
        """The text so far, without blank lines in a row."""
        lines = "".join(self._pieces).split("\n")
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()

    def _render(self, tag: _Tag) -> str:
        """What stands for a tag in the text."""
        if tag.name == "a" and tag.is_end:
            target = self._link_targets.pop() if self._link_targets else ""
            return f" ({target})" if target else ""
        if tag.name == "a":
            target = _read_attribute("href", tag.attributes)
            self._link_targets.append(target if target.startswith(("http://", "https://", "/")) else "")
            return ""
        if tag.name == "img":
            alternative = _read_attribute("alt", tag.attributes)
            return f"[{alternative}]" if alternative else ""
        return (_ENDS if tag.is_end else _STARTS).get(tag.name, "")


def _find_visible_tags(html: str) -> Iterator[_Tag]:
    """The tags outside of hidden elements. The tag that begins a hidden element has only the text before it."""
    hidden_element, depth, place = "", 0, 0
    for match in _TAG.finditer(f"{html}</html>"):  # the tag at the end has the rest of the text before it
        text, place = html[place : match.start()], match.end()
        tag = _Tag(text, (match["tag"] or "").lower(), bool(match["end"]), match["rest"] or "")
        if depth:
            if tag.name == hidden_element and tag.is_end:
                depth -= 1
            elif tag.name == hidden_element and tag.name not in _ELEMENTS["hidden"]:
                depth += 1
        elif _begins_hidden_element(tag):
            hidden_element, depth = tag.name, 1
            yield _Tag(tag.text)
        else:
            yield tag


def _begins_hidden_element(tag: _Tag) -> bool:
    if tag.is_end:
        return False
    is_marked = tag.name not in _ELEMENTS["open_ended"] and _HIDDEN.search(tag.attributes) is not None
    return is_marked or tag.name in _ELEMENTS["hidden"]


def _read_attribute(name: str, attributes: str) -> str:
    """The value of an attribute of a tag; "" without it."""
    match = _ATTRIBUTES[name].search(attributes)
    return unescape(match[match.lastindex or 0]).strip() if match else ""

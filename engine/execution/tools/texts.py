"""Makes the texts that tools return to a model: parts of files, changes of files, and web pages. It reads no files
(SPEC 3.8).

Web pages may be hostile, and `html.parser` can take minutes for a few megabytes of broken HTML. No pattern in this
module searches beyond the next tag, so the time is proportional to the length of the page. Broken HTML is never an
error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from html import unescape

from engine.model import Refusal

MAX_RESULT = 50_000
"""Maximum number of characters of a tool's result that a model receives."""

MAX_DIFF = 20_000
"""Maximum number of characters of a diff that are shown."""

MAX_COMPARED_LINES = 5_000
"""Maximum number of lines of a file that are compared. The time grows with the square of their number."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text, which is so if it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its newline. Only a newline ends a line, as in editors and diffs."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def number_lines(text: str, first: int, count: int | None) -> str:
    """`count` lines of `text`, starting at line `first` (from 1). None for all lines.

    The result has at most `MAX_RESULT` characters of whole lines. If anything was left out, a last line in square
    brackets says so.
    """
    lines = split_lines(text)
    total = len(lines)
    start = min(max(first, 1) - 1, total)
    requested = lines[start : None if count is None else start + count]
    shown: list[str] = []
    size = 0
    for line in requested:
        if size + len(line) > MAX_RESULT:
            break
        shown.append(line)
        size += len(line)
    if not shown and requested:
        line = requested[0]
        return f"{line[:MAX_RESULT]}\n[line {start + 1} of {total:,} has {len(line):,} characters, cut here]"
    end = start + len(shown)
    if start == 0 and end == total:
        return "".join(shown)
    if not shown:
        return f"[the file has {total:,} lines; nothing from line {first}]"
    more = f"; go on with first_line {end + 1}" if end < total else ""
    text = "".join(shown)
    if not text.endswith("\n"):
        text += "\n"
    return f"{text}[lines {start + 1}-{end} of {total:,}{more}]"


def keep_tail(text: str) -> str:
    """The last `MAX_RESULT` characters of `text`, in whole lines if possible. If anything was left out, a first line in
    square brackets says so."""
    if len(text) <= MAX_RESULT:
        return text
    tail = text[-MAX_RESULT:]
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
        raise Refusal("no_change", "old_text and new_text are the same", "nothing was changed")
    windows = b"\r\n" in data
    before, after = old.encode(), new.encode()
    count = data.count(before)
    if windows and "\r" not in old:
        # Models write \n, also for a file that has \r\n.
        if not count and "\n" in old:
            before = old.replace("\n", "\r\n").encode()
            count = data.count(before)
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
        elif data.count(b"\n") == data.count(b"\r\n"):
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


def unified_diff(before: str, after: str, path: str) -> str:
    """The change of a file as a diff for the operator; "" if nothing changed."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return f"{path}: {len(old):,} lines become {len(new):,}"
    lines = list(difflib.unified_diff(old, new, path, path, lineterm=""))
    diff = "\n".join(lines)
    if len(diff) <= MAX_DIFF:
        return diff
    return f"{diff[: diff.rfind(chr(10), 0, MAX_DIFF)]}\n… [the rest of the change is not shown]"


_HIDDEN_ELEMENTS = frozenset(
    {
        "title", "script", "style", "noscript", "iframe", "textarea", "xmp", "noembed", "template", "svg", "math",
        "object", "select", "canvas",
    }
)  # fmt: skip
"""Elements whose content is not shown to a reader. The title is read separately."""

_OPEN_ENDED = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
        "td", "th", "tr", "dt", "dd", "option", "body", "html",
    }
)  # fmt: skip
"""Elements that need no end tag. They are never treated as hidden, because that could hide the whole rest of the
page."""

_BLOCKS = (
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "dl", "dt", "dd", "hr",
    "tr", "table", "figure", "form", "fieldset", "blockquote", "address", "details", "summary", "body",
)  # fmt: skip
_HEADINGS = {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}
_STARTS = dict.fromkeys(_BLOCKS, "\n\n") | _HEADINGS
_STARTS |= {"li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "\n```\n"}
_ENDS = dict.fromkeys([*_BLOCKS, *_HEADINGS], "\n\n") | {"pre": "\n```\n"}

_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][\w:-]{0,40})(?P<rest>[^<>]*)>?|<[!?/][^<>]*>?", re.S)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.I)
_HIDDEN = re.compile(r"\shidden(?=[\s=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.I)
_HREF, _ALT = (
    re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.I) for name in ("href", "alt")
)


def html_to_text(html: str) -> str:
    """The text of a page: its title, then words, headings, lists and links. Scripts, styles and hidden parts are left
    out."""
    pieces = ["\n"]
    links: list[str] = []
    pre = False
    for words, tag, is_end, attributes in _visible_tags(html):
        if not pre:
            words = re.sub(r"\s+", " ", words)
            words = words.lstrip() if pieces[-1][-1] in " \n" else words
        pre = (pre and tag != "pre") if is_end else (pre or tag == "pre")
        written = (_ENDS if is_end else _STARTS).get(tag, "")
        if tag == "a" and is_end:
            href = links.pop() if links else ""
            written = f" ({href})" if href else ""
        elif tag == "a":
            href = _attribute(_HREF, attributes)
            links.append(href if href.startswith(("http://", "https://", "/")) else "")
        elif tag == "img" and (alt := _attribute(_ALT, attributes)):
            written = f"[{alt}]"
        pieces += filter(None, [words, written])
    title = _TITLE.search(html)
    text = "\n".join(line.rstrip() for line in "".join(pieces).split("\n"))
    parts = [" ".join(unescape(title[1]).split()) if title else "", re.sub(r"\n{3,}", "\n\n", text).strip()]
    return "\n\n".join(filter(None, parts))


def _visible_tags(html: str) -> Iterator[tuple[str, str, bool, str]]:
    """(text before the tag, name, whether it ends an element, attributes) of each tag outside of hidden elements."""
    hidden, depth, place = "", 0, 0
    for match in _TAG.finditer(f"{html}</html>"):
        words, place = html[place : match.start()], match.end()
        tag, is_end, attributes = (match["tag"] or "").lower(), bool(match["end"]), match["rest"] or ""
        if hidden:
            if tag == hidden and (is_end or tag not in _HIDDEN_ELEMENTS):
                depth += -1 if is_end else 1
            hidden = hidden if depth else ""
        elif not is_end and (tag in _HIDDEN_ELEMENTS or (tag not in _OPEN_ENDED and _HIDDEN.search(attributes))):
            hidden, depth = tag, 1
            yield unescape(words), "", False, ""
        else:
            yield unescape(words), tag, is_end, attributes


def _attribute(pattern: re.Pattern[str], rest: str) -> str:
    match = pattern.search(rest)
    return unescape(match[match.lastindex or 0]).strip() if match else ""

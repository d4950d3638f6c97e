"""Makes text of a page of HTML: words, headings, lists, links; no scripts, styles or hidden parts.

Not `html.parser`: that takes minutes for some megabytes of rubbish, and pages are hostile. Here every step goes
forward, so the time is linear in the length, and nothing is an error.
"""

from __future__ import annotations

import difflib
import re
from html import unescape

from engine.model import Refusal

# Edits and shows text for the tools: parts of a file, one replacement, diffs, results of bounded size. Pure.


MAX_RESULT = 50_000
"""Characters of one call's result that a model receives."""

MAX_DIFF = 20_000
"""Characters of a diff that are shown."""

MAX_COMPARED_LINES = 5_000
"""Lines of a file that are compared: the time grows with the square of their number."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text: it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines as editors and diffs count them: only a newline ends one. Each keeps its end."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def numbered_lines(text: str, first: int, count: int | None) -> str:
    """`count` lines of `text` from line `first` (from 1), whole lines, at most `MAX_RESULT` characters; a last
    line in square brackets says what was left out."""
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


def tail_of(text: str) -> str:
    """The end of `text`, whole lines where possible; a first line in square brackets says what was left out."""
    if len(text) <= MAX_RESULT:
        return text
    tail = text[-MAX_RESULT:]
    tail = tail.partition("\n")[2] or tail
    return f"[the first {len(text) - len(tail):,} characters were left out]\n{tail}"


def replace_once(data: bytes, old: str, new: str) -> tuple[bytes, int]:
    """`data` with its only occurrence of `old` replaced, and the number of its line. Line endings stay as they are.

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
        # Models write \n; the file has \r\n, everywhere or at least there.
        if not count and "\n" in old:
            before = old.replace("\n", "\r\n").encode()
            count = data.count(before)
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
        elif data.count(b"\n") == data.count(b"\r\n"):
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
    if not count:
        raise Refusal(
            "not_found", f"old_text is not in the file{_hint_of_similar(data, old)}", "read it again and copy exactly"
        )
    if count > 1:
        raise Refusal(
            "not_unique",
            f"old_text is in the file {count} times",
            "give more of the lines around it, so that it is one",
        )
    return data.replace(before, after), data[: data.index(before)].count(b"\n") + 1


def _hint_of_similar(data: bytes, old: str) -> str:
    """A hint at a line that differs from `old` in its spaces only, "" for none."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if not first:
        return ""
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        if line.strip() == first:
            return f" (line {number} has the same words with other spaces, or what follows it differs)"
    return ""


def unified_diff(before: str, after: str, path: str) -> str:
    """The change of a file as the operator sees it; "" for none."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return f"{path}: {len(old):,} lines become {len(new):,}"
    lines = list(difflib.unified_diff(old, new, path, path, lineterm=""))
    diff = "\n".join(lines)
    if len(diff) <= MAX_DIFF:
        return diff
    return f"{diff[: diff.rfind(chr(10), 0, MAX_DIFF)]}\n… [the rest of the change is not shown]"


_RAW_ELEMENTS = frozenset({"script", "style", "noscript", "iframe", "textarea", "xmp", "noembed"})
"""Elements whose content is no markup, and no text for a reader."""

_SKIPPED_ELEMENTS = frozenset({"template", "svg", "math", "object", "select", "canvas"})
_BLOCKS = frozenset(
    {
        "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "dl", "dt", "dd",
        "hr", "tr", "table", "figure", "form", "fieldset", "blockquote", "address", "details", "summary", "body",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_OPEN_ENDED = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
        "td", "th", "tr", "dt", "dd", "option", "body", "html",
    }
)  # fmt: skip
"""Tags that need no end: a hidden one could hide everything that follows."""

_TAG = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_HIDDEN = re.compile(r"\shidden(?=[\s>=/]|$)|\saria-hidden\s{0,9}=\s{0,9}[\"']?true", re.IGNORECASE)
_HREF, _ALT = (
    re.compile(rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]*)|'([^']*)|([^\s>]*))", re.IGNORECASE)
    for name in ("href", "alt")
)


class _TextWriter:
    """Collects the text; white space becomes one space, except in `pre`."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.title: list[str] = []
        self.in_title = False
        self.pre = 0
        self.links: list[str] = []
        self._last = "\n"

    def put_words(self, text: str) -> None:
        text = unescape(text)
        if self.in_title:
            self.title.append(text)
            return
        if not self.pre:
            text = " ".join(text.split()).join((" " if text[:1].isspace() else "", " " if text[-1:].isspace() else ""))
            if self._last in " \n":
                text = text.lstrip(" ")
        self.put(text)

    def put(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self._last = text[-1]

    def open_tag(self, tag: str, whole: str) -> None:
        if tag == "title":
            self.in_title = True
        elif tag in _HEADINGS:
            self.put(f"\n\n{_HEADINGS[tag]}")
        elif tag == "li":
            self.put("\n- ")
        elif tag == "br":
            self.put("\n")
        elif tag in ("td", "th"):
            self.put(" | ")
        elif tag == "pre":
            self.pre += 1
            self.put("\n```\n")
        elif tag == "a":
            href = _attribute(_HREF, whole)
            self.links.append(href if href.startswith(("http://", "https://", "/")) else "")
        elif tag == "img" and (alt := _attribute(_ALT, whole)):
            self.put(f"[{alt}]")
        elif tag in _BLOCKS:
            self.put("\n\n")

    def close_tag(self, tag: str) -> None:
        if tag == "title":
            self.in_title = False
        elif tag == "pre" and self.pre:
            self.pre -= 1
            self.put("\n```\n")
        elif tag == "a" and self.links:
            if href := self.links.pop():
                self.put(f" ({href})")
        elif tag in _HEADINGS or tag in _BLOCKS:
            self.put("\n\n")

    def page_text(self) -> str:
        text = "\n".join(line.rstrip() for line in "".join(self.pieces).split("\n"))
        text = re.sub(r"\n{3,}", "\n\n", text).strip()
        title = " ".join("".join(self.title).split())
        return f"{title}\n\n{text}" if title else text


def html_to_text(html: str) -> str:
    """The text of a page, its title first. Rubbish is read as far as it can be; takes time linear in the length."""
    out = _TextWriter()
    lower = html.lower() if len(html.lower()) == len(html) else html
    silent: list[str] = []
    place = search_from = 0
    length = len(html)
    while place < length:
        at = html.find("<", max(place, search_from))
        named = _TAG.match(html, at + 1) if at >= 0 else None
        if at >= 0 and named is None and html[at + 1 : at + 2] not in ("!", "?", "/"):
            search_from = at + 1  # only a sign among the words
            continue
        if at < 0:
            at = length
        if at > place and not silent:
            out.put_words(html[place:at])
        if at == length:
            break
        if html.startswith("<!--", at):
            end = html.find("-->", at + 4)
            place = length if end < 0 else end + 3
            continue
        end = html.find(">", at)
        if end < 0:  # no tag ends any more
            break
        place = end + 1
        if named is None:
            continue
        closes, tag = bool(named[1]), named[2].lower()
        if silent:
            if tag == silent[-1]:
                silent.pop() if closes else silent.append(tag)
        elif closes:
            out.close_tag(tag)
        elif tag in _RAW_ELEMENTS:
            over = lower.find(f"</{tag}", place)
            place = length if over < 0 else over
        elif tag in _SKIPPED_ELEMENTS or (tag not in _OPEN_ENDED and _HIDDEN.search(html[at : end + 1])):
            silent.append(tag)
        else:
            out.open_tag(tag, html[at : end + 1])
    return out.page_text()


def _attribute(pattern: re.Pattern[str], tag: str) -> str:
    match = pattern.search(tag)
    return unescape(match[match.lastindex or 0]).strip() if match else ""

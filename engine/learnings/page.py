"""A Markdown page of entries, each with YAML front matter (SPEC 6.1): what is in it, and how it is changed. Pure.

An entry begins at a line `---` whose next line is `id: …` and goes to the next such line; its text begins after the
`---` that closes the front matter. A line of a text that is `---` is written `\\---`; one that somebody else wrote
is text all the same, for no `id:` follows it. What is changed are single values; every other byte stays as it was: line
ends, comments, fields that nobody knows, entries that make no sense.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.learnings import front_matter
from engine.learnings.front_matter import KEY, Value
from engine.values import sanitise

MARK = "---"
_ESCAPED = re.compile(r"\\+---[ \t]*$")
_TO_ESCAPE = re.compile(r"\\*---[ \t]*$")
_HAND_MADE = re.compile(r"(?:type|domain|title|status|importance|confidence|created_at|session_id)[ \t]*:")
"""Front matter that somebody wrote by hand may begin with one of these instead of an id."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")

MOST_FRONT = 400
"""Lines of front matter."""


@dataclass(slots=True)
class Part:
    """One entry of a page, or what stands before the first one. `line` is the number of its first line; `opening` and
    `closing` are the places of its marks in `lines`, -1 where there are none. `fault` says what is wrong with it."""

    line: int
    lines: list[str]
    opening: int = -1
    closing: int = -1
    id: str = ""
    fault: str = ""
    fields: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where each key stands in `lines`, from its line to the one after its last."""

    @property
    def text(self) -> str:
        """What it says."""
        said = [line.rstrip("\r\n") for line in self.lines[self.closing + 1 :]] if self.closing >= 0 else []
        return sanitise("\n".join(one[1:] if _ESCAPED.match(one) else one for one in said)).strip("\n")

    def value(self, key: str) -> Value:
        """The value of a key, "" where it has none. Raises ValueError that says in which line what is wrong."""
        where = self.fields.get(key)
        if where is None:
            return ""
        lines = [line.rstrip("\r\n") for line in self.lines[where[0] : where[1]]]
        found = KEY.match(lines[0].lstrip("\ufeff"))
        assert found is not None, "it was found by this"
        try:
            return front_matter.read([found[2] or "", *lines[1:]])
        except ValueError as error:
            raise ValueError(f"line {self.line + where[0]}: {key}: {error}") from None


class Page:
    """A page as it was read. `set`, `put_text` and `append` change it; `data` is what it is now."""

    def __init__(self, data: bytes = b"", path: str = "") -> None:
        """`path` is where it is: entries that somebody wrote without an id are named after it and what they say."""
        text = data.decode("utf-8", errors="surrogateescape")
        lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
        ended = re.search(r"\r?\n", text)
        self.newline = ended[0] if ended else "\n"
        self.parts = _parts(lines, path)

    @property
    def entries(self) -> list[Part]:
        """Its entries that have front matter, those with a fault too."""
        return [part for part in self.parts if part.opening >= 0]

    @property
    def data(self) -> bytes:
        """The whole page."""
        return "".join(line for part in self.parts for line in part.lines).encode("utf-8", errors="surrogateescape")

    def part(self, entry: str) -> Part | None:
        """The entry with this id; None when there is none that makes sense."""
        return next((part for part in self.entries if part.id == entry and not part.fault), None)

    def set(self, entry: str, values: Mapping[str, Value]) -> bool:
        """Give keys of an entry these values; False when it is not there. What says so already is left alone."""
        part = self.part(entry)
        if part is None:
            return False
        for key, value in values.items():
            where = part.fields.get(key)
            try:
                same = where is not None and part.value(key) == _plain(value)
            except ValueError:
                same = False
            if same:
                continue
            if not part.fields.get("id"):  # made by hand; from now on it keeps the name that it has
                part.lines.insert(part.opening + 1, f"id: {front_matter.written(entry)}{self.newline}")
                _find(part)
                where = part.fields.get(key)
            line = f"{key}: {front_matter.written(value)}{self.newline}"
            at, end = where if where is not None else (part.closing, part.closing)
            part.lines[at:end] = [line]
            _find(part)
        return True

    def put_text(self, entry: str, text: str) -> bool:
        """Give an entry another text; False when it is not there."""
        part = self.part(entry)
        if part is None:
            return False
        if part.text != text:
            part.lines[part.closing + 1 :] = self._text_lines(text)
        return True

    def append(self, entry: str, values: Mapping[str, Value], text: str) -> None:
        """Put an entry at the end. `values` are its fields without the id; one with this id must not be there."""
        if self.parts and not self.parts[-1].lines[-1].endswith("\n"):
            self.parts[-1].lines[-1] += self.newline
        if self.parts and self.parts[-1].lines[-1].strip():
            self.parts[-1].lines.append(self.newline)
        made = [MARK, f"id: {front_matter.written(entry)}"]
        made += [f"{key}: {front_matter.written(value)}" for key, value in values.items()]
        lines = [*(line + self.newline for line in (*made, MARK)), *self._text_lines(text)]
        part = Part(sum(len(one.lines) for one in self.parts) + 1, lines, 0, len(made), entry)
        _find(part)
        self.parts.append(part)

    def _text_lines(self, text: str) -> list[str]:
        said = clean_text(text).split("\n") if clean_text(text) else []
        return [self.newline, *(("\\" if _TO_ESCAPE.match(line) else "") + line + self.newline for line in said)]


def clean_text(text: str) -> str:
    """A text as an entry has it: without control characters and without empty lines around it."""
    return sanitise(text).strip("\n")


def _parts(lines: list[str], path: str) -> list[Part]:
    starts = []
    at = 0
    while at < len(lines):
        if _opens(lines, at):
            starts.append(at)
            at = max(at + 1, _closing(lines, at))
        at += 1
    parts = [Part(1, lines[: starts[0] if starts else len(lines)])]
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        part = Part(start + 1, lines[start:end], opening=0, closing=_closing(lines[start:end], 0))
        _find(part)
        parts.append(part)
    known: set[str] = set()
    for part in parts:
        if part.opening >= 0 and not part.id and not part.fault:
            # The same words in another scope are another entry: three sessions that say so recur.
            said = f"{path}\n{part.text}".encode(errors="replace")
            part.id = f"lrn_{hashlib.sha256(said).hexdigest()[:12]}"
        if part.id and not part.fault:
            if part.id in known:
                part.fault = f"line {part.line}: {part.id[:80]} is there twice"
            known.add(part.id)
    return [part for part in parts if part.lines]


def _opens(lines: list[str], at: int) -> bool:
    if _bare(lines[at]) != MARK or at + 1 >= len(lines):
        return False
    following = lines[at + 1].lstrip("\ufeff")
    if re.match(r"id[ \t]*:", following):
        return True
    return _HAND_MADE.match(following) is not None and _closing(lines, at) >= 0


def _closing(lines: list[str], opening: int) -> int:
    """Where the front matter is closed that was opened there; -1 where another entry begins before, or nothing does."""
    for at in range(opening + 1, min(len(lines), opening + MOST_FRONT)):
        if _bare(lines[at]) == MARK:
            begins = at + 1 < len(lines) and re.match(r"id[ \t]*:", lines[at + 1])
            return -1 if begins else at
    return -1


def _bare(line: str) -> str:
    return line.lstrip("\ufeff").rstrip()


def _find(part: Part) -> None:
    """Where the keys of an entry's front matter are, and what is wrong with it."""
    part.fields, part.fault = {}, ""
    part.closing = _closing(part.lines, part.opening)
    if part.closing < 0:
        part.fault = f"line {part.line}: the front matter has no closing {MARK}"
        return
    key, start = "", 0
    for at in range(part.opening + 1, part.closing + 1):
        line = part.lines[at].rstrip("\r\n").lstrip("\ufeff")
        found = KEY.match(line) if at < part.closing else None
        belongs = not line.strip() or line[:1] in (" ", "\t", "#", "-")
        if found or at == part.closing:
            if key:
                part.fields.setdefault(key, (start, _without_tail(part.lines, start, at)))
            key, start = (found[1], at) if found else ("", at)
        elif not belongs or not (key or not line.strip() or line[:1] == "#"):
            part.fault = f"line {part.line + at}: {sanitise(line.strip())[:60]!r} is no `key: value`"
            return
    try:
        part.id = str(part.value("id"))
    except ValueError as error:
        part.fault = str(error)
        return
    if part.id and not _ID.fullmatch(part.id):
        part.fault = f"line {part.line}: {sanitise(part.id)[:60]!r} is no id: letters, digits, and _ . : - between them"


def _without_tail(lines: list[str], start: int, end: int) -> int:
    """The end of a key's lines, without the empty ones and the comments that follow them."""
    while end - 1 > start and (not lines[end - 1].strip() or lines[end - 1][:1] == "#"):
        end -= 1
    return end


def _plain(value: Value) -> Value:
    """A value as it comes back when it was written."""
    if isinstance(value, tuple):
        return list(value)
    return "" if value is None else value

"""A Markdown page of entries, each with YAML front matter (SPEC 6.1): parsing and editing. Pure.

An entry begins at a line `---` followed by `id: …` and ends where the next one begins. Its text follows the `---` that
closes the front matter. A text line `---` is written `\\---`. An edit replaces single values. Every other byte stays,
including line ends, comments, unknown fields and entries that cannot be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from engine.clock import format_instant, in_utc
from engine.model import EntrySource, LearningEntry, LearningStatus, LearningType, Trust, sanitise
from engine.model.base import hex_hash

KEY_PATTERN = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]|$)")
"""The beginning of a line `key: value`."""

_UNQUOTED_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_INSTANT_TEXT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)")
"""Texts that are written without quotes, unless they are `_RESERVED_WORDS`: a word, and an instant."""

_RESERVED_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML does not read as text."""

_COMMENT = re.compile(r"(?:^|[ \t])#.*")
"""A comment of YAML."""

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]
"""The value of a key in front matter."""

REQUIRED_KEYS = frozenset(
    {"type", "domain", "importance", "confidence", "phase", "status", "reinforcement_count", "last_reinforced"}
    | {"created_at", "session_id", "session_task", "promoted_from", "promoted_at"}
)
"""Keys that are written even if they are empty, so that a reader of the file sees that they exist."""

FRONT_MATTER_MARK = "---"
"""The line above and below front matter."""

_ESCAPED_MARK = re.compile(r"\\+---[ \t]*$")
_MARK_TO_ESCAPE = re.compile(r"\\*---[ \t]*$")
"""Lines of a text that are read without their first backslash, and those that are written with one more."""

_FIRST_KEY = re.compile(
    r"\ufeff?(?:id|(?P<by_hand>type|domain|title|status|importance|confidence|created_at|session_id))[ \t]*:"
)
"""First line of front matter. An entry without an id was written by hand."""

_ENTRY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
"""A valid id of an entry."""

MAX_FRONT_LINES = 400
"""Maximum number of lines of front matter."""


# -- pages


@dataclass(slots=True)
class Part:
    """One entry of a page, or the text before the first one."""

    line: int
    """The number of its first line."""
    lines: list[str]
    closing: int = 0
    """The index of the closing mark in `lines`, 0 without one."""
    id: str = ""
    error: str = ""
    """The problem with the entry, "" for none."""
    fields: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The range of lines of each key."""

    @property
    def is_entry(self) -> bool:
        """Whether it has front matter, or the beginning of it."""
        return bool(self.closing or self.error)

    @property
    def text(self) -> str:
        """The text below the front matter."""
        lines = [line.rstrip("\r\n") for line in self.lines[self.closing + 1 :]] if self.closing else []
        return sanitise("\n".join(text[1:] if _ESCAPED_MARK.match(text) else text for text in lines)).strip("\n")

    def value(self, key: str) -> Value:
        """The value of a key, "" if it is missing. Raises ValueError, which names the line."""
        start, end = self.fields.get(key, (0, 0))
        if not end:
            return ""
        first, *below = (line.rstrip("\r\n") for line in self.lines[start:end])
        try:
            return parse_value([first.partition(":")[2], *below])
        except ValueError as error:
            raise ValueError(f"line {self.line + start}: {key}: {error}") from None

    def parse(self) -> None:
        """Find the keys of the front matter, the id, and the error of the entry."""
        self.closing = _find_closing_mark(self.lines, 0)
        self.error = "" if self.closing else f"line {self.line}: the front matter has no closing {FRONT_MATTER_MARK}"
        self._find_fields()
        try:
            self.id = "" if self.error else str(self.value("id"))
        except ValueError as error:
            self.error = str(error)
        if self.id and not _ENTRY_ID.fullmatch(self.id):
            shown = sanitise(self.id)[:60]
            self.error = f"line {self.line}: {shown!r} is not an id: use letters and digits, with _ . : - between them"

    def _find_fields(self) -> None:
        """Find the lines of each key. Comments and empty lines after a value are not part of it."""
        self.fields, key = {}, ""
        for index in range(1, self.closing):
            line = self.lines[index].rstrip("\r\n").lstrip("\ufeff")
            if match := KEY_PATTERN.match(line):
                key = match[1]
                self.fields.setdefault(key, (index, index + 1))
            elif not line.strip() or line.startswith("#"):
                continue
            elif key and line.startswith((" ", "\t", "-")):
                self.fields[key] = (self.fields[key][0], index + 1)
            else:
                self.error = f"line {self.line + index}: {sanitise(line.strip())[:60]!r} is not `key: value`"


class Page:
    """The content of a page, which `set_fields`, `set_text` and `append` change. `data` is its present content."""

    def __init__(self, data: bytes = b"", path: str = "") -> None:
        """Entries without an id get one that is derived from `path` and their text."""
        lines = re.findall(r"[^\n]*\n|[^\n]+$", data.decode("utf-8", errors="surrogateescape"))
        first = next((line for line in lines if line.endswith("\n")), "\n")
        self.newline = "\r\n" if first.endswith("\r\n") else "\n"
        self.parts = _split_page(lines, path)

    @property
    def entries(self) -> list[Part]:
        """All entries, including those with an error."""
        return [part for part in self.parts if part.is_entry]

    @property
    def data(self) -> bytes:
        """The whole page."""
        return "".join(line for part in self.parts for line in part.lines).encode("utf-8", errors="surrogateescape")

    def part(self, entry: str) -> Part | None:
        """The entry with this id, None if it does not exist or has an error."""
        return next((part for part in self.entries if part.id == entry and not part.error), None)

    def set_fields(self, entry: str, values: Mapping[str, Value]) -> bool:
        """Set the values of an entry's keys that differ. Returns whether the entry exists."""
        part = self.part(entry)
        if part is None:
            return False
        for key, value in values.items():
            if _has_value(part, key, value):
                continue
            if "id" not in part.fields:  # written by hand; it keeps its id from now on
                part.lines.insert(1, f"id: {format_value(entry)}{self.newline}")
                part.parse()
            at, end = part.fields.get(key, (part.closing, part.closing))
            part.lines[at:end] = [f"{key}: {format_value(value)}{self.newline}"]
            part.parse()
        return True

    def set_text(self, entry: str, text: str) -> None:
        """Set the text of an existing entry."""
        part = self.part(entry)
        if part is not None and part.text != text:
            part.lines[part.closing + 1 :] = self._make_text_lines(text)

    def append(self, entry: str, values: Mapping[str, Value], text: str) -> None:
        """Add an entry at the end; its id must be new. `values` are its other fields."""
        last_lines = self.parts[-1].lines if self.parts else []
        if last_lines and not last_lines[-1].endswith("\n"):
            last_lines[-1] += self.newline
        if last_lines and last_lines[-1].strip():
            last_lines.append(self.newline)
        fields = [f"{key}: {format_value(value)}" for key, value in ({"id": entry} | dict(values)).items()]
        lines = [
            *(line + self.newline for line in (FRONT_MATTER_MARK, *fields, FRONT_MATTER_MARK)),
            *self._make_text_lines(text),
        ]
        part = Part(sum(len(part.lines) for part in self.parts) + 1, lines)
        part.parse()
        self.parts.append(part)

    def _make_text_lines(self, text: str) -> list[str]:
        """The lines of an entry's text below its front matter, an empty one first."""
        lines = clean_text(text).split("\n") if clean_text(text) else []
        return [self.newline, *(("\\" if _MARK_TO_ESCAPE.match(line) else "") + line + self.newline for line in lines)]


def clean_text(text: str) -> str:
    """The text of an entry without control characters, and without empty lines around it."""
    return sanitise(text).strip("\n")


def _split_page(lines: list[str], path: str) -> list[Part]:
    """The parts of a page: the text before the first entry, and each entry, with its id and its error."""
    starts = _find_starts(lines)
    parts = [Part(1, lines[: starts[0] if starts else len(lines)])]
    ids: set[str] = set()
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        part = Part(start + 1, lines[start:end])
        part.parse()
        if not part.id and not part.error:
            # The same text in another scope is another entry.
            part.id = "lrn_" + hex_hash(f"{path}\n{part.text}", 12)
        if not part.error and part.id in ids:
            part.error = f"line {part.line}: {part.id[:80]} appears twice"
        ids.add(part.id)
        parts.append(part)
    return [part for part in parts if part.lines]


def _find_starts(lines: list[str]) -> list[int]:
    """The indexes of the lines at which an entry begins. One without an id must have a closing mark, because the text
    of an entry may have such lines, too."""
    starts: list[int] = []
    index = 0
    while index < len(lines):
        closing = _find_closing_mark(lines, index)
        begins = _strip_mark(lines[index]) == FRONT_MATTER_MARK and index + 1 < len(lines)
        opening = _FIRST_KEY.match(lines[index + 1]) if begins else None
        if opening and (closing or not opening["by_hand"]):
            starts.append(index)
            index = max(index, closing)
        index += 1
    return starts


def _find_closing_mark(lines: list[str], opening: int) -> int:
    """The index of the closing mark of front matter; 0 if another entry or the end comes first."""
    for at in range(opening + 1, min(len(lines), opening + MAX_FRONT_LINES)):
        if _strip_mark(lines[at]) == FRONT_MATTER_MARK:
            begins = at + 1 < len(lines) and re.match(r"id[ \t]*:", lines[at + 1])
            return 0 if begins else at
    return 0


def _strip_mark(line: str) -> str:
    """A line without a byte order mark and without spaces at its end."""
    return line.lstrip("\ufeff").rstrip()


def _has_value(part: Part, key: str, value: Value) -> bool:
    """Whether a key has this value already."""
    written_value = "" if value is None else list(value) if isinstance(value, tuple) else value
    try:
        return key in part.fields and part.value(key) == written_value
    except ValueError:
        return False


# -- values


def format_value(value: Value) -> str:
    """The text of a value, in one line."""
    if isinstance(value, str) and _is_word(value):
        return value
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)  # lone surrogates
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def parse_value(lines: Sequence[str]) -> Value:
    """The value of a key: `lines[0]` is the text after the colon, the others are the lines below. Raises ValueError.

    Words and JSON, which `format_value` writes, are read without YAML, because that is twice as fast.
    """
    text = lines[0].strip() if len(lines) == 1 else ""
    if _is_word(text):
        return text
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        return _parse_value("\n".join(lines))


def _parse_value(text: str) -> Value:
    """A value that the operator wrote. If it has a colon, it may lack the quotes that YAML requires."""
    import yaml

    try:
        value = yaml.load(f"value: {text}", Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["value"]
    except (yaml.YAMLError, ValueError, RecursionError):
        plain = " ".join(_COMMENT.sub("", line).strip() for line in text.split("\n")).strip()
        if plain[:1] in tuple("\"'[{|>&*!%@`-"):
            raise ValueError(f"{plain[:60]!r} cannot be read") from None
        return plain
    return "" if value is None else value


def _is_word(text: str) -> bool:
    """Whether a text is written without quotes."""
    is_plain = _UNQUOTED_WORD.fullmatch(text) is not None and text.lower() not in _RESERVED_WORDS
    return is_plain or _INSTANT_TEXT.fullmatch(text) is not None


def _clean_words(value: object) -> str:
    """A value as text without control characters. Raises ValueError for a list or an object."""
    if isinstance(value, list | dict):
        raise ValueError("is not text")
    return clean_text(str(value))


def _check_list(value: object) -> list[object]:
    """A value as a list. Raises ValueError for an object."""
    if isinstance(value, dict):
        raise ValueError("is not a list of strings")
    return value if isinstance(value, list) else [value]


ShortText = Annotated[str, BeforeValidator(_clean_words), AfterValidator(lambda text: text[:500])]
ShortTexts = Annotated[tuple[Annotated[str, BeforeValidator(_clean_words)], ...], BeforeValidator(_check_list)]
UnitFloat = Annotated[float, Field(strict=True, ge=0, le=1)]
Instant = Annotated[datetime, AfterValidator(in_utc)] | None


# -- front matter


class FrontMatter(BaseModel):
    """The front matter of an entry."""

    type: LearningType = LearningType.DECLARATIVE
    domain: ShortText = ""
    title: ShortText = ""
    lesson: ShortText = ""
    about: ShortText = ""
    importance: UnitFloat = 0.5
    confidence: UnitFloat = 0.5
    reasons: ShortTexts = ()
    phase: ShortText = ""
    status: LearningStatus = LearningStatus.ACTIVE
    reinforcement_count: Annotated[int, Field(strict=True, ge=0)] = 0
    last_reinforced: Instant = None
    reinforced_by: ShortTexts = ()
    created_at: Instant = None
    session_id: ShortText = ""
    continues: ShortText = ""
    session_task: ShortText = ""
    agent: ShortText = ""
    workspace: Annotated[str, BeforeValidator(_clean_words)] = ""
    promoted_from: ShortTexts = ()
    promoted_at: Instant = None
    retired_because: ShortText = ""
    merged_into: ShortText = ""
    review: ShortText = ""
    review_since: Instant = None
    trust: Trust | None = None
    approved_by: ShortText = ""
    approved_at: Instant = None


def read_front_matter(part: Part) -> FrontMatter:
    """The front matter of an entry. Raises ValueError, which has the line number."""
    if part.error:
        raise ValueError(part.error)
    written = {key: part.value(key) for key in part.fields if key in FrontMatter.model_fields}
    try:
        return FrontMatter.model_validate({key: value for key, value in written.items() if value != ""})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0])
        was = f"{key} is {str(written[key])[:60]!r}"
        raise ValueError(f"line {part.line + part.fields[key][0]}: {was}: {sanitise(wrong['msg'])}") from None


def make_front_matter(entry: LearningEntry) -> dict[str, Value]:
    """The front matter of an entry, without its id."""
    fields = {name: _make_plain_value(getattr(entry, name)) for name in FrontMatter.model_fields}
    fields["promoted_from"] = format_sources(entry.promoted_from)
    return {key: value for key, value in fields.items() if value not in ("", []) or key in REQUIRED_KEYS}


def _make_plain_value(value: Any) -> Value:
    """The value of a field of an entry, as it is written."""
    match value:
        case None | datetime():
            return format_time(value)
        case tuple():
            return list(value)
        case StrEnum():
            return value.value
    return value  # type: ignore[no-any-return]


def format_sources(sources: tuple[EntrySource, ...]) -> list[str]:
    """Sources in the form `ENTRY@SESSION`."""
    return [f"{source.entry}@{source.session}" if source.session else source.entry for source in sources]


def format_time(instant: datetime | None) -> str:
    """See `format_instant`; "" for None."""
    return "" if instant is None else format_instant(instant)

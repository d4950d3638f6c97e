"""A Markdown page of entries, each with YAML front matter (SPEC 6.1): reading and editing. Pure.

An entry begins at a line `---` followed by `id: …` and ends where the next one begins. Its text follows the `---` that
closes the front matter. A text line `---` is written `\\---`. An edit replaces single values. Every other byte stays,
including line ends, comments, unknown fields and entries that cannot be read.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Annotated, Any, NoReturn

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from engine.clock import in_utc
from engine.events import Event
from engine.frozen import frozen
from engine.learning.learnings import get_domain, make_title
from engine.lessons import make_lesson_id
from engine.model import EntrySource, LearningEntry, Trust
from engine.storage.erasing import map_strings
from engine.text import hex_hash, sanitise

log = logging.getLogger(__name__)

ENTRY_VALUES = TypeAdapter(LearningEntry)
"""Reads an entry from JSON values, and writes it as such."""

FRONT_KEYS = tuple(
    field.name for field in fields(LearningEntry) if field.name not in ("scope", "scope_id", "kind", "path", "text")
)
"""The keys of front matter."""

REQUIRED_KEYS = FRONT_KEYS[: FRONT_KEYS.index("promoted_at") + 1]
"""Keys that are written even if they are empty, so that a reader of the file sees that they exist."""

LIST_KEYS = ("reasons", "reinforced_by", "promoted_from", "review_causes")
"""The keys whose values are lists. A single value may stand without brackets."""

DATE_KEYS = ("created_at", "last_reinforced", "promoted_at", "review_since", "approved_at")
"""The keys whose values are instants."""

MAX_VALUES = {"importance": 1, "confidence": 1, "reinforcement_count": 1_000_000}
"""The largest values of the keys that are numbers. The smallest is 0."""

_DELIMITER = r"---[ \t\r]*"
"""A line above or below front matter."""

_ENTRY = re.compile(
    rf"^\ufeff?{_DELIMITER}\n(?:"
    r"(?P<front>(?:id|type|domain|title|status|importance|confidence|created_at|session_id)[ \t]*:.*\n"
    rf"(?:(?!{_DELIMITER}$).*\n)*){_DELIMITER}(?:\n(?!id[ \t]*:)|\Z)"
    r"|(?=id[ \t]*:))",  # without a closing line: an error
    re.MULTILINE,
)
"""Matches the front matter of an entry. One without an id was written by hand, and must have a closing line, because
the text of an entry may have such lines, too."""

_FIELD = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:(?=\s|\Z)[ \t]*(.*(?:\n(?:(?:#.*|[ \t\r]*)\n)*[ \t-].*)*)", re.MULTILINE)
"""Matches a key of front matter with its value. Comments and empty lines after a value are not part of it."""

_WORD = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z][\w./-]*|\d{4}-\d\d-\d\dT[\d:.]+Z", re.IGNORECASE | re.ASCII
)
"""Matches a text that is written without quotes: a word that YAML reads as text, or an instant."""

_ENTRY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
"""A valid id of an entry."""

_WRITTEN_ID = re.compile(r"^id[ \t]*:[ \t]*[\"']?([\w.:-]+)", re.MULTILINE)
"""Matches the id of an entry that cannot be read."""

_COMMENT = re.compile(r"(?:^|[ \t])#.*")
"""A comment of YAML."""


def _store_event(event: Event | None) -> dict[str, Any] | None:
    """An event as JSON values."""
    return {"kind": event.kind, **vars(event)} if event else None


def _restore_event(stored: dict[str, Any] | None) -> Event | None:
    """The event that has these values, in which tuples are lists."""
    values: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in (stored or {}).items()}
    return Event.kinds[values.pop("kind")](**values) if stored else None


@frozen
class Change:
    """A change of an entry, with its event. `entry` is the entry after it. Its `fields` changed; without any, the entry
    is new."""

    entry: LearningEntry
    fields: tuple[str, ...] = ()
    event: Annotated[Event | None, PlainSerializer(_store_event), PlainValidator(_restore_event)] = None


CHANGES = TypeAdapter(list[Change])
"""Reads changes from JSON values, and writes them as such."""


def make_change(entry: LearningEntry, event: Event | None = None, /, **values: Any) -> Change:
    """The change of an entry to these values of its fields."""
    return Change(replace(entry, **values), tuple(values), event)


class Page:
    """The entries of a page, and the errors of those that cannot be read, with their lines."""

    def __init__(self, data: bytes, place: Mapping[str, Any], problem: str = "") -> None:
        """`place` has the fields that follow from the path: `path`, `scope`, `scope_id`, `kind`, and `session_id` for
        entries that name none. `problem` says why the file cannot be read."""
        self.data = data
        self.path: str = place["path"]
        self.problem = problem
        self.entries: list[LearningEntry] = []
        self.errors = [problem] if problem else []
        all_have_returns = data.count(b"\r\n") == data.count(b"\n") > 0
        self._newline = "\r\n" if all_have_returns else "\n"
        text = data.decode("utf-8", "surrogateescape").replace(self._newline, "\n")
        starts = [entry.start() for entry in _ENTRY.finditer(text)]
        self._parts = [text[start:end] for start, end in zip([0, *starts], [*starts, len(text)], strict=True)]
        """The text before the first entry, and the text of each entry."""
        self._positions: dict[str, int] = {}
        """The position in `_parts` of each entry that can be read, by its id."""
        self._unreadable_ids: set[str] = set()
        """The ids of the others. The operator may be about to retire them, so they are not added a second time."""
        if text.strip() and not starts:
            self.errors.append(
                f"{self.path} has no entry; an entry begins with front matter between two lines with ---"
            )
        line = 1 + self._parts[0].count("\n")
        for position, part in enumerate(self._parts[1:], 1):
            self._read_part(position, line, place)
            line += part.count("\n")

    def _read_part(self, position: int, line: int, place: Mapping[str, Any]) -> None:
        """Read the entry at a position, which begins at a line, or note its error."""
        part = self._parts[position]
        try:
            entry = read_entry(part, line, place)
            if entry.id in self._positions:
                raise ValueError(f"line {line}: {entry.id} appears twice")
        except ValueError as error:
            self.errors.append(f"{self.path} {error}")
            if written := _WRITTEN_ID.search(part):
                self._unreadable_ids.add(written[1])
        else:
            self._positions[entry.id] = position
            self.entries.append(entry)

    def edit(self, changes: Iterable[Change]) -> bytes:
        """The data of the page after these changes. Made a second time, they change nothing."""
        parts, positions = list(self._parts), dict(self._positions)
        for change in changes:
            entry, values = change.entry, make_front_matter(change.entry)
            position = positions.get(entry.id)
            if position is not None:
                changed = {key: values[key] for key in ("id", *change.fields) if key in values and change.fields}
                parts[position] = _edit_entry(parts[position], changed, entry.text if "text" in change.fields else None)
            elif change.fields or entry.id in self._unreadable_ids:
                log.warning(
                    "%s cannot be read in %s, or is not there any more: it was not changed", entry.id, self.path
                )
            else:
                filled = {key: value for key, value in values.items() if value not in ("", []) or key in REQUIRED_KEYS}
                gap = "" if not any(parts) else "\n" if parts[-1].endswith("\n") else "\n\n"
                positions[entry.id] = len(parts) + 1
                parts += [gap, f"---\n{_format_fields(filled)}---\n{_format_text(entry.text)}"]
        return "".join(parts).replace("\n", self._newline).encode("utf-8", "surrogateescape")


class _FrontMatter:
    """The fields in the front matter of an entry, which begins at a line of its page."""

    def __init__(self, text: str, line: int) -> None:
        """Raises ValueError for a line that belongs to no key."""
        self._text = text
        self._line = line
        self._fields = _find_fields(text, line)

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise ValueError for the value of a key, with its line."""
        line = self._line + 1 + self._text.count("\n", 0, self._fields[key].start())
        raise ValueError(f"line {line}: {key}{problem}") from None

    def read_values(self) -> dict[str, Any]:
        """The values of `FRONT_KEYS` that are written here. Raises ValueError."""
        values: dict[str, Any] = {}
        for key in self._fields.keys() & FRONT_KEYS:
            try:
                value = map_strings(parse_yaml_value(self._fields[key][2]), clean_text)
            except (ValueError, RecursionError) as error:
                self.fail(key, f": {error}")
            values[key] = [value] if value and key in LIST_KEYS and isinstance(value, str) else value
        if isinstance(sources := values.get("promoted_from"), list):
            values["promoted_from"] = [EntrySource(*str(source).split("@", 1)) for source in sources]
        return values


def read_entry(part: str, line: int, place: Mapping[str, Any]) -> LearningEntry:
    """The entry with this text, which begins at a line of its page. Raises ValueError, which has the line of the
    error."""
    opening = _ENTRY.match(part)
    if not opening or opening["front"] is None:
        raise ValueError(f"line {line}: the front matter has no closing ---")
    front = _FrontMatter(opening["front"], line)
    written = front.read_values()
    text = clean_text(re.sub(rf"^\\(\\*{_DELIMITER})$", r"\1", part[opening.end() :], flags=re.MULTILINE))
    values = _make_default_values(text, place)
    values |= {key: value for key, value in written.items() if value != ""}
    if "lesson" not in values:
        values["lesson"] = make_lesson_id(text)
    # An entry without `trust` was written by the operator, unless it names the session that it is from.
    is_quote = values["session_id"] or values.get("promoted_from")
    values.setdefault("trust", Trust.QUOTED if is_quote else Trust.OPERATOR)
    try:
        entry = ENTRY_VALUES.validate_python(values)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0])
        front.fail(key, f" is {str(written[key])[:60]!r}: {sanitise(wrong['msg'])}")
    if not _ENTRY_ID.fullmatch(entry.id):
        front.fail("id", f" is {entry.id[:60]!r}: use letters and digits, with _ . : - between them")
    for key, maximum in MAX_VALUES.items():
        if not 0 <= getattr(entry, key) <= maximum:
            front.fail(key, f" is {written[key]}: it must be from 0 to {maximum:,}")
    dates: dict[str, Any] = {key: in_utc(date) for key in DATE_KEYS if (date := getattr(entry, key))}
    return replace(entry, **dates)


def _make_default_values(text: str, place: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an entry with this text, at a place, whose front matter says nothing."""
    return {
        "id": "lrn_" + hex_hash(f"{place['path']}\n{text}", 12),
        "type": "declarative",
        "domain": get_domain(place["kind"]),
        "title": make_title(text),
        "importance": 0.5,
        "confidence": 0.5,
        "reasons": (),
        "phase": "",
        "status": "active",
        "created_at": None,
        "text": text,
        **place,
    }


def make_front_matter(entry: LearningEntry) -> dict[str, Any]:
    """The values of all keys of an entry's front matter, as they are written."""
    values = ENTRY_VALUES.dump_python(entry, mode="json")
    sources = [f"{source.entry}@{source.session}".rstrip("@") for source in entry.promoted_from]
    return {key: "" if values[key] is None else values[key] for key in FRONT_KEYS} | {"promoted_from": sources}


def clean_text(text: str) -> str:
    """The text of an entry without control characters, and without empty lines around it."""
    return sanitise(text).strip("\n")


def _find_fields(front: str, line: int) -> dict[str, re.Match[str]]:
    """The keys of front matter with their values, of the first field with a key. `line` is that above. Raises
    ValueError for a line that belongs to no key."""
    other_lines = _FIELD.sub(lambda field: "\n" * field[0].count("\n"), front).split("\n")
    for number, text in enumerate(other_lines, line + 1):
        if text.strip() and not text.startswith("#"):
            raise ValueError(f"line {number}: {sanitise(text.strip())[:60]!r} is not `key: value`")
    return {field[1]: field for field in reversed([*_FIELD.finditer(front)])}


def _edit_entry(part: str, values: Mapping[str, Any], text: str | None) -> str:
    """An entry with these values, and with this text unless it is None. An id that it has stays."""
    opening = _ENTRY.match(part)
    assert opening is not None, "only entries that can be read are edited"
    missing = dict(values)

    def replace_value(field: re.Match[str]) -> str:
        value = missing.pop(field[1], None)
        return field[0] if value is None or field[1] == "id" else f"{field[1]}: {format_value(value)}"

    front = _FIELD.sub(replace_value, opening["front"]) + _format_fields(missing)
    body = part[opening.end() :] if text is None else _format_text(text)
    return part[: opening.start("front")] + front + part[opening.end("front") : opening.end()] + body


def _format_fields(values: Mapping[str, Any]) -> str:
    """The lines of front matter with these values."""
    return "".join(f"{key}: {format_value(value)}\n" for key, value in values.items())


def _format_text(text: str) -> str:
    """The text of an entry as it is written below its front matter, after an empty line."""
    escaped = re.sub(rf"^(\\*{_DELIMITER})$", r"\\\1", clean_text(text), flags=re.MULTILINE)
    return f"\n{escaped}\n" if escaped else "\n"


def format_value(value: Any) -> str:
    """The text of a value, in one line: a word, or JSON."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def parse_yaml_value(text: str) -> Any:
    """The value that a text stands for; numbers and dates are texts, too, and null is "". Raises ValueError. Words and
    JSON, which `format_value` writes, are read without YAML, because that is twice as fast. A text without quotes may
    have a colon, unlike in YAML."""
    word = text.strip()
    if word in ("~", "null"):
        return ""
    if _WORD.fullmatch(word):
        return word
    with suppress(ValueError, RecursionError):
        if word.startswith(('"', "[")):
            return json.loads(word)
    import yaml

    try:
        return yaml.load(f"value: {text}", Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))["value"]
    except (yaml.YAMLError, RecursionError):
        plain_word = " ".join(_COMMENT.sub("", line).strip() for line in word.split("\n"))
        if plain_word[:1] not in tuple("\"'[{|>&*!%@`-"):
            return plain_word
        raise ValueError(f"{word[:60]!r} cannot be read") from None

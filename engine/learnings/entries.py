"""Entries of pages as values, and values as front matter (SPEC 6.1). Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from engine.learnings.front_matter import Value
from engine.learnings.page import Part, clean_text
from engine.values import EntrySource, LearningEntry, LearningKind, LearningScope, LearningStatus, LearningType, Trust
from engine.values.lessons import folded, lesson_id

UNAPPROVED = "quoted from sessions, and never approved by you"
"""Why a quote of a project or of all waits for the operator."""

LONGEST = 2_000
"""Characters of an entry that we write."""

TITLE = 80
ALWAYS = frozenset(
    {"type", "domain", "importance", "confidence", "phase", "status", "reinforcement_count", "last_reinforced"}
    | {"created_at", "session_id", "session_task", "promoted_from", "promoted_at"}
)
"""Keys that an entry has even where they say nothing, so that who reads the file knows of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page is: its scope, and its path under the home's data folder."""

    scope: LearningScope
    scope_id: str
    project: str
    session: str
    kind: LearningKind
    path: str


_TEXTS = (
    "domain", "title", "about", "phase", "session_id", "continues", "session_task", "agent", "retired_because",
    "merged_into", "review", "approved_by", "lesson",
)  # fmt: skip
_INSTANTS = ("last_reinforced", "created_at", "promoted_at", "review_since", "approved_at")
_LISTS = ("reasons", "reinforced_by")


def read_entry(part: Part, place: Place) -> LearningEntry:
    """An entry of a page. Raises ValueError that says in which line what is wrong."""
    if part.fault:
        raise ValueError(part.fault)
    said, kind = part.text, place.kind
    found: dict[str, Any] = {name: _text(part, name) for name in _TEXTS}
    found |= {name: _instant(part, name) for name in _INSTANTS}
    found |= {name: _texts(part, name) for name in _LISTS}
    found["domain"] = found["domain"] or domain_of(kind)
    found["title"] = found["title"] or title_of(said)
    found["session_id"] = found["session_id"] or place.session
    found["lesson"] = found["lesson"] or lesson_id(said)
    entry = LearningEntry(
        id=part.id,
        scope=place.scope,
        scope_id=place.scope_id,
        kind=kind,
        type=_one_of(part, "type", LearningType, LearningType.DECLARATIVE),
        text=said,
        importance=_share(part, "importance"),
        confidence=_share(part, "confidence"),
        status=_one_of(part, "status", LearningStatus, LearningStatus.ACTIVE),
        reinforcement_count=_count(part, "reinforcement_count"),
        promoted_from=tuple(map(_source, _texts(part, "promoted_from"))),
        path=place.path,
        workspace=_text(part, "workspace", 4_000),
        trust=_one_of(part, "trust", Trust, _unsaid(part, place)),
        **found,
    )
    # Pages of earlier versions say of no entry whose words it is, and hold quotes that nobody was asked about.
    above = entry.scope in (LearningScope.PROJECT, LearningScope.GLOBAL) and kind is not LearningKind.PROXY
    unasked = above and entry.active and not entry.may_guide and not entry.review
    return replace(entry, review=UNAPPROVED, review_since=entry.promoted_at) if unasked else entry


def as_fields(entry: LearningEntry) -> dict[str, Value]:
    """The front matter of an entry, without its id."""
    fields: dict[str, Value] = {"type": entry.type.value, "importance": entry.importance}
    fields |= {"confidence": entry.confidence, "status": entry.status.value, "trust": entry.trust.value}
    fields |= {"reinforcement_count": entry.reinforcement_count, "workspace": entry.workspace}
    fields |= {name: getattr(entry, name) for name in _TEXTS}
    fields |= {name: list(getattr(entry, name)) for name in _LISTS}
    fields |= {name: stamp(getattr(entry, name)) for name in _INSTANTS}
    fields["promoted_from"] = sources_written(entry.promoted_from)
    return {key: value for key, value in fields.items() if value not in ("", []) or key in ALWAYS}


def sources_written(sources: tuple[EntrySource, ...]) -> list[str]:
    """Sources as they stand in a file: `ENTRY@SESSION`."""
    return [f"{one.entry}@{one.session}" if one.session else one.entry for one in sources]


def entry_id(
    scope: LearningScope, scope_id: str, kind: LearningKind, about: str, text: str, trust: Trust = Trust.OPERATOR
) -> str:
    """An id that follows from what an entry says and where, so that who finds it twice writes it once. A quote
    that says the same is another entry."""
    said = f"{scope.value}\n{scope_id}\n{kind.value}\n{about or folded(text)}"
    said += "\nquoted" if trust is Trust.QUOTED else ""
    return "lrn_" + hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]


def domain_of(kind: LearningKind) -> str:
    """What entries of a kind concern."""
    return "task" if kind is LearningKind.TASK else "team"


def title_of(text: str) -> str:
    """The beginning of a text, in one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= TITLE else flat[: TITLE - 1].rstrip() + "…"


def stamp(instant: datetime | None) -> str:
    """An instant as it is written, "" for none."""
    return "" if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(part: Part, key: str, most: int = 500) -> str:
    value = part.value(key)
    if isinstance(value, list | dict):
        raise ValueError(f"{_where(part, key)}: {key} is no text")
    return clean_text(str("" if value is None else value))[:most]


def _source(text: str) -> EntrySource:
    entry, _, session = text.partition("@")
    return EntrySource(entry, session)


def _unsaid(part: Part, place: Place) -> Trust:
    """The label of an entry without one: the operator wrote it by hand, unless it names a session that it is from."""
    from_session = place.session or part.value("session_id") or part.value("promoted_from")
    return Trust.QUOTED if from_session else Trust.OPERATOR


def _where(part: Part, key: str) -> str:
    place = part.fields.get(key)
    return f"line {part.line + (place[0] if place else 0)}"


def _one_of(part: Part, key: str, kind: Any, default: Any) -> Any:
    value = part.value(key)
    if value == "":
        return default
    try:
        return kind(str(value).lower())
    except ValueError:
        names = ", ".join(one.value for one in kind)
        raise ValueError(f"{_where(part, key)}: {key} is {str(value)[:60]!r}, not one of {names}") from None


def _share(part: Part, key: str) -> float:
    value = part.value(key)
    if value == "":
        return 0.5
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{_where(part, key)}: {key} is {str(value)[:60]!r}, not a number from 0 to 1")
    return float(value)


def _count(part: Part, key: str) -> int:
    value = part.value(key)
    if value == "":
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{_where(part, key)}: {key} is {str(value)[:60]!r}, not a whole number from 0")
    return value


def _instant(part: Part, key: str) -> datetime | None:
    value = part.value(key)
    if value in ("", None):
        return None
    try:
        instant = datetime.fromisoformat(str(value))
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{_where(part, key)}: {key} is {str(value)[:60]!r}, not a time such as 2026-01-05T09:30:00Z"
        ) from None


def _texts(part: Part, key: str) -> tuple[str, ...]:
    value = part.value(key)
    if value in ("", None):
        return ()
    if isinstance(value, Mapping):
        raise ValueError(f"{_where(part, key)}: {key} is no list of texts")
    listed = list(value) if isinstance(value, list) else [value]
    if any(isinstance(one, list | dict) for one in listed):
        raise ValueError(f"{_where(part, key)}: {key} is no list of texts")
    return tuple(clean_text(str(one)) for one in listed)

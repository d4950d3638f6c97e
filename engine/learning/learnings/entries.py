"""Entries of pages as values, and values as front matter (SPEC 6.1). Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from engine.learning.learnings.front_matter import Value
from engine.learning.learnings.page import Part, clean_text
from engine.model import (
    EntrySource,
    LearningEntry,
    LearningKind,
    LearningScope,
    LearningStatus,
    LearningType,
    Trust,
    sanitise,
)
from engine.model.lessons import folded, lesson_id

UNAPPROVED = "quoted from sessions, and not approved by you"
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


def _words(value: object) -> str:
    if isinstance(value, list | dict):
        raise ValueError("is not text")
    return clean_text(str(value))


def _list(value: object) -> list[object]:
    if isinstance(value, dict):
        raise ValueError("is not a list of strings")
    return value if isinstance(value, list) else [value]


def _utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


Words = Annotated[str, BeforeValidator(_words), AfterValidator(lambda text: text[:500])]
Texts = Annotated[tuple[Annotated[str, BeforeValidator(_words)], ...], BeforeValidator(_list)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Instant = Annotated[datetime, AfterValidator(_utc)] | None


class Front(BaseModel):
    """The front matter of an entry, as people and we write it."""

    type: LearningType = LearningType.DECLARATIVE
    domain: Words = ""
    title: Words = ""
    lesson: Words = ""
    about: Words = ""
    importance: Share = 0.5
    confidence: Share = 0.5
    reasons: Texts = ()
    phase: Words = ""
    status: LearningStatus = LearningStatus.ACTIVE
    reinforcement_count: Annotated[int, Field(strict=True, ge=0)] = 0
    last_reinforced: Instant = None
    reinforced_by: Texts = ()
    created_at: Instant = None
    session_id: Words = ""
    continues: Words = ""
    session_task: Words = ""
    agent: Words = ""
    workspace: Annotated[str, BeforeValidator(_words)] = ""
    promoted_from: Texts = ()
    promoted_at: Instant = None
    retired_because: Words = ""
    merged_into: Words = ""
    review: Words = ""
    review_since: Instant = None
    trust: Trust | None = None
    approved_by: Words = ""
    approved_at: Instant = None


def read_entry(part: Part, place: Place) -> LearningEntry:
    """An entry of a page. Raises ValueError that says in which line what is wrong."""
    if part.fault:
        raise ValueError(part.fault)
    written = {key: part.value(key) for key in part.fields if key in Front.model_fields}
    try:
        front = Front.model_validate({key: value for key, value in written.items() if value != ""})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0])
        was = f"{key} is {str(written[key])[:60]!r}"
        raise ValueError(f"line {part.line + part.fields[key][0]}: {was}: {sanitise(wrong['msg'])}") from None
    said, kind = part.text, place.kind
    # Who wrote it by hand did not say whose words it is: the operator's, unless it names a session that it is from.
    quoted = place.session or front.session_id or front.promoted_from
    found: dict[str, Any] = dict(front) | {
        "domain": front.domain or domain_of(kind),
        "title": front.title or title_of(said),
        "lesson": front.lesson or lesson_id(said),
        "session_id": front.session_id or place.session,
        "promoted_from": tuple(EntrySource(*one.split("@", 1)) for one in front.promoted_from),
        "trust": front.trust or (Trust.QUOTED if quoted else Trust.OPERATOR),
    }
    entry = LearningEntry(
        id=part.id, scope=place.scope, scope_id=place.scope_id, kind=kind, text=said, path=place.path, **found
    )
    # Pages of earlier versions say of no entry whose words it is, and hold quotes that nobody was asked about.
    above = entry.scope in (LearningScope.PROJECT, LearningScope.GLOBAL) and kind is not LearningKind.PROXY
    unasked = above and entry.active and not entry.may_guide and not entry.review
    return replace(entry, review=UNAPPROVED, review_since=entry.promoted_at) if unasked else entry


def as_fields(entry: LearningEntry) -> dict[str, Value]:
    """The front matter of an entry, without its id."""
    fields = {name: _plain(getattr(entry, name)) for name in Front.model_fields}
    fields["promoted_from"] = sources_written(entry.promoted_from)
    return {key: value for key, value in fields.items() if value not in ("", []) or key in ALWAYS}


def _plain(value: Any) -> Value:
    if isinstance(value, datetime | None):
        return stamp(value)
    return list(value) if isinstance(value, tuple) else value.value if isinstance(value, StrEnum) else value


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

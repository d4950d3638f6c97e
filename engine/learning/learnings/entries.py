"""Converts learning entries to and from YAML front matter, and defines the layout of their folders (SPEC 6.1). Pure.

    learnings/global/
    learnings/projects/KEY/                              KEY: the workspace's name and a hash of its path
    learnings/projects/KEY/sessions/SESSION/
    learnings/projects/KEY/sessions/SESSION/teams/LEADER/

Each folder has `institutional.md`, `tasks/*.md`, `proxy.md`, `proxy-tasks/*.md`. Sessions without a workspace belong
to the project `none`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from engine.frozen import frozen
from engine.learning.learnings.page import Part, Value, clean_text
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
from engine.model.learnings import lesson_id, normalise
from engine.model.text import plain

ROOT = "learnings"
NO_WORKSPACE = "none"

PAGES = {LearningKind.INSTITUTIONAL: "institutional.md", LearningKind.PROXY: "proxy.md"}
FOLDERS = {"tasks": LearningKind.TASK, "proxy-tasks": LearningKind.PROXY}

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


@frozen
class Scope:
    """One scope: a team (its leader) in a session, a session, a project (its key), or global if all are empty."""

    project: str = ""
    session: str = ""
    team: str = ""

    @property
    def level(self) -> LearningScope:
        if self.team:
            return LearningScope.TEAM
        if self.session:
            return LearningScope.SESSION
        return LearningScope.PROJECT if self.project else LearningScope.GLOBAL

    @property
    def id(self) -> str:
        """The leader, the session's id, the project's key, or ""."""
        return self.team or self.session or self.project

    @property
    def folder(self) -> str:
        """The folder of the scope, relative to the home's data folder."""
        parts = [ROOT, *(("projects", self.project) if self.project else ("global",))]
        parts += ["sessions", folder_name(self.session)] if self.session else []
        parts += ["teams", folder_name(self.team)] if self.team else []
        return "/".join(parts)

    def page(self, kind: LearningKind, entry: str = "") -> str:
        """The page of an entry. Each task has its own page; the other kinds have one page each."""
        return f"{self.folder}/tasks/{entry}.md" if kind is LearningKind.TASK else f"{self.folder}/{PAGES[kind]}"


GLOBAL = Scope()


def project_key(workspace: str) -> str:
    """The unique folder name of a workspace."""
    if not workspace:
        return NO_WORKSPACE
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(workspace).name.lower()).strip("-")[:40] or "project"
    return f"{name}-{hashlib.sha256(workspace.encode(errors='replace')).hexdigest()[:8]}"


def page_location(path: str) -> tuple[Scope, LearningKind] | None:
    """The scope and kind of a page, by its path; None for other files."""
    scope = scope_of_path(path)
    rest = path[len(scope.folder) + 1 :].split("/") if path.startswith(f"{scope.folder}/") else []
    kind = None
    if len(rest) == 1:
        kind = next((kind for kind, name in PAGES.items() if name == rest[0]), None)
    elif len(rest) == 2 and rest[1].endswith(".md") and not rest[1].startswith("."):
        kind = FOLDERS.get(rest[0])
    return None if kind is None else (scope, kind)


def folder_name(name: str) -> str:
    """A valid name of a folder: `name` itself if it is valid, else one derived from it."""
    if _SAFE.fullmatch(name):
        return name
    return f"x-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def scope_of_path(path: str) -> Scope:
    """The scope of a page."""
    parts = path.split("/")
    if parts[:2] != [ROOT, "projects"] or len(parts) < 4:
        return GLOBAL
    project, session, team = parts[2], "", ""
    if parts[3] == "sessions" and len(parts) > 5:
        session = parts[4]
        if parts[5] == "teams" and len(parts) > 7:
            team = parts[6]
    return Scope(project, session, team)


UNAPPROVED = "quoted from sessions, and not approved by you"
"""The reason why a quote in a project or global entry waits for the operator."""

MAX_TEXT = 2_000
"""Maximum number of characters of an entry that the engine writes."""

MAX_TITLE = 80
REQUIRED_KEYS = frozenset(
    {"type", "domain", "importance", "confidence", "phase", "status", "reinforcement_count", "last_reinforced"}
    | {"created_at", "session_id", "session_task", "promoted_from", "promoted_at"}
)
"""Keys that are written even if they are empty, so that a reader of the file sees that they exist."""


def _clean_words(value: object) -> str:
    if isinstance(value, list | dict):
        raise ValueError("is not text")
    return clean_text(str(value))


def _as_list(value: object) -> list[object]:
    if isinstance(value, dict):
        raise ValueError("is not a list of strings")
    return value if isinstance(value, list) else [value]


def _utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


ShortText = Annotated[str, BeforeValidator(_clean_words), AfterValidator(lambda text: text[:500])]
ShortTexts = Annotated[tuple[Annotated[str, BeforeValidator(_clean_words)], ...], BeforeValidator(_as_list)]
UnitFloat = Annotated[float, Field(strict=True, ge=0, le=1)]
Instant = Annotated[datetime, AfterValidator(_utc)] | None


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


def read_entry(part: Part, path: str, scope: Scope, kind: LearningKind) -> LearningEntry:
    """Read an entry of a page. Raises ValueError, which has the line number."""
    if part.error:
        raise ValueError(part.error)
    written = {key: part.value(key) for key in part.fields if key in FrontMatter.model_fields}
    try:
        front = FrontMatter.model_validate({key: value for key, value in written.items() if value != ""})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0])
        was = f"{key} is {str(written[key])[:60]!r}"
        raise ValueError(f"line {part.line + part.fields[key][0]}: {was}: {sanitise(wrong['msg'])}") from None
    text = part.text
    # An entry without `trust` was written by the operator, unless it names the session that it is from.
    quoted = scope.session or front.session_id or front.promoted_from
    values: dict[str, Any] = dict(front) | {
        "domain": front.domain or domain_of(kind),
        "title": front.title or title_of(text),
        "lesson": front.lesson or lesson_id(text),
        "session_id": front.session_id or scope.session,
        "promoted_from": tuple(EntrySource(*source.split("@", 1)) for source in front.promoted_from),
        "trust": front.trust or (Trust.QUOTED if quoted else Trust.OPERATOR),
    }
    return LearningEntry(id=part.id, scope=scope.level, scope_id=scope.id, kind=kind, text=text, path=path, **values)


def front_matter(entry: LearningEntry) -> dict[str, Value]:
    """The front matter of an entry, without its id."""
    fields = {name: _plain(getattr(entry, name)) for name in FrontMatter.model_fields}
    fields["promoted_from"] = format_sources(entry.promoted_from)
    return {key: value for key, value in fields.items() if value not in ("", []) or key in REQUIRED_KEYS}


def _plain(value: Any) -> Value:
    if isinstance(value, datetime | None):
        return format_time(value)
    return list(value) if isinstance(value, tuple) else value.value if isinstance(value, StrEnum) else value


def format_sources(sources: tuple[EntrySource, ...]) -> list[str]:
    """Sources in the form `ENTRY@SESSION`."""
    return [f"{source.entry}@{source.session}" if source.session else source.entry for source in sources]


def entry_id(
    scope: LearningScope, scope_id: str, kind: LearningKind, about: str, text: str, trust: Trust = Trust.OPERATOR
) -> str:
    """The id of an entry, derived from its scope and content, so that a second run writes nothing. A quote has another
    id than a trusted entry with the same text."""
    identity = f"{scope.value}\n{scope_id}\n{kind.value}\n{about or normalise(text)}"
    identity += "\nquoted" if trust is Trust.QUOTED else ""
    return "lrn_" + hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:16]


def promoted_entry(
    entry: LearningEntry, scope: Scope, sources: Iterable[EntrySource], at: datetime, **changes: Any
) -> LearningEntry:
    """The entry of a higher scope that `entry` becomes when it is promoted from these sources, with these changes."""
    above = replace(entry, **changes)
    id = entry_id(scope.level, scope.id, above.kind, above.about, above.text, above.trust)
    return replace(
        above,
        id=id,
        scope=scope.level,
        scope_id=scope.id,
        path=scope.page(above.kind, id),
        promoted_from=tuple(sources),
        promoted_at=at,
        reinforced_by=(),
        reinforcement_count=0,
        last_reinforced=None,
    )


def domain_of(kind: LearningKind) -> str:
    """The domain of entries of a kind."""
    return "task" if kind is LearningKind.TASK else "team"


def title_of(text: str) -> str:
    """The title of a text: its beginning, in one line."""
    return plain(text, MAX_TITLE)


def format_time(instant: datetime | None) -> str:
    """An instant in ISO format, "" for None."""
    return "" if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""One group of facts on disk (SPEC 4.7): `para/BUCKET/GROUP/items.json` and the `summary.md` made of it.

The JSON is the truth and may be edited in any editor. What somebody wrote into it is kept: fields that we do not know,
the order, and items that make no sense, which are named and otherwise left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.files import write_atomic
from engine.frozen import frozen
from engine.model import ParaFact, Refusal, sanitise
from engine.model.text import validation_faults

ITEMS, SUMMARY = "items.json", "summary.md"
FACT_ID = re.compile(r"fact_[0-9a-z]{4,40}")
GROUP = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
MAX_FACT = 1_000
MAX_BYTES = 16 * 1024 * 1024
"""Bytes of a file of items."""

FACT = TypeAdapter(ParaFact)
_DEFAULTS = {
    "fact": "",
    "category": "",
    "source": "",
    "status": "active",
    "created_at": datetime(1970, 1, 1, tzinfo=UTC),
}
"""Defaults of an item's fields. Without `trust` it is a quote."""


@frozen
class Group:
    """The file of items in `folder` as it was read: `items` as they stand there, `facts` what of them makes sense, by
    id, `faults` what does not, in words. `broken` says why the whole of it cannot be used, "" when it can."""

    folder: Path
    items: tuple[Any, ...] = ()
    facts: Mapping[str, ParaFact] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    broken: str = ""

    @property
    def place(self) -> str:
        """How it is named: `para/BUCKET/GROUP`."""
        return "/".join(self.folder.parts[-3:])

    def refuse_broken(self) -> None:
        """Raises `Refusal` `para_damaged` for one that cannot be used: it is never written over."""
        if self.broken:
            raise Refusal("para_damaged", self.broken, "fix the file, or move it away to start afresh")


def read_group(folder: Path) -> Group:
    """Read the group in `folder`; one that is not there is empty."""
    file = folder / ITEMS
    where = f"{Group(folder).place}/{ITEMS}"
    try:
        if file.stat().st_size > MAX_BYTES:
            return Group(folder, broken=f"{where} is larger than {MAX_BYTES} bytes")
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Group(folder)
    except (OSError, ValueError, RecursionError) as error:
        return Group(folder, broken=sanitise(f"{where} cannot be read: {error}"))
    if not isinstance(document, list):
        return Group(folder, broken=f"{where} is not a list of items")
    facts: dict[str, ParaFact] = {}
    faults = []
    for number, item in enumerate(document, 1):
        try:
            fact = parse_item(item, folder)
            if fact.id in facts:
                raise ValueError(f"{fact.id} appears twice")
            facts[fact.id] = fact
        except ValueError as error:
            faults.append(sanitise(f"{where} item {number}: {error}"))
    return Group(folder, tuple(document), facts, tuple(faults))


def write_group(group: Group, changed: Iterable[ParaFact]) -> None:
    """Write a group with some facts changed or added, each file whole or not at all. Raises OSError, and `Refusal` as
    `Group.refuse_broken`."""
    group.refuse_broken()
    new = {fact.id: fact for fact in changed}
    facts = (dict(group.facts) | new).values()
    items: list[Any] = []
    for item in group.items:
        fact = new.pop(str(item.get("id")), None) if isinstance(item, dict) else None
        items.append(item if fact is None else {**item, **to_item(fact)})
    items += map(to_item, new.values())
    group.folder.mkdir(parents=True, exist_ok=True)
    _write(group.folder / ITEMS, json.dumps(items, ensure_ascii=False, indent=2) + "\n")
    _write(group.folder / SUMMARY, summary(group.folder, facts))


def parse_item(item: object, folder: Path) -> ParaFact:
    """An item as a fact. Raises ValueError that says what is wrong with it."""
    if not isinstance(item, dict):
        raise ValueError("no object")
    fields = {key: value for key, value in item.items() if value is not None}
    try:
        fact = FACT.validate_python(_DEFAULTS | fields | {"bucket": folder.parent.name, "group": folder.name})
    except ValidationError as error:
        raise ValueError(f"{item.get('id')}: {validation_faults(error)[0]}") from error
    for name in (fact.id, fact.superseded_by):
        if name is not None and not FACT_ID.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is no id of a fact: fact_ and letters or digits")
    if not fact.fact.strip() and not fact.forgotten:
        raise ValueError(f"{fact.id}: fact is empty")
    if fact.access_count < 0:
        raise ValueError(f"{fact.id}: access_count is below 0")
    if fact.superseded_by is not None and fact.active:
        raise ValueError(f"{fact.id}: superseded_by is set, and status is active")
    return replace(
        fact,
        fact=sanitise(fact.fact)[:MAX_FACT],
        category=sanitise(fact.category),
        source=sanitise(fact.source),
        created_at=_utc(fact.created_at),
        last_accessed=fact.last_accessed and _utc(fact.last_accessed),
        approved_at=fact.approved_at and _utc(fact.approved_at),
    )


def to_item(fact: ParaFact) -> dict[str, Any]:
    """A fact as it stands in the file."""
    left_out = {"bucket", "group"} if fact.forgotten else {"bucket", "group", "forgotten"}
    item: dict[str, Any] = FACT.dump_python(fact, mode="json", exclude=left_out)
    return item


def summary(folder: Path, facts: Iterable[ParaFact]) -> str:
    """The Markdown page of a group: what holds, by category, then what was superseded, and by what. Pure."""
    by_category: dict[str, list[str]] = {}
    history = []
    for fact in facts:
        if fact.forgotten:
            continue
        line = f"- {_one_line(fact.fact)} ({fact.id})"
        if fact.active:
            by_category.setdefault(fact.category or "fact", []).append(line)
        else:
            history.append(line[:-1] + (f", superseded by {fact.superseded_by})" if fact.superseded_by else ")"))
    page = [f"# {folder.parent.name.capitalize()}: {folder.name}", "", f"Made from {ITEMS}; edit that one.", ""]
    for category in sorted(by_category):
        page += [f"## {_one_line(category)}", "", *by_category[category], ""]
    if history:
        page += ["## Superseded", "", *history, ""]
    return "\n".join(page)


def _write(path: Path, text: str) -> None:
    data = text.encode(errors="replace")
    if not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)

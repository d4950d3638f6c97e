"""One group of facts on disk (SPEC 4.7): `para/BUCKET/GROUP/items.json` and the `summary.md` made of it.

The JSON is the truth and may be edited in any editor. What somebody wrote into it is kept: fields that we do not know,
the order, and items that make no sense, which are named and otherwise left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.model import Bucket, ParaFact, Refusal, Trust, sanitise
from engine.storage.files import write_atomic

ITEMS, SUMMARY = "items.json", "summary.md"
FACT_ID = re.compile(r"fact_[0-9a-z]{4,40}")
GROUP = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
STATUSES = ("active", "superseded")
LONGEST_FACT = 1_000
LARGEST = 16 * 1024 * 1024
"""Bytes of a file of items."""

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A file of items as it was read: `items` as they stand there, `facts` what of them makes sense, by id, `faults`
    what does not, in words. `broken` says why the whole of it cannot be used, "" when it can."""

    bucket: Bucket
    name: str
    items: tuple[Any, ...]
    facts: Mapping[str, ParaFact]
    faults: tuple[str, ...] = ()
    broken: str = ""


def read_group(folder: Path, bucket: Bucket, name: str) -> Group:
    """Read the group in `folder`; one that is not there is empty."""
    file = folder / ITEMS
    where = f"para/{bucket}/{name}/{ITEMS}"
    try:
        if file.stat().st_size > LARGEST:
            return Group(bucket, name, (), {}, broken=f"{where} is larger than {LARGEST} bytes")
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Group(bucket, name, (), {})
    except (OSError, ValueError, RecursionError) as error:
        return Group(bucket, name, (), {}, broken=sanitise(f"{where} cannot be read: {error}"))
    if not isinstance(document, list):
        return Group(bucket, name, (), {}, broken=f"{where} is not a list of items")
    facts: dict[str, ParaFact] = {}
    faults = []
    for number, item in enumerate(document, 1):
        try:
            fact = read_item(item, bucket, name)
            if fact.id in facts:
                raise ValueError(f"{fact.id} appears twice")
            facts[fact.id] = fact
        except ValueError as error:
            faults.append(sanitise(f"{where} item {number}: {error}"))
    return Group(bucket, name, tuple(document), facts, tuple(faults))


def write_group(folder: Path, group: Group, changed: Iterable[ParaFact]) -> None:
    """Write a group with some facts changed or added, each file whole or not at all. Raises OSError, and `Refusal`
    `para_damaged` for one that cannot be used: it is never written over."""
    if group.broken:
        raise Refusal("para_damaged", group.broken, "fix the file, or move it away to start afresh")
    new = {fact.id: fact for fact in changed}
    facts = dict(group.facts) | new
    items: list[Any] = []
    for item in group.items:
        known = group.facts.get(str(item.get("id"))) if isinstance(item, dict) else None
        fact = new.pop(known.id, None) if known is not None else None
        items.append(item if fact is None else {**item, **as_item(fact)})
    items += [as_item(fact) for fact in new.values()]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / ITEMS, json.dumps(items, ensure_ascii=False, indent=2) + "\n")
    _write(folder / SUMMARY, summary(group.bucket, group.name, list(facts.values())))


def read_item(item: object, bucket: Bucket, group: str) -> ParaFact:
    """An item as a fact. Raises ValueError that says what is wrong with it."""
    if not isinstance(item, dict):
        raise ValueError("no object")
    fact_id, status = item.get("id"), item.get("status", "active")
    if not isinstance(fact_id, str) or not FACT_ID.fullmatch(fact_id):
        raise ValueError(f"id is {str(fact_id)[:60]!r}, not fact_ and letters or digits")
    if status not in STATUSES:
        raise ValueError(f"{fact_id}: status is {str(status)[:60]!r}, not active or superseded")
    forgotten = item.get("forgotten") is True
    text = _text(item, "fact", fact_id)
    if not text.strip() and not forgotten:
        raise ValueError(f"{fact_id}: fact is empty")
    count = item.get("access_count", 0)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"{fact_id}: access_count is {str(count)[:60]!r}, not a number from 0")
    successor = item.get("superseded_by")
    if successor is not None and not (isinstance(successor, str) and FACT_ID.fullmatch(successor)):
        raise ValueError(f"{fact_id}: superseded_by is {str(successor)[:60]!r}, not null or the id of a fact")
    if successor is not None and status == "active":
        raise ValueError(f"{fact_id}: superseded_by is set, and status is active")
    return ParaFact(
        id=fact_id,
        fact=sanitise(text)[:LONGEST_FACT],
        category=sanitise(_text(item, "category", fact_id)),
        source=sanitise(_text(item, "source", fact_id)),
        status=status,
        bucket=bucket,
        group=group,
        created_at=_instant(item, "created_at", fact_id) or datetime(1970, 1, 1, tzinfo=UTC),
        access_count=count,
        last_accessed=_instant(item, "last_accessed", fact_id),
        superseded_by=successor,
        workspace=_text(item, "workspace", fact_id),
        forgotten=forgotten,
        trust=_trust(item, fact_id),
        approved_at=_instant(item, "approved_at", fact_id),
    )


def as_item(fact: ParaFact) -> Item:
    """A fact as it stands in the file."""
    item: Item = {
        "id": fact.id,
        "fact": fact.fact,
        "category": fact.category,
        "source": fact.source,
        "status": fact.status,
        "access_count": fact.access_count,
        "last_accessed": _stamp(fact.last_accessed),
        "superseded_by": fact.superseded_by,
        "created_at": _stamp(fact.created_at),
        "workspace": fact.workspace,
        "trust": fact.trust.value,
        "approved_at": _stamp(fact.approved_at),
    }
    return item | ({"forgotten": True} if fact.forgotten else {})


def summary(bucket: Bucket, group: str, facts: Iterable[ParaFact]) -> str:
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
    page = [f"# {bucket.value.capitalize()}: {group}", "", f"Made from {ITEMS}; edit that one.", ""]
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


def _text(item: Item, key: str, fact_id: str) -> str:
    value = item.get(key, "")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{fact_id}: {key} is not text")
    return value


def _trust(item: Item, fact_id: str) -> Trust:
    """A fact that says nothing of it is a quote: whoever wrote it."""
    said = item.get("trust", Trust.QUOTED.value)
    if said not in list(Trust):
        raise ValueError(f"{fact_id}: trust is {str(said)[:60]!r}, not one of {', '.join(Trust)}")
    return Trust(said)


def _instant(item: Item, key: str, fact_id: str) -> datetime | None:
    value = item.get(key)
    if value is None:
        return None
    try:
        instant = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{fact_id}: {key} is {str(value)[:60]!r}, not a time such as 2026-01-05T09:30:00Z") from error
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


def _stamp(instant: datetime | None) -> str | None:
    return None if instant is None else instant.astimezone(UTC).isoformat().replace("+00:00", "Z")

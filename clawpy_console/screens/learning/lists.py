"""The list of the learning screen and what belongs to what is under its cursor, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clawpy_console import words
from clawpy_console.fields import Document, when
from clawpy_console.screens.learning import candidate, entry
from clawpy_console.widgets.rows import Row
from engine import document

if TYPE_CHECKING:
    from engine import Engine

MOST = 500
"""So many candidates, and so many learnings, are listed: the newest. The filter finds older learnings too."""

YOURS = "Needs your decision"
GROUPS = {
    "review": YOURS, "promoted": "Active", "drafted": "Needs more evidence", "rejected": "Rejected / rolled back",
    "rolled_back": "Rejected / rolled back",
}  # fmt: skip
"""The headings of candidates by their status, in the order of the list; learnings follow by scope."""

SCOPES = ("global", "project", "session", "team")
FAULT = "fault: "
"""Begins the id of a row that stands for a file that cannot be read."""


class Listing(NamedTuple):
    """What is listed: documents of candidates and learnings, lifts by candidate, what cannot be read."""

    candidates: Sequence[Document]
    learnings: Sequence[Document]
    lifts: Mapping[str, Document]
    faults: Sequence[str]


def read_listing(engine: Engine, needle: str, wanted: str) -> Listing:
    """What there is now, the learning `wanted` among it however old it is. Raises what the engine raises."""
    candidates = [document(one) for one in engine.adaptation.candidates(limit=MOST)]
    active = [one["id"] for one in candidates if one["status"] == "promoted"]
    lifts = {id: document(engine.adaptation.view(id))["lift"] for id in active}
    found = engine.learnings.entries(words=needle, limit=MOST)
    if wanted and not wanted.startswith("cand_") and all(one.id != wanted for one in found):
        found = [*found, engine.learnings.view(wanted).entry]
    faults = [fault for scope in engine.learnings.scopes() for fault in scope.faults]
    learnings = [document(one) for one in found]
    return Listing(candidates, learnings, {id: lift for id, lift in lifts.items() if lift}, faults)


def listed(listing: Listing, needle: Sequence[str], only: str, now: datetime) -> dict[str, list[Row]]:
    """The rows with all words of `needle`, by their headings; of the heading or the kind of learning `only`."""
    groups: dict[str, list[Row]] = {title: [] for title in GROUPS.values()}
    for one in sorted(listing.candidates, key=lambda one: (-one["score"], one["title"])):
        if only not in entry.KINDS and found(one, needle, candidate.STATUS):
            lift = listing.lifts.get(one["id"])
            harms = lift is not None and lift["verdict"] == "harms"
            groups[YOURS if harms else GROUPS[one["status"]]].append(candidate_row(one, lift))
    for one in sorted(listing.learnings, key=lambda one: SCOPES.index(one["scope"])):
        if (only not in entry.KINDS or one["kind"] == only) and found(one, needle, entry.STATUS):
            yours = one["review"] and one["status"] == "active"
            groups.setdefault(YOURS if yours else f"Learned: {entry.where(one)}", []).append(entry_row(one, now))
    groups["Cannot be read"] = [Row(FAULT + fault, fault, "▲", mark_style="wants") for fault in listing.faults]
    return {title: rows for title, rows in groups.items() if rows and only in ("", title, *entry.KINDS)}


def found(one: Document, needle: Sequence[str], status: Mapping[str, tuple[str, str, str]]) -> bool:
    """Whether all words of `needle` are in what a document says."""
    said = [value for value in one.values() if isinstance(value, str)]
    text = " ".join([*said, status[one["status"]][2]]).lower()
    return all(word in text for word in needle)


def candidate_row(one: Document, lift: Document | None) -> Row:
    """A candidate in the list: its type, what it proposes, its lift or its score."""
    sign, style, _ = candidate.STATUS[one["status"]]
    right, harms = f"score {one['score']:.0f}", False
    if lift is not None:
        known, harms = lift["verdict"] != "not enough evidence", lift["verdict"] == "harms"
        right = f"lift {candidate.points(lift['difference']) if known else '…'}"
    if harms:
        sign, style = "▲", "wants"  # you may want to roll it back
    shown = "ink" if one["status"] in ("review", "promoted") else "grey"
    text = f"{candidate.TYPES[one['type']][0]:<8}{words.one_line(one['title'])}"
    return Row(one["id"], text, sign, right, shown, style, "wrong" if harms else "grey")


def entry_row(one: Document, now: datetime, prefix: str = "") -> Row:
    """A learning in a list: its kind, its title, when it was found."""
    sign, style, _ = entry.STATUS[one["status"]]
    active = one["status"] == "active"
    if one["review"] and active:
        sign, style = "▲", "wants"
    text = f"{entry.KINDS[one['kind']][0]:<6}{entry.title(one)}"
    return Row(prefix + one["id"], text, sign, when(one["createdAt"], now), "ink" if active else "faint", style, "grey")


def linked(view: Document, tasks: Mapping[str, str], now: datetime) -> Iterator[Row]:
    """What belongs to a candidate or a learning, and can be opened: records of a candidate; sources of a learning,
    what became of it, the prompts that contained it. Ids are `record:ID`, `learning:ID` and `session:ID`; `tasks` are
    those of sessions, by id."""
    groups: dict[str, list[Row]] = {}
    if "candidate" in view:
        for name, title in candidate.EVIDENCE.items():
            mark, style = ("✗", "wants") if name == "against" else ("✓", "good")
            records = [one for one in view["records"] if one["id"] in view["candidate"][name]]
            groups[title] = [_record_row(one, mark, style, now) for one in records]
    else:
        for title, key in (("came from", "from"), ("became", "became")):
            groups[title] = [entry_row(one, now, "learning:") for one in view[key]]
        groups["sessions"] = [Row(f"session:{id}", tasks.get(id, id), "○") for id in view["sessions"]]
        groups[f"reached {words.count(view['prompts'], 'prompt')}, the newest"] = [
            _reach_row(number, one, tasks, now) for number, one in enumerate(view["reached"])
        ]
    for title, rows in groups.items():
        if rows:
            yield from (Row("", f" {title.upper()}  {len(rows):,}"), *rows)


def _record_row(one: Document, mark: str, style: str, now: datetime) -> Row:
    right = f"{one['score']:.0f}  {when(one['createdAt'], now):>9}"
    return Row(f"record:{one['id']}", f"{one['kind']}: {words.one_line(one['reason'])}", mark, right, mark_style=style)


def _reach_row(number: int, one: Document, tasks: Mapping[str, Any], now: datetime) -> Row:
    text = f"{one['targetAgent'] or 'an agent'}: {tasks.get(one['session'], one['session'])}"
    return Row(f"session:{one['session']}:{number}", text, "▸", when(one["at"], now))

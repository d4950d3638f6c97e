"""The rows of the learning screen: candidates and learnings, and the links of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clawpy_console import formats
from clawpy_console.fields import Document, when
from clawpy_console.fields import learning as candidate_fields
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import one_line
from clawpy_console.widgets.bars import has_words
from clawpy_console.widgets.rows import Row
from engine import document

if TYPE_CHECKING:
    from engine import Engine

MAX_ITEMS = 500
"""Maximum number of candidates, and of learnings, that are listed, newest first. The filter finds older ones too."""

YOURS = "Needs your decision"
GROUPS = {
    "review": YOURS, "promoted": "Active", "drafted": "Needs more evidence", "rejected": "Rejected / rolled back",
    "rolled_back": "Rejected / rolled back",
}  # fmt: skip
"""The headings of candidates by their status, in the order of the list; learnings follow by scope."""

SCOPES = ("global", "project", "session", "team")
FAULT = "fault: "
"""The prefix of the id of a row for a file that cannot be read."""


class Listing(NamedTuple):
    """The content of the list."""

    candidates: Sequence[Document]
    learnings: Sequence[Document]
    lifts: Mapping[str, Document]
    """By the id of an active candidate."""
    faults: Sequence[str]
    """Files of learnings that cannot be read."""


def read_listing(engine: Engine, needle: str, required_id: str) -> Listing:
    """Read the list, with the learning `required_id` however old it is. Blocking: call it in a thread."""
    candidates = [document(candidate) for candidate in engine.adaptation.candidates(limit=MAX_ITEMS)]
    active = [candidate["id"] for candidate in candidates if candidate["status"] == "promoted"]
    lifts = {id: document(engine.adaptation.view(id))["lift"] for id in active}
    listed_learnings = engine.learnings.entries(words=needle, limit=MAX_ITEMS)
    listed_ids = {learning.id for learning in listed_learnings}
    if required_id and not required_id.startswith("cand_") and required_id not in listed_ids:
        listed_learnings = [*listed_learnings, engine.learnings.view(required_id).entry]
    faults = [fault for scope in engine.learnings.scopes() for fault in scope.faults]
    learnings = [document(learning) for learning in listed_learnings]
    return Listing(candidates, learnings, {id: lift for id, lift in lifts.items() if lift}, faults)


def listing_rows(listing: Listing, needle: Sequence[str], only: str, now: datetime) -> dict[str, list[Row]]:
    """The rows by their headings: those that match `needle`, and the heading or kind of learning `only`, if any."""
    groups: dict[str, list[Row]] = {title: [] for title in GROUPS.values()}
    for item in sorted(listing.candidates, key=lambda candidate: (-candidate["score"], candidate["title"])):
        if only not in learning_fields.KINDS and matches_filter(item, needle, candidate_fields.CANDIDATE_STATUS):
            lift = listing.lifts.get(item["id"])
            harms = lift is not None and lift["verdict"] == "harms"
            groups[YOURS if harms else GROUPS[item["status"]]].append(candidate_row(item, lift))
    for item in sorted(listing.learnings, key=lambda learning: SCOPES.index(learning["scope"])):
        is_kind_shown = only not in learning_fields.KINDS or item["kind"] == only
        if is_kind_shown and matches_filter(item, needle, learning_fields.STATUS):
            yours = item["review"] and item["status"] == "active"
            title = YOURS if yours else f"Learned: {learning_fields.scope_words(item)}"
            groups.setdefault(title, []).append(entry_row(item, now))
    groups["Cannot be read"] = [Row(FAULT + fault, fault, "▲", mark_style="wants") for fault in listing.faults]
    return {title: rows for title, rows in groups.items() if rows and only in ("", title, *learning_fields.KINDS)}


def matches_filter(document: Document, needle: Sequence[str], status: Mapping[str, tuple[str, str, str]]) -> bool:
    """Whether the texts of a document contain all words of `needle`."""
    texts = [value for value in document.values() if isinstance(value, str)]
    return has_words(" ".join([*texts, status[document["status"]][2]]), needle)


def candidate_row(proposal: Document, lift: Document | None) -> Row:
    """A candidate in the list: its type, what it proposes, its lift or its score."""
    sign, style, _ = candidate_fields.CANDIDATE_STATUS[proposal["status"]]
    right, harms = f"score {proposal['score']:.0f}", False
    if lift is not None:
        measured, harms = lift["verdict"] != "not enough evidence", lift["verdict"] == "harms"
        right = f"lift {candidate_fields.points(lift['difference']) if measured else '…'}"
    if harms:
        sign, style = "▲", "wants"  # you may want to roll it back
    shown = "ink" if proposal["status"] in ("review", "promoted") else "grey"
    text = f"{candidate_fields.TYPES[proposal['type']][0]:<8}{one_line(proposal['title'])}"
    return Row(proposal["id"], text, sign, right, shown, style, "wrong" if harms else "grey")


def entry_row(learning: Document, now: datetime, prefix: str = "") -> Row:
    """A learning in a list: its kind, its title, when it was found."""
    sign, style, _ = learning_fields.STATUS[learning["status"]]
    active = learning["status"] == "active"
    if learning["review"] and active:
        sign, style = "▲", "wants"
    text = f"{learning_fields.KINDS[learning['kind']][0]:<6}{learning_fields.title(learning)}"
    return Row(
        prefix + learning["id"],
        text,
        sign,
        when(learning["createdAt"], now),
        "ink" if active else "faint",
        style,
        "grey",
    )


def link_rows(view: Document, prompts: Mapping[str, str], now: datetime) -> Iterator[Row]:
    """The links of a candidate (its records) or a learning (its sources, its copies, the prompts that contained it).

    The ids of the rows are `record:ID`, `learning:ID` and `session:ID`. `prompts` are those of sessions, by id.
    """
    groups: dict[str, list[Row]] = {}
    if "candidate" in view:
        for name, title in candidate_fields.EVIDENCE.items():
            mark, style = ("✗", "wants") if name == "against" else ("✓", "good")
            records = [record for record in view["records"] if record["id"] in view["candidate"][name]]
            groups[title] = [_record_row(record, mark, style, now) for record in records]
    else:
        for title, key in (("came from", "from"), ("became", "became")):
            groups[title] = [entry_row(item, now, "learning:") for item in view[key]]
        groups["sessions"] = [Row(f"session:{id}", prompts.get(id, id), "○") for id in view["sessions"]]
        groups[f"reached {formats.count(view['prompts'], 'prompt')}, the newest"] = [
            _reach_row(number, item, prompts, now) for number, item in enumerate(view["reached"])
        ]
    for title, rows in groups.items():
        if rows:
            yield from (Row("", f" {title.upper()}  {len(rows):,}"), *rows)


def _record_row(record: Document, mark: str, style: str, now: datetime) -> Row:
    right = f"{record['score']:.0f}  {when(record['createdAt'], now):>9}"
    return Row(
        f"record:{record['id']}",
        f"{record['kind']}: {one_line(record['reason'])}",
        mark,
        right,
        mark_style=style,
    )


def _reach_row(number: int, call: Document, prompts: Mapping[str, Any], now: datetime) -> Row:
    text = f"{call['targetAgent'] or 'an agent'}: {prompts.get(call['session'], call['session'])}"
    return Row(f"session:{call['session']}:{number}", text, "▸", when(call["at"], now))

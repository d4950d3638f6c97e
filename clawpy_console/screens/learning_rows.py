"""The rows of the learning screen: candidates and learnings, and the links of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from clawpy_console import formats
from clawpy_console.fields import Document, when
from clawpy_console.fields import learning as fields
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


class Item(NamedTuple):
    """A row of the list, with what it is filtered by."""

    group: str
    """Its heading."""
    kind: str
    """The kind of a learning, "" for a candidate."""
    text: str
    row: Row


def read_items(engine: Engine, words: str, required_id: str) -> list[Item]:
    """The items in their order, with the learning `required_id` however old it is. Blocking: call it in a thread."""
    now = engine.clock.now()
    items: list[Item] = []
    candidates = [document(candidate) for candidate in engine.adaptation.candidates(limit=MAX_ITEMS)]
    for item in sorted(candidates, key=lambda candidate: (-candidate["score"], candidate["title"])):
        lift = document(engine.adaptation.view(item["id"]))["lift"] if item["status"] == "promoted" else None
        harms = lift is not None and lift["verdict"] == "harms"
        text = _texts(item, fields.CANDIDATE_STATUS)
        items.append(Item(YOURS if harms else GROUPS[item["status"]], "", text, candidate_row(item, lift)))
    learnings = list(engine.learnings.entries(words=words, limit=MAX_ITEMS))
    if required_id and not required_id.startswith("cand_") and required_id not in {entry.id for entry in learnings}:
        learnings.append(engine.learnings.view(required_id).entry)
    for item in sorted(map(document, learnings), key=lambda learning: SCOPES.index(learning["scope"])):
        group = YOURS if _needs_review(item) else f"Learned: {fields.scope_words(item)}"
        items.append(Item(group, item["kind"], _texts(item, fields.STATUS), entry_row(item, now)))
    for fault in (fault for scope in engine.learnings.scopes() for fault in scope.faults):
        items.append(Item("Cannot be read", "", fault, Row(FAULT + fault, fault, "▲", mark_style="wants")))
    return items


def _texts(item: Document, status: Mapping[str, tuple[str, str, str]]) -> str:
    return " ".join([*(value for value in item.values() if isinstance(value, str)), status[item["status"]][2]])


def _needs_review(learning: Document) -> bool:
    return bool(learning["review"]) and learning["status"] == "active"


def shown_rows(items: Sequence[Item], words: Sequence[str], only: str) -> dict[str, list[Row]]:
    """The rows by their headings: those that have `words`, and the heading or kind of learning `only`, if any."""
    groups: dict[str, list[Row]] = {title: [] for title in GROUPS.values()}
    for group, kind, text, row in items:
        is_fault = row.id.startswith(FAULT)
        if only in ("", group, kind) and (is_fault or has_words(text, words)):
            groups.setdefault(group, []).append(row)
    return {title: rows for title, rows in groups.items() if rows}


def candidate_row(proposal: Document, lift: Document | None) -> Row:
    """A candidate in the list: its type, what it proposes, its lift or its score."""
    sign, style, _ = fields.CANDIDATE_STATUS[proposal["status"]]
    right, harms = f"score {proposal['score']:.0f}", lift is not None and lift["verdict"] == "harms"
    if lift is not None:
        is_measured = lift["verdict"] != "not enough evidence"
        right = f"lift {fields.points(lift['difference']) if is_measured else '…'}"
    if harms:
        sign, style = "▲", "wants"  # you may want to roll it back
    text_style = "ink" if proposal["status"] in ("review", "promoted") else "grey"
    text = f"{fields.TYPES[proposal['type']][0]:<8}{one_line(proposal['title'])}"
    return Row(proposal["id"], text, sign, right, text_style, style, "wrong" if harms else "grey")


def entry_row(learning: Document, now: datetime, prefix: str = "") -> Row:
    """A learning in a list: its kind, its title, when it was found."""
    sign, style, _ = fields.STATUS[learning["status"]]
    if _needs_review(learning):
        sign, style = "▲", "wants"
    text = f"{fields.KINDS[learning['kind']][0]:<6}{fields.title(learning)}"
    text_style = "ink" if learning["status"] == "active" else "faint"
    return Row(prefix + learning["id"], text, sign, when(learning["createdAt"], now), text_style, style, "grey")


def link_rows(view: Document, prompts: Mapping[str, str], now: datetime) -> Iterator[Row]:
    """The links of a candidate (its records) or a learning (its sources, its copies, the prompts that contained it).

    The ids of the rows are `record:ID`, `learning:ID` and `session:ID`. `prompts` are those of sessions, by id.
    """
    groups: dict[str, list[Row]] = {}
    if "candidate" in view:
        for name, title in fields.EVIDENCE.items():
            mark, style = ("✗", "wants") if name == "against" else ("✓", "good")
            groups[title] = [
                Row(
                    f"record:{record['id']}", f"{record['kind']}: {one_line(record['reason'])}", mark,
                    f"{record['score']:.0f}  {when(record['createdAt'], now):>9}", mark_style=style,
                )
                for record in view["records"] if record["id"] in view["candidate"][name]
            ]  # fmt: skip
    else:
        groups["came from"] = [entry_row(item, now, "learning:") for item in view["from"]]
        groups["became"] = [entry_row(item, now, "learning:") for item in view["became"]]
        groups["sessions"] = [Row(f"session:{id}", prompts.get(id, id), "○") for id in view["sessions"]]
        groups[f"reached {formats.count(view['prompts'], 'prompt')}, the newest"] = [
            Row(
                f"session:{call['session']}:{number}",
                f"{call['targetAgent'] or 'an agent'}: {prompts.get(call['session'], call['session'])}",
                "▸",
                when(call["at"], now),
            )
            for number, call in enumerate(view["reached"])
        ]
    for title, rows in groups.items():
        if rows:
            yield from (Row("", f" {title.upper()}  {len(rows):,}"), *rows)

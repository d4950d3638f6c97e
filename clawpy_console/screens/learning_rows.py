"""Candidates and learnings as the learning screen shows them: their rows, their links, and the decisions about them.

Both kinds stand in one list, those that need a decision first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from clawpy_console import formats
from clawpy_console.fields import WORDS, Document, Field
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import has_words, one_line
from clawpy_console.widgets import Row
from engine.frozen import frozen
from engine.model import LearningEntry, LearningScope, LearningView, Refusal
from engine.model.adaptation import (
    CANDIDATE_MOVES,
    Candidate,
    CandidateStatus,
    CandidateView,
    LearningRecord,
    Lift,
    LiftVerdict,
)

if TYPE_CHECKING:
    from engine import Engine


ItemView = CandidateView | LearningView
"""A candidate or a learning, with its links."""

MAX_LISTED_ITEMS = 500
"""Maximum number of candidates, and of learnings, that are listed. Of the learnings, those of sessions are left out
first, and of these the oldest. The filter finds the others too."""

CANDIDATE_HEADINGS = WORDS["candidate_heading"]
"""The headings of candidates by their status, in the order of the list; learnings follow by scope."""

NEEDS_DECISION = CANDIDATE_HEADINGS["review"]
"""The heading of what waits for you."""

FAULT_PREFIX = "fault: "
"""The prefix of the id of a row for a file that cannot be read."""


def is_candidate(row_id: str) -> bool:
    """Whether a row with this id is a candidate, not a learning or a fault."""
    return row_id.startswith("cand_")


class ListedRow(NamedTuple):
    """A row of the list, with what it is filtered by."""

    heading: str
    kind: str
    """The kind of a learning, "" for a candidate."""
    searched_text: str
    row: Row


def read_list(engine: Engine, words: str, required_id: str) -> list[ListedRow]:
    """The rows of the list in their order, with the learning `required_id`, if it exists, however old it is. Blocking:
    call it in a thread."""
    faults = [  # of files with learnings
        ListedRow("Cannot be read", "", fault, Row(FAULT_PREFIX + fault, fault, "▲", mark_style="wants"))
        for scope in engine.learnings.list_scopes()
        for fault in scope.faults
    ]
    return [*_read_candidates(engine), *_read_learnings(engine, words, required_id), *faults]


def _read_candidates(engine: Engine) -> Iterator[ListedRow]:
    """The candidates, those with the highest score first. One that does harm waits for you."""
    candidates = engine.adaptation.list_candidates(limit=MAX_LISTED_ITEMS)
    for candidate in sorted(candidates, key=lambda candidate: (-candidate.score, candidate.title)):
        is_active = candidate.status is CandidateStatus.ACTIVE
        lift = engine.adaptation.view(candidate.id).lift if is_active else None
        heading = NEEDS_DECISION if _does_harm(lift) else CANDIDATE_HEADINGS[candidate.status]
        label = learning_fields.CANDIDATE_STATUS[candidate.status].words
        yield ListedRow(heading, "", _make_search_text(candidate, label), make_candidate_row(candidate, lift))


def _read_learnings(engine: Engine, words: str, required_id: str) -> Iterator[ListedRow]:
    """The learnings by scope, those of all projects first."""
    scopes = [*LearningScope][::-1]

    def sort(entries: Sequence[LearningEntry]) -> list[LearningEntry]:
        return sorted(entries, key=lambda entry: (not _needs_review(entry), scopes.index(entry.scope)))

    # Each session has risks of its own, so that the newest of all scopes would soon be these alone.
    entries = sort(engine.learnings.list_entries(words=words, limit=sys.maxsize))[:MAX_LISTED_ITEMS]
    now = engine.clock.now()
    if required_id and not is_candidate(required_id) and required_id not in {entry.id for entry in entries}:
        with contextlib.suppress(Refusal):  # the screen says that it no longer exists
            entries = sort([*entries, engine.learnings.view(required_id).entry])
    for entry in entries:
        task = entry.session_task if entry.scope is LearningScope.SESSION else ""
        scope = learning_fields.describe_scope(entry.scope, entry.scope_id, entry.workspace, task)
        heading = NEEDS_DECISION if _needs_review(entry) else f"Learned: {scope}"
        text = _make_search_text(entry, learning_fields.LEARNING_STATUS[entry.status].words)
        yield ListedRow(heading, entry.kind, text, make_learning_row(entry, now))


def _make_search_text(value: Candidate | LearningEntry, label: str) -> str:
    """All texts of a candidate or a learning, and the words of its status."""
    values = (getattr(value, field.name) for field in dataclasses.fields(value))
    return " ".join([*(text for text in values if isinstance(text, str)), label])


def _needs_review(entry: LearningEntry) -> bool:
    """Whether the operator has to decide if a learning is still valid."""
    return bool(entry.review) and entry.is_active


def _does_harm(lift: Lift | None) -> bool:
    """Whether runs went worse with a candidate than without."""
    return lift is not None and lift.verdict is LiftVerdict.HARMS


def select_rows(
    listed: Sequence[ListedRow], words: Sequence[str], only_heading: str, only_kind: str
) -> dict[str, list[Row]]:
    """The rows by their headings: those that have `words`, and the heading or the kind of learning, if it is not ""."""
    groups: dict[str, list[Row]] = {heading: [] for heading in CANDIDATE_HEADINGS.values()}
    for heading, kind, text, row in listed:
        is_chosen = only_heading in ("", heading) and only_kind in ("", kind)
        if is_chosen and (row.id.startswith(FAULT_PREFIX) or has_words(text, words)):
            groups.setdefault(heading, []).append(row)
    return {heading: rows for heading, rows in groups.items() if rows}


def make_candidate_row(candidate: Candidate, lift: Lift | None) -> Row:
    """A candidate in the list: its type, what it proposes, its lift or its score."""
    sign, tone, _ = learning_fields.CANDIDATE_STATUS[candidate.status]
    right = f"score {candidate.score:.0f}"
    if lift is not None:
        is_measured = lift.verdict is not LiftVerdict.NOT_ENOUGH
        right = f"lift {formats.percentage_points(lift.difference) if is_measured else '…'}"
    if harms := _does_harm(lift):
        sign = "▲"  # you may want to roll it back
        tone = "wants"
    text_style = "ink" if candidate.status in (CandidateStatus.REVIEW, CandidateStatus.ACTIVE) else "grey"
    text = f"{learning_fields.CANDIDATE_TYPES[candidate.type].short:<8}{one_line(candidate.title)}"
    right_style = "wrong" if harms else "grey"
    return Row(candidate.id, text, sign, right, style=text_style, mark_style=tone, right_style=right_style)


def make_learning_row(entry: LearningEntry, now: datetime, prefix: str = "") -> Row:
    """A learning in a list: its kind, its title, when it was found."""
    sign, tone, _ = learning_fields.LEARNING_STATUS[entry.status]
    if _needs_review(entry):
        sign = "▲"
        tone = "wants"
    title = learning_fields.make_title_or_excerpt(entry.title, entry.text)
    text = f"{learning_fields.LEARNING_KINDS[entry.kind].short:<6}{title}"
    found_at = formats.moment(entry.created_at, now) if entry.created_at else ""
    text_style = "ink" if entry.is_active else "faint"
    return Row(prefix + entry.id, text, sign, found_at, style=text_style, mark_style=tone, right_style="grey")


def make_link_rows(view: ItemView, prompts: Mapping[str, str], now: datetime) -> Iterator[Row]:
    """The links of a candidate (its records) or a learning (its sources, its copies, the prompts that contained it).

    The ids of the rows are `record:ID`, `learning:ID` and `session:ID`. `prompts` are those of sessions, by id.
    """
    groups = (
        _make_record_rows(view, now) if isinstance(view, CandidateView) else _make_provenance_rows(view, prompts, now)
    )
    for title, rows in groups.items():
        if rows:
            yield from (Row("", f" {title.upper()}  {len(rows):,}"), *rows)


def _make_record_rows(view: CandidateView, now: datetime) -> dict[str, list[Row]]:
    """The records of a candidate by what they say of it."""
    candidate = view.candidate
    titles = learning_fields.EVIDENCE_TITLES.values()
    evidence = zip(titles, (candidate.drafted_from, candidate.corroborated_by, candidate.against), strict=True)
    return {title: [_make_record_row(record, candidate, now) for record in view.records if record.id in ids]
            for title, ids in evidence}  # fmt: skip


def _make_record_row(record: LearningRecord, candidate: Candidate, now: datetime) -> Row:
    mark, style = ("✗", "wants") if record.id in candidate.against else ("✓", "good")
    right = f"{record.score:.0f}  {formats.moment(record.at, now):>9}"
    return Row(f"record:{record.id}", f"{record.kind}: {one_line(record.reason)}", mark, right, mark_style=style)


def _make_provenance_rows(view: LearningView, prompts: Mapping[str, str], now: datetime) -> dict[str, list[Row]]:
    """The sources of a learning, and where it went."""
    reached = [
        Row(
            f"session:{call.session}:{number}",
            f"{call.agent or 'an agent'}: {prompts.get(call.session, call.session)}",
            "▸",
            formats.moment(call.at, now),
        )
        for number, call in enumerate(view.reached)
    ]
    return {
        "came from": [make_learning_row(entry, now, "learning:") for entry in view.promoted_from],
        "became": [make_learning_row(entry, now, "learning:") for entry in view.promoted_to],
        "sessions": [Row(f"session:{session}", prompts.get(session, session), "○") for session in view.sessions],
        f"reached {formats.count(view.prompts, 'prompt')}, the newest": reached,
    }


# Decisions, and what they change


@frozen
class Decision:
    """A decision about a candidate or a learning."""

    question: str
    """Asked before, "" for no question."""
    message: str
    """Shown when it is done."""
    carry_out: Callable[[Engine, str, str], object]
    """`carry_out(engine, id, reason)`: blocking. Raises the engine's refusals."""
    verb: str = ""
    """The answer that confirms it, "" where the question asks for a reason."""
    is_possible: Callable[[LearningEntry], bool] = lambda entry: False
    """Whether it can be made about a learning now. Those about a candidate are in `CANDIDATE_MOVES`."""
    make_effect: Callable[[Document], Iterable[Field]] | None = None
    """What it changes for a learning."""


DECISIONS = {
    "approve": Decision(
        "Activate it?", "Active now", lambda engine, id, _: engine.adaptation.approve(id), verb="activate"
    ),
    "reject": Decision("Reject it?", "Rejected", lambda engine, id, reason: engine.adaptation.reject(id, reason)),
    "roll back": Decision(
        "Roll it back?",
        "Rolled back: its changes are removed",
        lambda engine, id, reason: engine.adaptation.roll_back(id, reason),
    ),
    "retract": Decision(
        "Retract it?",
        "Retracted",
        lambda engine, id, reason: engine.learnings.retract(id, reason),
        is_possible=lambda entry: entry.is_active,
        make_effect=learning_fields.make_retraction_fields,
    ),
    "keep": Decision(
        "", "It is valid", lambda engine, id, _: engine.learnings.keep(id), is_possible=lambda entry: entry.can_be_kept
    ),
    "promote": Decision(
        "Apply it in all projects?",
        "It now applies in all projects",
        lambda engine, id, _: engine.learnings.promote(id),
        verb="apply everywhere",
        is_possible=lambda entry: entry.can_be_promoted,
        make_effect=learning_fields.make_promotion_fields,
    ),
}
"""The decisions by their name in the table of keys."""


def find_subject(view: ItemView) -> Candidate | LearningEntry:
    """The candidate or the learning that `view` is about."""
    return view.candidate if isinstance(view, CandidateView) else view.entry


def is_decision_possible(name: str, view: ItemView) -> bool:
    """Whether the decision `name` can be made about it now."""
    if isinstance(view, CandidateView):
        return (view.candidate.status, name) in CANDIDATE_MOVES
    return DECISIONS[name].is_possible(view.entry)

"""Candidates and learnings as the learning screen shows them: their rows, their links, and the decisions about them."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console import formats
from clawpy_console.fields import Field
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import crop, has_words, one_line
from clawpy_console.keys import bindings
from clawpy_console.screens.dialog import PreviewDialog, confirm
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.rows import Row
from clawpy_console.widgets.texts import ReflowingText, render_fields
from engine import document
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
    from clawpy_console.console import Console
    from engine import Engine


MAX_LISTED_ITEMS = 500
"""Maximum number of candidates, and of learnings, that are listed. Of the learnings, those of sessions are left out
first, and of these the oldest. The filter finds the others too."""

NEEDS_DECISION = "Needs your decision"
"""The heading of what waits for you."""

CANDIDATE_HEADINGS = {
    "review": NEEDS_DECISION, "promoted": "Active", "drafted": "Needs more evidence",
    "rejected": "Rejected / rolled back", "rolled_back": "Rejected / rolled back",
}  # fmt: skip
"""The headings of candidates by their status, in the order of the list; learnings follow by scope."""

FAULT = "fault: "
"""The prefix of the id of a row for a file that cannot be read."""


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
    return [*_read_candidates(engine), *_read_learnings(engine, words, required_id), *_read_faults(engine)]


def _read_candidates(engine: Engine) -> Iterator[ListedRow]:
    """The candidates, those with the highest score first. One that does harm waits for you."""
    candidates = engine.adaptation.candidates(limit=MAX_LISTED_ITEMS)
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
    if required_id and not required_id.startswith("cand_") and required_id not in {entry.id for entry in entries}:
        with contextlib.suppress(Refusal):  # the screen says that it no longer exists
            entries.append(engine.learnings.view(required_id).entry)
    for entry in sort(entries):
        task = entry.session_task if entry.scope is LearningScope.SESSION else ""
        scope = learning_fields.describe_scope(entry.scope, entry.scope_id, entry.workspace, task)
        heading = NEEDS_DECISION if _needs_review(entry) else f"Learned: {scope}"
        text = _make_search_text(entry, learning_fields.LEARNING_STATUS[entry.status].words)
        yield ListedRow(heading, entry.kind, text, make_learning_row(entry, now))


def _read_faults(engine: Engine) -> Iterator[ListedRow]:
    """The errors of files with learnings."""
    for scope in engine.learnings.list_scopes():
        for fault in scope.faults:
            yield ListedRow("Cannot be read", "", fault, Row(FAULT + fault, fault, "▲", mark_style="wants"))


def _make_search_text(value: Candidate | LearningEntry, label: str) -> str:
    """All texts of a candidate or a learning, and the words of its status."""
    values = (getattr(value, field.name) for field in dataclasses.fields(value))
    return " ".join([*(text for text in values if isinstance(text, str)), label])


def _needs_review(entry: LearningEntry) -> bool:
    """Whether the operator has to decide if a learning is still valid."""
    return bool(entry.review) and entry.active


def _does_harm(lift: Lift | None) -> bool:
    """Whether runs went worse with a candidate than without."""
    return lift is not None and lift.verdict is LiftVerdict.HARMS


def select_rows(listed: Sequence[ListedRow], words: Sequence[str], only: str) -> dict[str, list[Row]]:
    """The rows by their headings: those that have `words`, and the heading or kind of learning `only`, if any."""
    groups: dict[str, list[Row]] = {heading: [] for heading in CANDIDATE_HEADINGS.values()}
    for heading, kind, text, row in listed:
        is_fault = row.id.startswith(FAULT)
        if only in ("", heading, kind) and (is_fault or has_words(text, words)):
            groups.setdefault(heading, []).append(row)
    return {heading: rows for heading, rows in groups.items() if rows}


def make_candidate_row(candidate: Candidate, lift: Lift | None) -> Row:
    """A candidate in the list: its type, what it proposes, its lift or its score."""
    sign, tone, _ = learning_fields.CANDIDATE_STATUS[candidate.status]
    right = f"score {candidate.score:.0f}"
    if lift is not None:
        is_measured = lift.verdict is not LiftVerdict.NOT_ENOUGH
        right = f"lift {learning_fields.format_points(lift.difference) if is_measured else '…'}"
    if harms := _does_harm(lift):
        sign, tone = "▲", "wants"  # you may want to roll it back
    text_style = "ink" if candidate.status in (CandidateStatus.REVIEW, CandidateStatus.ACTIVE) else "grey"
    text = f"{learning_fields.CANDIDATE_TYPES[candidate.type][0]:<8}{one_line(candidate.title)}"
    return Row(candidate.id, text, sign, right, text_style, tone, "wrong" if harms else "grey")


def make_learning_row(entry: LearningEntry, now: datetime, prefix: str = "") -> Row:
    """A learning in a list: its kind, its title, when it was found."""
    sign, tone, _ = learning_fields.LEARNING_STATUS[entry.status]
    if _needs_review(entry):
        sign, tone = "▲", "wants"
    text = f"{learning_fields.LEARNING_KINDS[entry.kind][0]:<6}{learning_fields.make_title(entry.title, entry.text)}"
    found_at = formats.moment(entry.created_at, now) if entry.created_at else ""
    return Row(prefix + entry.id, text, sign, found_at, "ink" if entry.active else "faint", tone, "grey")


def make_link_rows(view: CandidateView | LearningView, prompts: Mapping[str, str], now: datetime) -> Iterator[Row]:
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
    candidate, titles = view.candidate, learning_fields.EVIDENCE_TITLES.values()
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
        "sessions": [Row(f"session:{id}", prompts.get(id, id), "○") for id in view.sessions],
        f"reached {formats.count(view.prompts, 'prompt')}, the newest": reached,
    }


View = CandidateView | LearningView


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


class DecisionDialog(PreviewDialog[str | None]):
    """Asks for the reason of a decision. Gives the reason, "" for none; None on Escape.

    Enter does nothing and says so, because one key too many would decide.
    """

    BINDINGS = bindings("deciding", "preview")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    DecisionDialog .dialog { width: 100; }
    DecisionDialog #pane { height: auto; max-height: 60vh; padding: 0; }
    DecisionDialog #reason { height: 3; margin: 1 0 0 0; }
    DecisionDialog KeyLine { dock: none; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, preview: list[Field]) -> None:
        """`preview`: what the decision changes."""
        super().__init__()
        self._title, self._preview = title, preview

    def compose(self) -> ComposeResult:
        with self.make_frame(self._title):
            with VerticalScroll(id="pane", can_focus=False):
                yield ReflowingText(id="change")
            yield Input(placeholder="Reason, in a few words (kept with it)", id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._preview)

    @on(Input.Submitted)
    def _explain_enter(self) -> None:
        self.show_enter_hint(f"{self.key_of('deciding.decide')} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())


def find_subject(view: View) -> Candidate | LearningEntry:
    """The candidate or the learning that `view` is about."""
    return view.candidate if isinstance(view, CandidateView) else view.entry


def is_decision_possible(name: str, view: View) -> bool:
    """Whether the decision `name` can be made about it now."""
    if isinstance(view, CandidateView):
        return (view.candidate.status, name) in CANDIDATE_MOVES
    entry = view.entry
    match name:
        case "retract":
            return entry.active
        case "keep":
            return entry.can_be_kept
        case "promote":
            return entry.can_be_promoted
    return False


UNWRAPPED_CELLS = 10_000
"""A width at which no line wraps: the dialog wraps the text itself."""

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
    "retract": Decision("Retract it?", "Retracted", lambda engine, id, reason: engine.learnings.retract(id, reason)),
    "keep": Decision("", "It is valid", lambda engine, id, _: engine.learnings.keep(id)),
    "promote": Decision(
        "Apply it in all projects?",
        "It now applies in all projects",
        lambda engine, id, _: engine.learnings.promote(id),
        verb="apply everywhere",
    ),
}
"""The decisions by their name in the table of keys."""


def ask_for_decision(app: Console, name: str, view: View, decide: Callable[[str], object]) -> None:
    """Ask whether to carry out the decision `name`, and show what it changes. `decide` gets the reason, "" for none."""
    decision, subject = DECISIONS[name], find_subject(view)
    if not decision.question:
        decide("")
        return
    text = subject.text if isinstance(subject, LearningEntry) else ""
    title = f"{decision.question} {crop(learning_fields.make_title(subject.title, text), 60)}"
    effect = list(_make_effect_fields(name, view))
    if decision.verb:
        preview = Content("\n").join(render_fields(effect, UNWRAPPED_CELLS))
        confirm(app, title, preview, decision.verb, partial(decide, ""))
    else:
        app.ask(DecisionDialog(title, effect), decide)


def _make_effect_fields(name: str, view: View) -> Iterator[Field]:
    """The effect of the decision `name`."""
    match name:
        case "retract":
            return learning_fields.make_retraction_fields(document(view))
        case "promote":
            return learning_fields.make_promotion_fields(document(view))
    return learning_fields.make_decision_fields(document(view), name)

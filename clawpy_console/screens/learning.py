"""Screen 5, learning: candidates and learnings, with the keys that decide which of them agents use (SPEC 5, 6).

`learning_rows` makes the rows, and has the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from clawpy_console import formats
from clawpy_console.fields import Field, text_line
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.screens import CURSOR_DEBOUNCE_S, FILTER_DEBOUNCE_S, FilteredScreen, find_next_choice
from clawpy_console.screens.dialog import PreviewDialog, confirm
from clawpy_console.screens.learning_rows import (
    CANDIDATE_HEADINGS,
    DECISIONS,
    FAULT_PREFIX,
    NEEDS_DECISION,
    ItemView,
    ListedRow,
    find_subject,
    is_candidate,
    is_decision_possible,
    make_link_rows,
    read_list,
    select_rows,
)
from clawpy_console.widgets import Pane, Rows, ScrollPane, group_rows
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.texts import Filter, Heading, ReflowingText, render_fields
from engine import document
from engine.model import LearningEntry, Refusal
from engine.model.adaptation import Candidate, CandidateView, LearningRecord
from engine.model.learnings import ChainReport, RetractReport

EMPTY_TEXT = "Learnings come from sessions. A candidate appears when the same thing happens repeatedly."
"""The text in place of the details while there is nothing to list."""

REFRESH_S = 5.0
"""Seconds after which the list is read again, because no event says that you edited a file of learnings."""


UNWRAPPED_CELLS = 10_000
"""A width at which no line wraps: the dialog wraps the text itself."""


class ReasonDialog(PreviewDialog[str | None]):
    """Asks for the reason of a decision, below what it changes. Gives the reason, "" for none; None on Escape.

    Enter does nothing and says so, because one key too many would decide.
    """

    BINDINGS = make_bindings("deciding", "preview")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    ReasonDialog .dialog { width: 100; }
    ReasonDialog #pane { height: auto; max-height: 60vh; padding: 0; }
    ReasonDialog #reason { height: 3; margin: 1 0 0 0; }
    ReasonDialog KeyLine { dock: none; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, preview: list[Field]) -> None:
        """`preview`: what the decision changes."""
        super().__init__()
        self._title = title
        self._preview = preview

    def compose(self) -> ComposeResult:
        with self.make_frame(self._title):
            yield from self.compose_pane()
            yield Input(placeholder="Reason, in a few words (kept with it)", id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._preview)

    @on(Input.Submitted)
    def _explain_enter(self) -> None:
        self.show_hint(f"⏎ does nothing here: {self.key_of('deciding.decide')} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())


class LearningScreen(FilteredScreen):
    """The list left, the entry under its cursor right, with its records or sources below. All is read in threads."""

    MODE = "learning"
    PURPOSE = "Proposed changes and lessons from sessions. You decide what agents use."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#list"
    BINDINGS = make_bindings("learning", "candidates", "learnings", "columns", "filter")
    PANES = {"list": "left", "detail": "right", "links": "right"}
    FILTER_PANE = "list"
    OWN_TOPICS = frozenset({"adaptation", "learnings"})

    _list = getters.query_one("#list", Rows)
    _links = getters.query_one("#links", Rows)

    _listed: list[ListedRow] | None = None  # None until they were read
    _shown_heading = ""  # the only heading that is shown, "" for all
    _shown_kind = ""  # the only kind of learning that is shown, "" for all
    _view: ItemView | None = None  # the candidate or learning that was read last
    _id_to_select = ""  # as soon as it is listed
    _last_decided_id = ""  # the candidate that was decided last, "" for none
    _is_undoing = False  # until the engine has answered

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Pane(id="left"):
                yield Heading(id="list-title")
                yield Filter("words, type, scope, status")
                yield Rows(id="list", empty="Loading…")
            with Pane(id="right"):
                with ScrollPane(id="detail"):
                    yield ReflowingText(id="detail-text")
                yield Rows(id="links", classes="-fit")
                yield ReflowingText(id="record")

    # Reading

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self._refresh, name="learnings")

    def _refresh(self) -> None:
        if self.is_current:
            self.read_again()

    def draw(self, changed: frozenset[str]) -> None:
        if self._listed is None:
            self.read_again()

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "list", "right": "detail"}

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.is_ready:
            self._draw_record()

    def read_again(self, wait: float = 0.0) -> None:
        words = " ".join(self.filter_words)
        required_id = self._id_to_select
        self.read(lambda engine: read_list(engine, words, required_id), self._show_list, group="list", wait=wait)

    def _show_list(self, listed: list[ListedRow]) -> None:
        self._listed = listed
        self._draw_list()
        if self._id_to_select:
            self._list.select(self._id_to_select)
            if self.current != self._id_to_select:
                self.app.show_toast(f"{self._id_to_select} no longer exists.", "warning")
            self._id_to_select = ""
        self._read_view()

    def _read_view(self, wait: float = 0.0) -> None:
        item_id = self.current
        if not item_id or item_id.startswith(FAULT_PREFIX):
            self._show_view(None)
            return

        self.read(
            lambda engine: engine.adaptation.view(item_id) if is_candidate(item_id) else engine.learnings.view(item_id),
            self._show_view,
            self._on_view_refused,
            group="view",
            wait=wait,
        )

    def _on_view_refused(self, refusal: Refusal) -> None:
        """Read the list again if its row no longer exists, because you removed it from its file."""
        if refusal.code in ("unknown_learning", "unknown_candidate"):
            self.read_again()
        else:
            self.app.show_toast(refusal, "error")

    def _show_view(self, view: ItemView | None) -> None:
        before = self._view
        self._view = view
        self._draw_view()
        if before is None or view is None or find_subject(before).id != find_subject(view).id:
            self.query_one("#detail").scroll_home(animate=False)

    # What is under the cursor

    @property
    def current(self) -> str:
        """The id of the row under the cursor, "" for none."""
        return self._list.current

    @property
    def view(self) -> ItemView | None:
        """The candidate or learning under the cursor, None until it was read."""
        return self._view if self._view is not None and find_subject(self._view).id == self.current else None

    def show(self, item_id: str) -> None:
        """Put the cursor on a candidate or a learning as soon as it was read; the filters are cleared."""
        self._id_to_select = item_id
        self._shown_heading = self._shown_kind = ""
        self.filter.close()
        self.read_again()
        self.go_to("list")

    # Drawing

    def apply_filter(self) -> None:
        self._draw_list()
        self.read_again(FILTER_DEBOUNCE_S)

    def _draw_list(self) -> None:
        """Draw the candidates and learnings that match the filter and the group."""
        groups = select_rows(self._listed or (), self.filter_words, self._shown_heading, self._shown_kind)
        shown_only = self._shown_heading or (self._shown_kind and learning_fields.LEARNING_KINDS[self._shown_kind].full)
        empty = "No match." if shown_only else self.describe_empty_list("Nothing yet.")
        rows = group_rows({f"{title}  {len(members):,}": members for title, members in groups.items()})
        self._list.show(rows, empty=empty)
        total = f"  {sum(map(len, groups.values())):,}" if groups else ""
        only = f"  only: {shown_only}" if shown_only else ""
        title = Content.assemble("LEARNING", (total, "$grey"), (only, "not bold $accent"))
        self.show_content("#list-title", title)

    def _draw_view(self) -> None:
        """Draw the candidate or learning under the cursor, and its links."""
        view = self.view
        current = self.current
        now = self.now
        fields: list[Field] = []
        if isinstance(view, CandidateView):
            fields = [*learning_fields.make_candidate_fields(document(view), now)]
        elif view is not None:
            fields = [*learning_fields.make_learning_fields(document(view), now)]
        elif current.startswith(FAULT_PREFIX):
            fields = [
                text_line("A learning cannot be read", "title"),
                text_line(current.removeprefix(FAULT_PREFIX), "wants"),
            ]
        elif self._listed is not None and not current:
            fields = [text_line(EMPTY_TEXT, "faint")]
        self.show_fields("#detail-text", fields)
        links = self._links
        prompts = {session.id: one_line(session.prompt) for session in self.state.sessions}
        links.show(list(make_link_rows(view, prompts, now)) if view else [])
        links.display = bool(links.current)
        if self.focused is not None and not self.focused.display:
            self.go_to("list")
        self._draw_record()
        self.refresh_bindings()

    @property
    def _record(self) -> LearningRecord | None:
        """The record of a candidate under the cursor of the links, None for another link."""
        records = self.view.records if isinstance(self.view, CandidateView) else ()
        return next((record for record in records if f"record:{record.id}" == self._links.current), None)

    @on(Rows.Moved, "#links")
    def _draw_record(self) -> None:
        """Draw the record under the cursor of the links."""
        record = self._record
        self.show_fields(
            "#record", learning_fields.make_candidate_record_fields(document(record), self.now) if record else ()
        )
        self.query_one("#record").display = record is not None and (self.pane == "links" or not self.has_class("-low"))

    # Moving about

    @on(Rows.Moved, "#list")
    def _on_row_moved(self) -> None:
        self.refresh_bindings()
        self._read_view(CURSOR_DEBOUNCE_S)

    @on(Rows.Opened, "#list")
    def _on_row_opened(self) -> None:
        if not self.go_to("links"):
            self.go_to("detail")

    @on(Rows.Opened, "#links")
    def _on_link_opened(self, message: Rows.Opened) -> None:
        """Go to a linked learning, or to the session of a link."""
        kind, linked_id = message.row_id.split(":")[:2]
        if kind == "learning":
            self.show(linked_id)
            return
        record = self._record
        if session := record.session_id if record is not None else linked_id:
            self.app.open("work", session)
        else:
            self.app.show_toast("It does not come from a session.", "warning")

    def action_show_only(self, filter_by: str) -> None:
        """Show the next "group", or the next "kind" of learning, alone; after the last, all."""
        if filter_by == "group":
            headings = dict.fromkeys(("", *CANDIDATE_HEADINGS.values()))
            self._shown_heading = find_next_choice([*headings], self._shown_heading)
            self._shown_kind = ""
        else:
            kinds = ["", *learning_fields.LEARNING_KINDS]
            self._shown_heading, self._shown_kind = "", find_next_choice(kinds, self._shown_kind)
        self._draw_list()
        self.go_to("list")

    def leave(self) -> bool:
        if self.pane == "list":
            self._shown_heading = self._shown_kind = ""
            self._draw_list()
        return self.go_to("list")

    def find_text_to_copy(self) -> str:
        return self.current

    # Deciding

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that do nothing with what is under the cursor are not offered."""
        if action == "undo":
            return bool(self._last_decided_id)
        if action == "decide":
            return self.is_ready and self.view is not None and is_decision_possible(str(parameters[0]), self.view)
        return True

    def action_decide(self, name: str) -> None:
        """Carry out the decision `name`, after a question that shows what it changes."""
        view = self.view
        if view is None or self._refuse_while_undoing():
            return
        decision = DECISIONS[name]
        subject = find_subject(view)

        def decide(reason: str) -> None:
            self.app.call_engine(
                lambda engine: decision.carry_out(engine, subject.id, reason), partial(self._on_decided, name, view)
            )

        if decision.question:
            self._ask_before(name, view, decide)
        else:
            decide("")

    def _ask_before(self, name: str, view: ItemView, decide: Callable[[str], None]) -> None:
        """Show what a decision changes, and ask for its reason or its confirmation before `decide`."""
        decision = DECISIONS[name]
        subject = find_subject(view)
        text = subject.text if isinstance(subject, LearningEntry) else ""
        title = f"{decision.question} {crop(learning_fields.make_title_or_excerpt(subject.title, text), 60)}"
        make_effect = decision.make_effect or partial(learning_fields.make_candidate_decision_fields, move=name)
        effect = list(make_effect(document(view)))
        if decision.verb:
            preview = Content("\n").join(render_fields(effect, UNWRAPPED_CELLS))
            confirm(self.app, title, preview, decision.verb, partial(decide, ""))
        else:
            self.app.ask(ReasonDialog(title, effect), decide)

    def _on_decided(self, name: str, view: ItemView, result: object) -> None:
        message = DECISIONS[name].message
        if name == "retract":
            message += f". {self.key_of('learnings.keep')} makes it valid again"
        if isinstance(result, RetractReport) and result.queued:
            message += (
                f"; {formats.count(len(result.queued), 'learning')} promoted from it: check below “{NEEDS_DECISION}”"
            )
        if isinstance(view, CandidateView):
            self._last_decided_id = view.candidate.id
            message += f". Undo: {self.key_of('candidates.undo')}"
        self.app.show_toast(message)
        self._refresh_all()

    def _refuse_while_undoing(self) -> bool:
        """Whether an undo is still running, which is said."""
        if self._is_undoing:
            self.app.show_toast("Undo is still running. Try again in a moment.", "warning")
        return self._is_undoing

    def action_undo(self) -> None:
        """Undo the last decision about a candidate."""
        candidate_id = self._last_decided_id
        if self._refuse_while_undoing():
            return

        def on_undone(restored: Candidate) -> None:
            self._last_decided_id = ""
            self._is_undoing = False
            self.app.show_toast(f"Undone: {learning_fields.CANDIDATE_STATUS[restored.status].words}, as before")
            self._refresh_all()

        def on_refusal(refusal: Refusal) -> None:
            self._is_undoing = False
            self.app.show_toast(refusal, "error")

        self._is_undoing = True
        self.app.call_engine(lambda engine: engine.adaptation.undo(candidate_id), on_undone, on_refusal)

    def action_chain(self) -> None:
        """Run the promotion chain now: learnings that recur in several sessions are promoted."""
        self.app.show_toast("Checking what recurs…")
        self.app.call_engine(lambda engine: engine.learnings.run_chain(), self._on_chain_report, group="chain")

    def _on_chain_report(self, report: ChainReport) -> None:
        self.app.show_toast(_describe_chain_report(report))
        for fault in report.faults[:3]:
            self.app.show_toast(fault, "warning")
        self._refresh_all()

    def _refresh_all(self) -> None:
        self.app.reload(["changes"])
        self.read_again()


def _describe_chain_report(report: ChainReport) -> str:
    """How many learnings a run of the chain found, promoted, saw again and merged."""
    counts = {
        "found": sum(report.extracted.values()),
        "promoted": len(report.promoted),
        "repeated": len(report.reinforced),
        "merged": len(report.compacted),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "Nothing new recurs."

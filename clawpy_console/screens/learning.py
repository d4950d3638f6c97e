"""Screen 5, learning: candidates and learnings, with the keys that decide which of them agents use (SPEC 5, 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import formats
from clawpy_console.dialogs.base import PreviewDialog
from clawpy_console.dialogs.question import confirm
from clawpy_console.fields import Document, Field, text_line
from clawpy_console.fields import learning as learning_fields
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import bindings
from clawpy_console.screens.base import ConsoleScreen, next_choice
from clawpy_console.screens.learning_rows import FAULT, GROUPS, YOURS, Item, link_rows, read_items, shown_rows
from clawpy_console.widgets.bars import Filter, KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText, render_fields
from clawpy_console.widgets.row_view import ScrollPane
from clawpy_console.widgets.rows import Rows, grouped
from engine import document
from engine.frozen import frozen
from engine.model.adaptation import CANDIDATE_MOVES
from engine.model.learnings import ChainReport, RetractReport

if TYPE_CHECKING:
    from engine import Engine


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

    def __init__(self, title: str, preview: Sequence[Field]) -> None:
        """`preview`: what the decision changes."""
        super().__init__()
        self._title, self._preview = title, preview

    def compose(self) -> ComposeResult:
        with self.frame(self._title):
            with VerticalScroll(id="pane", can_focus=False):
                yield ReflowingText(id="change")
            hint = "Reason, in a few words (kept with it)"
            yield Input(placeholder=hint, id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._preview)

    @on(Input.Submitted)
    def _explain_enter(self) -> None:
        self.show_enter_hint(f"{self.key_of('deciding.decide')} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())


EMPTY_TEXT = "Learnings come from sessions. A candidate appears when the same thing happens repeatedly."
"""The text in place of the details while there is nothing to list."""

CURSOR_DEBOUNCE_S = 0.06
"""Seconds that the cursor stays on a row before it is read."""

TYPING_DEBOUNCE_S = 0.15
"""Seconds without a key after which the list is filtered again."""

UNWRAPPED_CELLS = 10_000
"""A width at which no line wraps: the dialog wraps the text itself."""


@frozen
class Decision:
    """A decision about a candidate or a learning."""

    question: str
    """Asked before, "" for no question."""
    message: str
    """Shown when it is done."""
    takes_reason: bool = False
    verb: str = ""
    """The answer that confirms it, where no reason is asked for."""


DECISIONS = {
    "approve": Decision("Activate it?", "Active now", verb="activate"),
    "reject": Decision("Reject it?", "Rejected", takes_reason=True),
    "roll back": Decision("Roll it back?", "Rolled back: its changes are removed", takes_reason=True),
    "retract": Decision("Retract it?", "Retracted", takes_reason=True),
    "keep": Decision("", "It stays valid"),
    "promote": Decision("Apply it in all projects?", "It now applies in all projects", verb="apply everywhere"),
}
"""The decisions by their name in the table of keys."""


class LearningScreen(ConsoleScreen):
    """The list left, the entry under its cursor right, with its records or sources below. All is read in threads."""

    MODE = "learning"
    PURPOSE = "Proposed changes and lessons from sessions. You decide what agents use."
    CSS_PATH = ["columns.tcss", "learning.tcss"]
    AUTO_FOCUS = "#list"
    BINDINGS = bindings("learning", "candidates", "learnings", "columns", "filter")
    PANES = {"list": "left", "detail": "right", "links": "right"}
    FILTER_PANE = "list"

    _list = getters.query_one("#list", Rows)
    _links = getters.query_one("#links", Rows)

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Item] | None = None
        self._group_filter = ""  # the only heading or kind of learning that is shown, "" for all
        self._view: Document | None = None  # the entry that was read last
        self._id_to_select = ""  # as soon as it is listed
        self._last_decided_id = ""  # the candidate that was decided last, "" for none
        self._is_undoing = False  # from the undo until the candidate was read again

    def body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static(id="list-title", classes="heading", markup=False)
                yield Filter("words, type, scope, status")
                yield Rows(id="list", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                with ScrollPane(id="detail"):
                    yield ReflowingText(id="detail-text")
                yield Rows(id="links", classes="-fit")
                yield ReflowingText(id="record")

    # Reading

    def refresh_topics(self, topics: frozenset[str]) -> None:
        if topics & {"adaptation", "learnings"}:
            self.read_again()

    def on_screen_resume(self) -> None:
        self.read_again()

    def draw(self, changed: frozenset[str]) -> None:
        if self._items is None:
            self.read_again()

    def columns(self) -> Mapping[str, str]:
        return {"left": "list", "right": "detail"}

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self._draw_record()

    def read_again(self, wait: float = 0.0) -> None:
        """Read the list again, after `wait` seconds."""
        words, id = " ".join(self.filter_words), self._id_to_select
        self.read(lambda engine: read_items(engine, words, id), self._show_items, group="items", wait=wait)

    def _show_items(self, items: list[Item]) -> None:
        self._items = items
        self._draw_list()
        if self._id_to_select:
            self._list.select(self._id_to_select)
            if self.current != self._id_to_select:
                self.app.show_toast(f"{self._id_to_select} no longer exists.", "warning")
            self._id_to_select = ""
        self._read_view()

    def _read_view(self, wait: float = 0.0) -> None:
        id = self.current
        if not id or id.startswith(FAULT):
            self._show_view(None)
            return

        def read_view(engine: Engine) -> Document:
            view = engine.adaptation.view(id) if id.startswith("cand_") else engine.learnings.view(id)
            return cast("Document", document(view))

        self.read(read_view, self._show_view, group="view", wait=wait)

    def _show_view(self, view: Document | None) -> None:
        before, self._view, self._is_undoing = self._view, view, False
        self._draw_view()
        if before is None or view is None or _id(before) != _id(view):
            self.query_one("#detail").scroll_home(animate=False)

    # What is under the cursor

    @property
    def current(self) -> str:
        """The id of the row under the cursor, "" for none."""
        return self._list.current

    @property
    def view(self) -> Document | None:
        """The document of the row under the cursor, None until it was read."""
        return self._view if self._view and _id(self._view) == self.current else None

    def show(self, id: str) -> None:
        """Put the cursor on a candidate or a learning as soon as it was read; the filters are cleared."""
        self._id_to_select, self._group_filter = id, ""
        self.filter.close()
        self.read_again()
        self.go_to("list")

    # Drawing

    def apply_filter(self) -> None:
        self._draw_list()
        self.read_again(TYPING_DEBOUNCE_S)

    def _draw_list(self) -> None:
        groups = shown_rows(self._items or (), self.filter_words, self._group_filter)
        empty = "No match." if self.filter_words or self._group_filter else "Nothing yet."
        rows = grouped({f"{title}  {len(members):,}": members for title, members in groups.items()})
        self._list.show(rows, empty=empty)
        _, only = learning_fields.KINDS.get(self._group_filter, ("", self._group_filter))
        total = f"  {sum(map(len, groups.values())):,}" if groups else ""
        title = Content.assemble("LEARNING", (total, "$grey"), (only and f"  only: {only}", "not bold $accent"))
        self.update_static("#list-title", title)

    def _draw_view(self) -> None:
        view, current, now = self.view, self.current, self.now
        fields: list[Field] = []
        if view is not None and "candidate" in view:
            fields = [*learning_fields.candidate_fields(view, now)]
        elif view is not None:
            fields = [*learning_fields.learning_fields(view, now)]
        elif current.startswith(FAULT):
            fields = [text_line("A learning cannot be read", "title"), text_line(current.removeprefix(FAULT), "wants")]
        elif self._items is not None and not current:
            fields = [text_line(EMPTY_TEXT, "faint")]
        self.show_fields("#detail-text", fields)
        links = self._links
        prompts = {session.id: one_line(session.prompt) for session in self.state.sessions}
        links.show(list(link_rows(view, prompts, now)) if view else [])
        links.display = bool(links.current)
        if self.focused is not None and not self.focused.display:
            self.go_to("list")
        self._draw_record()
        self.refresh_bindings()

    @property
    def _record(self) -> Document | None:
        """The record of a candidate under the cursor of the links, None for another link."""
        id = self._links.current.removeprefix("record:")
        return next((record for record in (self.view or {}).get("records", ()) if record["id"] == id), None)

    @on(Rows.Moved, "#links")
    def _draw_record(self) -> None:
        record = self._record
        self.show_fields("#record", learning_fields.record_fields(record, self.now) if record else ())
        self.query_one("#record").display = record is not None and (self.pane == "links" or not self.has_class("-low"))

    # Moving about

    @on(Rows.Moved, "#list")
    def _row_moved(self) -> None:
        self.refresh_bindings()
        self._read_view(CURSOR_DEBOUNCE_S)

    @on(Rows.Opened, "#list")
    def _row_opened(self) -> None:
        if not self.go_to("links"):
            self.go_to("detail")

    @on(Rows.Opened, "#links")
    def _link_opened(self, message: Rows.Opened) -> None:
        """Go to a linked learning, or to the session of a link."""
        kind, id = message.row_id.split(":")[:2]
        if kind == "learning":
            self.show(id)
            return
        session = (self._record or {}).get("session", "") if kind == "record" else id
        if session:
            self.app.open("work", session)
        else:
            self.app.show_toast("It does not come from a session.", "warning")

    def action_only(self, filter_by: str) -> None:
        """Show the next "group", or the next "kind" of learning, alone; after the last, all."""
        choices = dict.fromkeys(GROUPS.values()) if filter_by == "group" else learning_fields.KINDS
        self._group_filter = next_choice(["", *choices], self._group_filter if self._group_filter in choices else "")
        self._draw_list()
        self.go_to("list")

    def leave(self) -> bool:
        if self.pane == "list":
            self._group_filter = ""
            self._draw_list()
        return self.go_to("list")

    def copy_text(self) -> str:
        return self.current

    # Deciding

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do nothing with what is under the cursor are not offered."""
        if action == "undo":
            return bool(self._last_decided_id)
        if action != "decide":
            return super().check_action(action, parameters)
        view = self.view if self.ready else None
        if view is None:
            return False
        name = str(parameters[0])
        if "candidate" in view:
            return (view["candidate"]["status"], name) in CANDIDATE_MOVES
        if view["status"] != "active":
            return False
        if name == "promote":
            return bool(view["scope"] == "project" and view["kind"] != "proxy")
        return name == "retract" or (name == "keep" and bool(view["review"]))

    def action_decide(self, name: str) -> None:
        """Carry out the decision `name`, after a question that shows what it changes."""
        view, decision = self.view, DECISIONS[name]
        if view is None or self._warn_if_undoing():
            return
        id = _id(view)

        def decide(reason: str) -> None:
            self.app.call_engine(
                lambda engine: carry_out(engine, name, id, reason), partial(self._on_decided, name, id)
            )

        title = f"{decision.question} {crop(learning_fields.title(view.get('candidate', view)), 60)}"
        if not decision.question:
            decide("")
        elif decision.takes_reason:
            self.app.ask(DecisionDialog(title, preview_fields(view, name)), decide)
        else:
            text = Content("\n").join(render_fields(preview_fields(view, name), UNWRAPPED_CELLS))
            confirm(self.app, title, text, decision.verb, partial(decide, ""))

    def _on_decided(self, name: str, id: str, result: object) -> None:
        message = DECISIONS[name].message
        if isinstance(result, RetractReport) and result.queued:
            message += f"; {formats.count(len(result.queued), 'learning')} promoted from it: check below “{YOURS}”"
        if id.startswith("cand_"):
            self._last_decided_id = id
            message += f". Undo: {self.key_of('candidates.undo')}"
        self.app.show_toast(message)
        self._renew()

    def _warn_if_undoing(self) -> bool:
        if self._is_undoing:
            self.app.show_toast("Undo is still running. Try again in a moment.", "warning")
        return self._is_undoing

    def action_undo(self) -> None:
        """Undo the last decision about a candidate."""
        id = self._last_decided_id
        if self._warn_if_undoing():
            return

        def on_undone(restored: Any) -> None:
            self._last_decided_id = ""
            self.app.show_toast(f"Undone: {learning_fields.CANDIDATE_STATUS[restored.status][2]}, as before")
            self._renew()

        def on_refusal(refusal: Exception) -> None:
            self._is_undoing = False
            self.app.show_toast(str(refusal), "error")

        self._is_undoing = True
        self.app.call_engine(lambda engine: engine.adaptation.undo(id), on_undone, on_refusal)

    def action_chain(self) -> None:
        """Run the promotion chain now: learnings that recur in several sessions are promoted."""
        self.app.show_toast("Checking what recurs…")
        self.app.call_engine(lambda engine: engine.learnings.chain(), self._on_chain_report, group="chain")

    def _on_chain_report(self, report: ChainReport) -> None:
        counts = {"found": sum(report.extracted.values()), "promoted": len(report.promoted),
                  "repeated": len(report.reinforced), "merged": len(report.compacted)}  # fmt: skip
        self.app.show_toast(
            ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "Nothing new recurs."
        )
        for fault in report.faults[:3]:
            self.app.show_toast(fault, "warning")
        self._renew()

    def _renew(self) -> None:
        self.app.reload(["changes"])
        self.read_again()


def _id(view: Document) -> str:
    return str(view.get("candidate", view)["id"])


def preview_fields(view: Document, name: str) -> list[Field]:
    """The effect of the decision `name`."""
    if name == "retract":
        return list(learning_fields.retraction_fields(view))
    if name == "promote":
        return list(learning_fields.promotion_fields(view))
    return list(learning_fields.decision_fields(view, name))


def carry_out(engine: Engine, name: str, id: str, reason: str) -> object:
    """Carry out the decision `name`. Blocking. Raises the engine's refusals."""
    service = engine.adaptation if name in ("approve", "reject", "roll back") else engine.learnings
    call: Callable[..., object] = getattr(service, name.replace(" ", "_"))
    return call(id, reason) if DECISIONS[name].takes_reason else call(id)

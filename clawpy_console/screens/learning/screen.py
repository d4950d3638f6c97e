"""Screen 5, learning: changes that the system proposes for how agents act, and what it learned from sessions; you
decide what is used (SPEC 5, 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import words
from clawpy_console.dialogs.ask import confirm
from clawpy_console.dialogs.base import PreviewDialog
from clawpy_console.fields import Document, Field
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import FilterableScreen
from clawpy_console.screens.learning import candidate, entry
from clawpy_console.screens.learning.lists import FAULT, GROUPS, YOURS, Listing, link_rows, listing_rows, read_listing
from clawpy_console.widgets.keyline import Filter, KeyLine
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
    """Asks for the reason of a decision: the text that was typed, "" without a reason, None on Escape. Enter decides
    nothing and says so. `preview` shows what the decision changes; `reason` is in the input already."""

    BINDINGS = bindings("deciding", "preview")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    DecisionDialog .dialog { width: 100; }
    DecisionDialog #pane { height: auto; max-height: 60vh; padding: 0; }
    DecisionDialog #reason { height: 3; margin: 1 0 0 0; }
    DecisionDialog KeyLine { dock: none; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, preview: Sequence[Field], reason: str) -> None:
        super().__init__()
        self._title, self._preview, self._reason = title, preview, reason

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            with VerticalScroll(id="pane", can_focus=False):
                yield ReflowingText(id="change")
            asks = "Reason, in a few words (kept with it)"
            yield Input(self._reason, placeholder=asks, select_on_focus=False, id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._preview)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.not_by_enter(f"{shown_key('deciding.decide', self.app.keymap)} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())


NOTHING = "Learnings come from sessions. A candidate appears when the same thing happens repeatedly."
"""What stands in place of details while there are none."""

CURSOR_DEBOUNCE_S = 0.06
"""Seconds that the cursor rests on a row before it is read: walking through a long list reads nothing."""

TYPING_DEBOUNCE_S = 0.15
"""Seconds without a key after which the words typed are looked for."""

UNWRAPPED_CELLS = 10_000
"""Cells of a line that the dialog wraps."""


@frozen
class Decision:
    """What a key does to what is under the cursor: the question before it, what is said when it is done, whether it
    takes a reason, and the verb of a yes."""

    question: str
    done: str
    takes_reason: bool = False
    verb: str = ""


DECISIONS = {
    "approve": Decision("Activate it?", "Active now", verb="activate"),
    "reject": Decision("Reject it?", "Rejected", takes_reason=True),
    "roll back": Decision("Roll it back?", "Rolled back: its changes are removed", takes_reason=True),
    "retract": Decision("Retract it?", "Retracted", takes_reason=True),
    "keep": Decision("", "It stays valid"),
    "promote": Decision("Apply it in all projects?", "It now applies in all projects", verb="apply everywhere"),
}


class LearningScreen(FilterableScreen):
    """One list left, what is under its cursor right, with its records or sources below. Nothing of it is read on the
    event loop."""

    MODE = "learning"
    PURPOSE = "Proposed changes and lessons from sessions. You decide what agents use."
    CSS_PATH = ["../columns.tcss", "learning.tcss"]
    AUTO_FOCUS = "#list"
    BINDINGS = bindings("learning", "candidates", "learnings", "columns", "filter")
    PANES = {"list": "list", "detail": "detail", "links": "links"}
    COLUMNS = {"list": "left", "detail": "right", "links": "right"}
    FILTER_PANE = "list"

    def __init__(self) -> None:
        super().__init__()
        self._listing: Listing | None = None
        self._only = ""  # the heading or the kind of learning that is shown, "" for all
        self._view: Document | None = None
        self._wanted = ""  # what to put the cursor on as soon as it is there
        self._last = ""  # the candidate that was decided last, "" for none
        self._undoing = False  # from `u` on until the candidate was read again
        self._reasons: dict[tuple[str, str], str] = {}  # those given, for when what was undone is decided again

    def body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static(id="list-title", classes="heading", markup=False)
                yield Filter("words, type, scope, status")
                yield Rows(id="list", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                with ScrollPane(id="detail"):
                    yield ReflowingText(id="told")
                yield Rows(id="links", classes="-fit")
                yield ReflowingText(id="record")

    # Reading

    def engine_moved(self, topics: frozenset[str]) -> None:
        if topics & {"adaptation", "learnings"}:
            self.read_again()

    def on_screen_resume(self) -> None:
        self.read_again()

    def draw(self, changed: frozenset[str]) -> None:
        if self._listing is None:
            self.read_again()

    def columns(self) -> Mapping[str, str]:
        return {"left": "list", "right": "detail"}

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self._draw_record()

    def read_again(self, wait: float = 0.0) -> None:
        """Read anew what is listed."""
        needle, wanted = " ".join(self.needle), self._wanted
        self.read(lambda engine: read_listing(engine, needle, wanted), self._take, group="listing", wait=wait)

    def _take(self, listing: Listing) -> None:
        self._listing = listing
        self._draw_list()
        if self._wanted:
            self.query_one("#list", Rows).select(self._wanted)
            if self.current != self._wanted:
                self.app.say(f"{self._wanted} no longer exists.", "warning")
            self._wanted = ""
        self._read_view()

    def _read_view(self, wait: float = 0.0) -> None:
        id = self.current
        if not id or id.startswith(FAULT):
            self._take_view(None)
            return
        port = "adaptation" if id.startswith("cand_") else "learnings"
        self.read(lambda engine: document(getattr(engine, port).view(id)), self._take_view, group="view", wait=wait)

    def _take_view(self, view: Document | None) -> None:
        before, self._view, self._undoing = self._view, view, False
        self._draw_view(self.app.now())
        if before is None or view is None or _id(before) != _id(view):
            self.query_one("#detail").scroll_home(animate=False)

    # What is under the cursor

    @property
    def current(self) -> str:
        """The id of the row under the cursor, "" for none."""
        return self.query_one("#list", Rows).current

    @property
    def view(self) -> Document | None:
        """What is under the cursor, None until it was read."""
        return self._view if self._view and _id(self._view) == self.current else None

    def show(self, id: str) -> None:
        """Put the cursor on a candidate or a learning, as soon as it was read; the filter is cleared."""
        self._wanted, self._only = id, ""
        self.filter.close()
        self.read_again()
        self.go_to("list")

    # Drawing

    def apply_filter(self) -> None:
        self._draw_list()
        self.read_again(TYPING_DEBOUNCE_S)

    def _draw_list(self) -> None:
        if self._listing is None:
            return
        groups = listing_rows(self._listing, self.needle, self._only, self.app.now())
        empty = "No match." if self.needle or self._only else "Nothing yet."
        rows = grouped({f"{title}  {len(members):,}": members for title, members in groups.items()})
        self.query_one("#list", Rows).show(rows, empty=empty)
        only = entry.KINDS[self._only][1] if self._only in entry.KINDS else self._only
        total = sum(map(len, groups.values()))
        self.put("#list-title", Content.assemble("LEARNING", (f"  {total:,}" if total else "", "$grey"),
                                                 (f"  only: {only}" if only else "", "not bold $accent")))  # fmt: skip

    def _draw_view(self, now: datetime) -> None:
        view, current = self.view, self.current
        fields: list[Field] = []
        if view is not None:
            fields = list(
                candidate.candidate_fields(view, now) if "candidate" in view else entry.learning_fields(view, now)
            )
        elif current.startswith(FAULT):
            fields = [Field("", "A learning cannot be read", "title"), Field("", current.removeprefix(FAULT), "wants")]
        elif self._listing is not None and not current:
            fields = [Field("", NOTHING, "faint")]
        self.show_fields("#told", fields)
        links = self.query_one("#links", Rows)
        tasks = {session.id: words.one_line(session.prompt) for session in self.state.sessions}
        links.show(list(link_rows(view, tasks, now)) if view else [])
        links.display = bool(links.current)
        if self.focused is not None and not self.focused.display:
            self.go_to("list")
        self._draw_record()
        self.refresh_bindings()

    @property
    def _record(self) -> Document | None:
        id = self.query_one("#links", Rows).current.removeprefix("record:")
        return next((record for record in (self.view or {}).get("records", ()) if record["id"] == id), None)

    @on(Rows.Moved, "#links")
    def _draw_record(self) -> None:
        record = self._record
        self.show_fields("#record", candidate.record_fields(record, self.app.now()) if record else ())
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
        """From a record to its session, from a learning to its sources."""
        what, id = message.row_id.split(":")[:2]
        if what == "learning":
            self.show(id)
            return
        session = (self._record or {}).get("session", "") if what == "record" else id
        if not session:
            self.app.say("It does not come from a session.", "warning")
        elif any(item.id == session for item in self.state.sessions):
            self.app.open("work", session)
        else:
            self.app.say(
                "Its session is older than those listed. ⏎ at the end of the list in work (2) lists more.", "warning"
            )

    def action_only(self, what: str) -> None:
        """Show the next group, or the next kind of learning, alone; after the last, all."""
        titles = dict.fromkeys(GROUPS.values()) if what == "group" else entry.KINDS
        self._only = words.next_choice(["", *titles], self._only if self._only in titles else "")
        self._draw_list()
        self.go_to("list")

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape" or self.filter.has_class("-shown"):
            return  # then Escape is the filter's
        event.stop()
        if self.pane == "list":
            self._only = ""
            self._draw_list()
        self.go_to("list")

    def copy_text(self) -> str:
        return self.current

    # Deciding

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that do nothing with what is under the cursor are not offered."""
        if action == "undo":
            return bool(self._last)
        if action != "decide":
            return super().check_action(action, parameters)
        view = self.view if self.ready else None
        if view is None:
            return False
        how = str(parameters[0])
        if "candidate" in view:
            return (view["candidate"]["status"], how) in CANDIDATE_MOVES
        allowed = {"retract": True, "keep": bool(view["review"]),
                   "promote": view["scope"] == "project" and view["kind"] != "proxy"}  # fmt: skip
        return bool(view["status"] == "active" and allowed.get(how))

    def action_decide(self, how: str) -> None:
        """Ask, with what it changes, then do it."""
        view, decision = self.view, DECISIONS[how]
        if view is None or self._still_undoing():
            return
        id = _id(view)

        def on_answer(reason: str | None) -> None:
            if reason is not None:
                self._reasons[id, how] = reason
                self.app.ask(lambda engine: carry_out(engine, how, id, reason), partial(self._decided, how, id))

        preview = {"retract": entry.retraction_fields, "promote": entry.promotion_fields}.get(
            how, partial(candidate.decision_fields, how=how)
        )
        title = f"{decision.question} {words.crop(entry.title(view.get('candidate', view)), 60)}"
        if how == "keep":
            on_answer("")
        elif decision.takes_reason:
            dialog = DecisionDialog(title, list(preview(view)), self._reasons.get((id, how), ""))
            self.app.push_screen(dialog, on_answer)
        else:
            text = Content("\n").join(render_fields(preview(view), UNWRAPPED_CELLS))
            confirm(self.app, title, text, decision.verb, partial(on_answer, ""))

    def _decided(self, how: str, id: str, result: object) -> None:
        message = DECISIONS[how].done
        if isinstance(result, RetractReport) and result.queued:
            message += f"; {words.count(len(result.queued), 'learning')} promoted from it: check below “{YOURS}”"
        if id.startswith("cand_"):
            self._last = id
            message += f". Undo: {shown_key('candidates.undo', self.app.keymap)}"
        self.app.say(message)
        self._renew()

    def _still_undoing(self) -> bool:
        if self._undoing:
            self.app.say("Undo is still running. Try again in a moment.", "warning")
        return self._undoing

    def action_undo(self) -> None:
        """Undo the last decision about a candidate."""
        decided = self._last
        if self._still_undoing():
            return

        def done(decided_now: Any) -> None:
            self._last = ""
            self.app.say(f"Undone: {candidate.STATUS[decided_now.status][2]}, as before")
            self._renew()

        def on_refusal(refusal: Exception) -> None:
            self._undoing = False
            self.app.say(str(refusal), "error")

        self._undoing = True
        self.app.ask(lambda engine: engine.adaptation.undo(decided), done, on_refusal)

    def action_chain(self) -> None:
        """Promote what recurs in several sessions, now."""
        self.app.say("Checking what recurs…")
        self.app.ask(lambda engine: engine.learnings.chain(), self._ran, group="chain")

    def _ran(self, report: ChainReport) -> None:
        counts = {"found": sum(report.extracted.values()), "promoted": len(report.promoted),
                  "repeated": len(report.reinforced), "merged": len(report.compacted)}  # fmt: skip
        self.app.say(", ".join(f"{count} {name}" for name, count in counts.items() if count) or "Nothing new recurs.")
        for fault in report.faults[:3]:
            self.app.say(fault, "warning")
        self._renew()

    def _renew(self) -> None:
        self.app.renew(["changes"])
        self.read_again()


def _id(view: Document) -> str:
    return str(view.get("candidate", view)["id"])


def carry_out(engine: Engine, how: str, id: str, reason: str) -> object:
    """Do what was decided. Blocking. Raises the engine's refusals."""
    port = engine.adaptation if how in ("approve", "reject", "roll back") else engine.learnings
    call: Callable[..., object] = getattr(port, how.replace(" ", "_"))
    return call(id, reason) if DECISIONS[how].takes_reason else call(id)

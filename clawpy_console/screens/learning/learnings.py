"""Screen 5 behind Tab, learnings: what was learnt in which scope, where it came from and where it went (SPEC 6)."""

from __future__ import annotations

from datetime import datetime

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console.keys import bindings
from clawpy_console.screens.learning import learning_details
from clawpy_console.screens.learning import learning_lines as lines
from clawpy_console.screens.learning.browsing import Browsing
from clawpy_console.screens.learning.keeping import Keeping
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter
from clawpy_console.widgets.rows import Rows
from engine.values import LearningEntry, LearningKind, LearningView
from engine.values.learnings import ScopeState

TYPING = 0.15
"""Seconds without a key after which the words typed are looked for."""

SETTLED = 0.06
"""Seconds that the cursor rests on a row before it is read: walking through a long list reads nothing."""


class LearningsScreen(Keeping, Browsing):
    """Scopes and their entries left, the entry under the cursor right, and below it where one can go on from it.
    Nothing of it is read on the event loop."""

    MODE = "learnings"
    CSS_PATH = "learnings.tcss"
    AUTO_FOCUS = "#entries"
    BINDINGS = bindings("learnings")
    PANES = {"scopes": "scopes", "entries": "entries", "entry": "entry", "links": "links"}
    COLUMNS = {"scopes": "left", "entries": "left", "entry": "right", "links": "right"}
    SIDES = ("scopes, entries", "learning")

    def __init__(self) -> None:
        super().__init__()
        self._scopes: list[ScopeState] | None = None
        self._entries: list[LearningEntry] | None = None
        self._at = lines.ALL  # the scope under the cursor
        self._kind: LearningKind | None = None  # the kind that is shown, None for every one
        self._needle = ""
        self._led = False  # the entry is one that another screen led to, by itself
        self._view: LearningView | None = None

    def body(self) -> ComposeResult:
        yield from self.top()
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static("SCOPES", id="scopes-title", classes="heading", markup=False)
                yield Rows(id="scopes", empty="Loading…", classes="-fit -lit")
                yield Drawn(id="scope")
                yield Static(id="entries-title", classes="heading", markup=False)
                yield Filter("words of the learning")
                yield Rows(id="entries", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                with VerticalScroll(id="entry"):
                    yield Drawn(id="detail")
                yield Rows(id="links", classes="-fit")

    # Drawing

    def engine_moved(self, topics: frozenset[str]) -> None:
        if "learnings" in topics:
            self.read_again()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready:
            self._draw_scopes(now)
            self._draw_entries(now)
            self._draw_links(now)

    def _draw_scopes(self, now: datetime) -> None:
        if self._scopes is None:
            return
        self.query_one("#scopes", Rows).show(lines.scope_rows(self._scopes, self._tasks, now))
        one = self.scope
        about = self.query_one("#scope", Drawn)
        about.show(lambda width: lines.scope_lines(one, width))
        about.display = one is not None

    def _draw_entries(self, now: datetime) -> None:
        found, scope, kind = self._entries, self.scope, self._kind
        if found is None:
            return
        aside = f"  “{self._needle}”" if self._needle else ""
        aside = "  from another screen" if self._led else aside
        only = f"  only {lines.KINDS[kind][1].partition(':')[0]}" if kind and not self._led else ""
        more = "+" if len(found) >= learning_details.MOST else ""
        title = (
            "LEARNINGS",
            (f"  {len(found):,}{more}", "$grey"),
            (aside, "not bold $grey"),
            (only, "not bold $accent"),
        )
        self.put("#entries-title", Content.assemble(*title))
        empty = "No match." if self._needle else "none of this kind" if kind else "Nothing learned yet."
        rows = self.query_one("#entries", Rows)
        rows.show(lines.entry_rows(found, now, rows.size.width, scoped=scope is not None), empty=empty)

    def _draw_detail(self) -> None:
        view, now = self._view, self.app.now()
        self.query_one("#detail", Drawn).show(lambda width: lines.entry_lines(view, now, width))
        self._draw_links(now)
        self.draw_tabs()
        self.refresh_bindings()

    def _draw_links(self, now: datetime) -> None:
        found = [one.row for one in lines.leads(self._view, self._tasks, now)]
        links = self.query_one("#links", Rows)
        links.show(found)
        links.display = bool(found)
        if self.focused is links and not found:
            self.go_to("entries")

    @property
    def _tasks(self) -> dict[str, str]:
        """What sessions were at, by their ids."""
        return {one.id: one.prompt for one in self.known.sessions}

    # Reading

    def read_again(self) -> None:
        engine = self.app.engine
        if engine is not None:
            self.read(engine.learnings.scopes, self._take_scopes, group="scopes")
            self._read_entries()

    def _take_scopes(self, scopes: list[ScopeState]) -> None:
        self._scopes = scopes
        self._draw_scopes(self.app.now())

    def _read_entries(self, wait: float = 0.0) -> None:
        engine, scope, kind, needle = self.app.engine, self.scope, self._kind, self._needle
        if engine is None:
            return
        if self._led:
            self._read_view()
            return
        self.read(
            lambda: learning_details.entries(engine, scope, kind, needle),
            self._take_entries,
            group="entries",
            wait=wait,
        )

    def _take_entries(self, found: list[LearningEntry]) -> None:
        if not self._led:
            self._entries = found
            self._draw_entries(self.app.now())
            self._read_view()

    def _read_view(self, wait: float = 0.0) -> None:
        engine, name = self.app.engine, self.query_one("#entries", Rows).current
        if engine is None:
            return
        if not name:
            self._take_view(None)
            return
        self.read(lambda: engine.learnings.view(name), self._take_view, group="view", wait=wait)

    def _take_view(self, view: LearningView | None) -> None:
        before, self._view = self._view, view
        self._draw_detail()
        if not (before and view and before.entry.id == view.entry.id):
            self.query_one("#entry").scroll_home(animate=False)

    # Going about

    @property
    def scope(self) -> ScopeState | None:
        """The scope under the cursor, None for all of them."""
        current = self.query_one("#scopes", Rows).current
        return next((one for one in self._scopes or () if lines.scope_key(one) == current), None)

    @property
    def view(self) -> LearningView | None:
        view = self._view
        return view if view and view.entry.id == self.query_one("#entries", Rows).current else None

    def show_learning(self, id: str) -> None:
        """Show one learning, by itself; Escape leads back to all."""
        engine = self.app.live()
        if engine is None:
            return

        def found(view: LearningView) -> None:
            self._led, self._entries = True, [view.entry]
            self._draw_entries(self.app.now())
            self._take_view(view)
            self.go_to("entries")

        self.read(lambda: engine.learnings.view(id), found, group="led")

    def _go_back(self) -> None:
        """To all entries of the scope, whatever was asked for."""
        self._led, self._needle, self._kind = False, "", None
        self.query_one(Filter).put_away()
        self._read_entries()
        self.go_to("entries")

    @on(Rows.Moved, "#scopes")
    def _scope_moved(self, message: Rows.Moved) -> None:
        if message.row_id in ("", self._at):
            return  # they were read, and it is where it was
        self._at = message.row_id
        self._led = False
        self._draw_scopes(self.app.now())
        self._read_entries(SETTLED)

    @on(Rows.Opened, "#scopes")
    def _scope_opened(self) -> None:
        self.go_to("entries")

    @on(Rows.Moved, "#entries")
    def _entry_moved(self) -> None:
        self.refresh_bindings()
        self._read_view(SETTLED)

    @on(Rows.Opened, "#entries")
    def _entry_opened(self) -> None:
        if not self.go_to("links"):
            self.go_to("entry")

    @on(Rows.Opened, "#links")
    def _link_opened(self, message: Rows.Opened) -> None:
        lead = next(
            (one for one in lines.leads(self._view, self._tasks, self.app.now()) if one.row.id == message.row_id), None
        )
        if lead is None:
            return
        if lead.entry:
            self.show_learning(lead.entry)
        else:
            self.lead_to_session(lead.session)

    # Words and kinds

    def action_words(self) -> None:
        self.go_to("entries")
        self._led = False
        self.query_one(Filter).open()

    def action_kind(self) -> None:
        """Show those of the next kind only; after the last, all."""
        choices: list[LearningKind | None] = [None, *lines.KINDS]
        self._kind = choices[(choices.index(self._kind) + 1) % len(choices)]
        self._led = False
        self._read_entries()

    @on(Input.Changed, "#filter")
    def _typed(self, event: Input.Changed) -> None:
        self._needle = event.value.strip()
        self._read_entries(TYPING)

    @on(Input.Submitted, "#filter")
    def _submitted(self, event: Input.Submitted) -> None:
        self._needle = event.value.strip()
        event.input.set_class(bool(self._needle), "-shown")
        self._read_entries()
        self.go_to("entries")

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape":
            return
        if self.query_one(Filter).has_class("-shown") or (self.pane == "entries" and (self._led or self._kind)):
            event.stop()
            self._go_back()
        elif self.pane not in ("entries", ""):
            event.stop()
            self.go_to("entries")

    def copy_text(self) -> str:
        return self.query_one("#entries", Rows).current

"""Screen 4, memory: seven layers, their entries, where each came from and who used it (SPEC 9.5)."""

from __future__ import annotations

from datetime import datetime

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, Static

from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.memory import layer_details, layers
from clawpy_console.screens.memory import lines as lines
from clawpy_console.screens.memory.layers import NAMES, PAGE, Detail, Entry, Link
from clawpy_console.screens.memory.remembering import Remembering
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.tab_line import Columns
from engine.values import Layer, Recalled

TYPING = 0.15
"""Seconds without a key after which the words typed are looked for."""

LOOK_EVERY = 2.0
"""Seconds between two readings of how the layers stand, while they move."""


class MemoryScreen(Remembering):
    """Layers left, entries in the middle, right the entry and where one can go on from it.

    Entries are a page of the layer, those with some words, those that mean something, or the one that another screen
    led to. Nothing of it is read on the event loop.
    """

    MODE = "memory"
    CSS_PATH = "memory.tcss"
    AUTO_FOCUS = "#layers"
    BINDINGS = bindings("memory", "columns", "filter")
    PANES = {"layers": "layers", "entries": "entries", "entry": "entry", "links": "links"}
    COLUMNS = {"layers": "left", "entries": "middle", "entry": "right", "links": "right"}

    def __init__(self) -> None:
        super().__init__()
        self._layer = Layer.MARKDOWN
        self._entries: list[Entry] = []
        self._more = False  # the layer may have entries beyond those read
        self._needle = ""
        self._meaning = False  # the words are looked for by meaning
        self._stale = False  # something happened since the layers were read
        self._led = False  # the entry is one that another screen led to
        self._detail: Detail | None = None
        self._beat: Timer | None = None

    def body(self) -> ComposeResult:
        yield Columns(id="tabs")
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static("LAYERS", classes="heading", markup=False)
                yield Rows(id="layers", classes="-fit")
                yield Drawn(id="layer")
            with Vertical(id="middle", classes="pane"):
                yield Static(id="entries-title", classes="heading", markup=False)
                yield Filter()
                yield Rows(id="entries", empty="Loading…")
            with Vertical(id="right", classes="pane"):
                yield Static("ENTRY", id="entry-title", classes="heading", markup=False)
                with VerticalScroll(id="entry"):
                    yield Drawn(id="detail")
                yield Rows(id="links", classes="-fit")

    # Time

    def on_screen_resume(self) -> None:
        self.app.renew(["memory"])
        self.read_again()
        if self._beat is None:
            self._beat = self.set_interval(LOOK_EVERY, self._look_again, name="building")

    def on_screen_suspend(self) -> None:
        if self._beat is not None:
            self._beat.stop()
            self._beat = None

    def _look_again(self) -> None:
        if self._stale or any(one.state == "building" for one in self.known.layers):
            self._stale = False
            self.app.renew(["memory"])

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready:
            self._draw_layers(now)
            self._draw_entries(now)

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        self._draw_layers(self.app.now())
        self._draw_tabs()
        if "layers" in changed and self.is_current:
            self.read_again()

    def engine_moved(self, topics: frozenset[str]) -> None:
        self._stale = True  # whatever it was, the ledger has a row more
        if "memory" in topics:
            self.read_again()

    def _draw_layers(self, now: datetime) -> None:
        known = self.known.layers
        self.query_one("#layers", Rows).show([lines.layer_row(one, lines.state_of(known, one), now) for one in Layer])
        state, layer = lines.state_of(known, self._layer), self._layer
        self.query_one("#layer", Drawn).show(lambda width: lines.layer_lines(layer, state, now, width))

    def _draw_entries(self, now: datetime) -> None:
        title = f"{self._layer.value} {NAMES[self._layer][0].upper()}"
        how = "means " if self._meaning else "has "
        aside = "  from another screen" if self._led else f"  {how}“{self._needle}”" if self._needle else ""
        count = f"  {len(self._entries)}{'+' if self._more else ''}" if self._entries else ""
        self.put("#entries-title", Content.assemble(title, (count, "$grey"), (aside, "not bold $grey")))
        asks = f"No match. {shown_key('memory.meaning', self.app.keymap)} searches by meaning."
        empty = "Nothing similar." if self._meaning else asks if self._needle else "None yet."
        self.query_one("#entries", Rows).show(lines.entry_rows(self._entries, now), empty=empty)

    def _draw_detail(self) -> None:
        detail, now = self._detail, self.app.now()
        self.query_one("#detail", Drawn).show(lambda width: lines.detail_lines(detail, now, width))
        rows = lines.link_rows(detail.links if detail else (), now)
        links = self.query_one("#links", Rows)
        links.show(rows)
        links.display = bool(rows)
        self.set_class(bool(rows), "-links")
        self.refresh_bindings()

    def _draw_tabs(self) -> None:
        self.show_columns({"left": "layers", "middle": NAMES[self._layer][0], "right": "entry"})

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self._draw_tabs()

    # Reading

    def read_again(self, wait: float = 0.0) -> None:
        """Read the entries of the layer anew, as they are filtered now."""
        engine, layer, needle = self.app.engine, self._layer, self._needle
        if engine is None or self._led:
            return
        if self._meaning and needle:
            self.read(lambda: layers.by_meaning(engine, layer, needle), self._take_meaning, group="entries", wait=wait)
        else:
            self.read(lambda: layers.page(engine, layer, needle), self._take, group="entries", wait=wait)

    def read_all(self) -> None:
        self._led = False
        self.read_again()

    def _take(self, entries: list[Entry]) -> None:
        if self._led:
            return
        self._entries, self._more = entries, len(entries) >= PAGE
        self._entries_moved()

    def _take_meaning(self, found: tuple[list[Entry], tuple[str, ...]]) -> None:
        if self._led:
            return
        self._entries, left_out = found
        self._more = False
        self._entries_moved()
        if left_out:
            self.app.say(f"without {'; '.join(left_out)}", "warning")

    def _entries_moved(self) -> None:
        """Show entries that were read."""
        self._draw_entries(self.app.now())
        self._read_detail()

    @on(Rows.Moved, "#layers")
    def _layer_moved(self, message: Rows.Moved) -> None:
        if message.row_id and Layer(message.row_id) is not self._layer:
            self._go_to_layer(Layer(message.row_id))
            self.read_again(TYPING)

    def _go_to_layer(self, layer: Layer) -> None:
        self._layer, self._entries, self._more = layer, [], False
        self._led = self._meaning = False
        self._needle = ""
        self.query_one(Filter).put_away()
        self._detail = None
        self._draw_layers(self.app.now())
        self._draw_entries(self.app.now())
        self._draw_detail()
        self._draw_tabs()

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor."""
        current = self.query_one("#entries", Rows).current
        return next((one for one in self._entries if one.key == current), None)

    @on(Rows.Moved, "#entries")
    def _entry_moved(self) -> None:
        self._read_detail()
        if self._more and self._entries and self.entry is self._entries[-1]:
            self._read_more()

    def _read_more(self) -> None:
        engine, layer, needle, there = self.app.engine, self._layer, self._needle, tuple(self._entries)
        if engine is None:
            return

        def taken(more: list[Entry]) -> None:
            if layer is self._layer and tuple(self._entries) == there:
                self._entries, self._more = [*there, *more], len(more) >= PAGE
                self._draw_entries(self.app.now())

        self.read(lambda: layers.page(engine, layer, needle, there), taken, group="entries")

    def _read_detail(self) -> None:
        engine, entry = self.app.engine, self.entry
        self.refresh_bindings()
        if engine is None or entry is None:
            self._detail = None
            self._draw_detail()
            return

        def taken(detail: Detail) -> None:
            same = self._detail is not None and self._detail.entry.key == detail.entry.key
            self._detail = detail
            self._draw_detail()
            if not same:
                self.query_one("#entry").scroll_home(animate=False)

        self.read(lambda: layer_details.detail(engine, entry), taken, group="detail")

    # Going about

    @on(Rows.Opened, "#layers")
    def _layer_opened(self) -> None:
        self.go_to("entries")

    @on(Rows.Opened, "#entries")
    def _entry_opened(self) -> None:
        self.go_to("entry")

    @on(Rows.Opened, "#links")
    def _link_opened(self, message: Rows.Opened) -> None:
        link = next((one for one in (self._detail.links if self._detail else ()) if one.key == message.row_id), None)
        if link is not None:
            self._follow(link)

    def _follow(self, link: Link) -> None:
        if link.layer is None:
            self.app.open_session(link.id)
        else:
            self.show(link.layer, link.id)

    def show_entry(self, recalled: Recalled) -> None:
        self.show(recalled.layer, recalled.id)

    def show(self, layer: Layer, id: str) -> None:
        """Show one entry, by itself; Escape leads back to all of its layer."""
        engine = self.app.live()
        if engine is None:
            return

        def found(entry: Entry) -> None:
            self._go_to_layer(layer)
            with self.prevent(Rows.Moved):
                self.query_one("#layers", Rows).select(layer.value)
            self._led, self._entries = True, [entry]
            self._entries_moved()
            self.go_to("entries")

        self.read(lambda: layers.find(engine, layer, id), found, group="led")

    # Filter and meaning

    def action_filter(self) -> None:
        self._search(meaning=False)

    def action_meaning(self) -> None:
        self._search(meaning=True)

    def _search(self, *, meaning: bool) -> None:
        self.go_to("entries")
        self._led, self._meaning = False, meaning
        box = self.query_one(Filter)
        box.placeholder = "topic; ⏎ searches" if meaning else "words of the entry"
        box.open()

    @on(Input.Changed, "#filter")
    def _typed(self, event: Input.Changed) -> None:
        if self._meaning:
            return
        self._needle = event.value.strip()
        self.read_again(TYPING)

    @on(Input.Submitted, "#filter")
    def _submitted(self, event: Input.Submitted) -> None:
        self._needle = event.value.strip()
        self._meaning = self._meaning and bool(self._needle)
        event.input.set_class(bool(self._needle), "-shown")
        self.read_again()
        self.go_to("entries")

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape":
            return
        box = self.query_one(Filter)
        if box.has_class("-shown") or self._led:
            event.stop()
            self._led = self._meaning = False
            self._needle = ""
            box.put_away()
            self.read_again()
            self.go_to("entries")

    def copy_text(self) -> str:
        return self.entry.id if self.entry else ""

"""Screen 4, memory: seven layers, their entries, and what you do with the entry under the cursor (SPEC 9.5).

`memory_entries` reads the entries of each layer, and says what they are linked with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from clawpy_console import formats
from clawpy_console.fields import SIGNS, Document, Field, Fields, text_line
from clawpy_console.fields.learning import make_forgetting_fields
from clawpy_console.formats import crop, fit_to_width, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.screens import FILTER_DEBOUNCE_S, FilteredScreen, memory_entries
from clawpy_console.screens.agent_dialogs import edit_file, open_in_editor
from clawpy_console.screens.dialog import confirm
from clawpy_console.screens.memory_entries import DRAFTS_HEADING, LAYER_NAMES, Entry, EntryValue
from clawpy_console.screens.prompt_dialogs import RecallPreview
from clawpy_console.widgets import Pane, Row, Rows, ScrollPane, group_rows
from clawpy_console.widgets.texts import Filter, Heading, ReflowingText
from engine import dispatch
from engine.model import AgentFile, FactDraft, GraphNode, Layer, LayerState, PromptRequest, RecallMatch

if TYPE_CHECKING:
    from engine import Engine

T = TypeVar("T")

REFRESH_S = 2.0
"""Seconds between two readings of the layers: at least the ledger grows."""

LAYER_SIGNS = SIGNS["layer"]
"""Sign and tone of each state of a layer."""


class MemoryScreen(FilteredScreen):
    """Layers left, entries in the middle, the entry under the cursor and its links right.

    The entries are pages of the layer with the words of the filter, or those whose meaning is similar to the filter, or
    the single one that another screen or a link opened. All is read in threads.
    """

    MODE = "memory"
    PURPOSE = "What agents remember, where it came from, and what a task would recall."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#layers"
    BINDINGS = make_bindings("memory", "columns", "filter")
    PANES = {"layers": "left", "entries": "middle", "entry": "right", "links": "right"}
    FILTER_PANE = "entries"
    OWN_TOPICS = frozenset({"memory"})

    _layer_rows = getters.query_one("#layers", Rows)
    _entry_rows = getters.query_one("#entries", Rows)
    _link_rows = getters.query_one("#links", Rows)

    _layer = Layer.MARKDOWN
    _entries: Sequence[Entry] = ()
    _is_single = False  # whether only one entry is shown, until Escape
    _filters_by_meaning = False  # else the filter is for words of the entries
    _detail_entry: Entry | None = None  # the entry on the right, None until it was read
    _links: Sequence[Entry] = ()  # the links of that entry

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Pane(id="left"):
                yield Heading("LAYERS")
                yield Rows(id="layers", classes="-fit")
                yield ReflowingText(id="layer")
            with Pane(id="middle"):
                yield Heading(id="entries-title")
                yield Filter("words of the entry; or a topic to search by meaning, then ⏎")
                yield Rows(id="entries", empty="Loading…")
            with Pane(id="right"):
                yield Heading("ENTRY", id="entry-title")
                with ScrollPane(id="entry"):
                    yield ReflowingText(id="detail")
                yield Rows(id="links", classes="-fit")

    # Time

    def on_screen_resume(self) -> None:
        self.app.reload(["memory"])

    def on_mount(self) -> None:
        self.set_interval(REFRESH_S, self._refresh_layers, name="layers")

    def _refresh_layers(self) -> None:
        if self.is_current:
            self.app.reload(["memory"])

    def draw_times(self) -> None:
        self._draw_lists()

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        self._draw_lists()
        if "layers" in changed and self.is_current:
            self.read_again()

    def _draw_lists(self) -> None:
        """Draw the layers, and the entries of the selected one."""
        states = {layer: LayerState(layer, 0, None, "off", "not read yet") for layer in Layer}
        states |= {layer.layer: layer for layer in self.state.layers}
        self._layer_rows.show([_make_layer_row(state, self.now) for state in states.values()])
        self.show_fields("#layer", _make_layer_fields(states[self._layer]))
        self._draw_entries()
        self.draw_columns()

    def _draw_entries(self) -> None:
        count = f"  {len(self._entries)}{'+' if self._has_more else ''}" if self._entries else ""
        title = f"{self._layer.value} {LAYER_NAMES[self._layer][0].upper()}"
        words = " ".join(self.filter_words)
        origin = ""
        empty = "None yet."
        if self._is_single:
            origin = "  from another screen"
        elif words and self._filters_by_meaning:
            origin = f"  meaning “{words}”"
            empty = "Nothing similar."
        elif words:
            origin = f"  with “{words}”"
            empty = f"No match. {self.key_of('memory.meaning')} searches by meaning."
        self.show_content("#entries-title", Content.assemble(title, (count, "$grey"), (origin, "not bold $grey")))
        draft_keys = f"{self.key_of('memory.promote')} keeps, {self.key_of('memory.reject')} dismisses"
        self._entry_rows.show(_make_entry_rows(self._entries, self.now, draft_keys), empty=empty)

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "layers", "middle": LAYER_NAMES[self._layer][0], "right": "entry"}

    def _draw_detail(self) -> None:
        """Draw the entry under the cursor, and its links."""
        engine = self.app.engine
        fields: Iterable[Field] = [text_line("Select an entry.", "faint")]
        if self._detail_entry is not None and engine is not None:
            fields = memory_entries.make_entry_fields(self._detail_entry, str(engine.agent_files.folder), self.now)
        self.show_fields("#detail", fields)
        links = self._link_rows
        links.show(_make_entry_rows(self._links, self.now))
        links.display = bool(self._links)
        self.set_class(links.display, "-links")
        self.refresh_bindings()

    # Reading

    def read_again(self, wait: float = 0.0) -> None:
        """Read the entries of the layer that match the filter, after `wait` seconds. A single entry, which another
        screen opened, stays."""
        if self._is_single:
            return
        layer = self._layer
        words = " ".join(self.filter_words)
        by_meaning = self._filters_by_meaning and bool(words)

        def read(engine: Engine) -> tuple[list[Entry], tuple[str, ...]]:
            if by_meaning:
                return memory_entries.search_by_meaning(engine, layer, words)
            return memory_entries.read_page(engine, layer, words), ()

        self.read(read, self._show_found, group="entries", wait=wait)

    def _show_entries(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._draw_lists()
        self._read_detail()

    def _show_found(self, result: tuple[list[Entry], tuple[str, ...]]) -> None:
        entries, left_out = result
        self._show_entries(entries)
        if left_out:
            self.app.show_toast(f"without {'; '.join(left_out)}", "warning")

    @property
    def _has_more(self) -> bool:
        """Whether the layer may have entries that are not read yet."""
        return bool(self._entries) and len(self._entries) % memory_entries.ENTRIES_PER_PAGE == 0

    @on(Rows.Moved, "#layers")
    def _on_layer_moved(self) -> None:
        current = self._layer_rows.current
        if current and Layer(current) is not self._layer:
            self.workers.cancel_group(self, "single")  # an entry that was opened before
            self._go_to_layer(Layer(current))
            self.read_again(FILTER_DEBOUNCE_S)

    def _go_to_layer(self, layer: Layer, *, is_single: bool = False) -> None:
        """Select a layer, for pages of it or for a single entry. The entries are still to be read."""
        self.workers.cancel_group(self, "detail")
        self._layer = layer
        self._entries = ()
        self._is_single = is_single
        self._detail_entry = None
        self._links = ()
        self.filter.close()
        self._draw_lists()
        self._draw_detail()

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor."""
        current = self._entry_rows.current
        return next((entry for entry in self._entries if entry.key == current), None)

    @on(Rows.Moved, "#entries")
    def _on_entry_moved(self) -> None:
        self._read_detail()
        layer = self._layer
        before = self._entries
        words = " ".join(self.filter_words)
        if self._has_more and self.entry is before[-1]:
            self.read(
                lambda engine: [*before, *memory_entries.read_page(engine, layer, words, before)],
                self._show_entries,
                group="entries",
            )

    def _read_detail(self) -> None:
        entry = self.entry
        self.refresh_bindings()
        if entry is None:
            self._detail_entry = None
            self._links = ()
            self._draw_detail()
        else:
            self.read(
                lambda engine: memory_entries.read_entry_with_links(engine, entry), self._show_detail, group="detail"
            )

    def _show_detail(self, entry_with_links: tuple[Entry, list[Entry]]) -> None:
        before = self._detail_entry
        self._detail_entry, self._links = entry, _ = entry_with_links
        self._draw_detail()
        if before is None or before.id != entry.id:
            self.query_one("#entry").scroll_home(animate=False)

    # Moving about

    @on(Rows.Opened, "#layers")
    def _on_layer_opened(self) -> None:
        self.go_to("entries")

    @on(Rows.Opened, "#entries")
    def _on_entry_opened(self) -> None:
        self.go_to("entry")

    @on(Rows.Opened, "#links")
    def _on_link_opened(self, message: Rows.Opened) -> None:
        link = next((link for link in self._links if link.key == message.row_id), None)
        if link is not None and link.layer is not None:
            self.show(link.layer, link.id)
        elif link is not None:
            self.app.open("work", link.id)

    def show(self, layer: Layer, entry_id: str) -> None:
        """Show a single entry; Escape leads back to all entries of its layer."""

        def on_entry(entry: Entry) -> None:
            self.workers.cancel_group(self, "entries")  # a reading of other entries
            self._go_to_layer(layer, is_single=True)
            with self.prevent(Rows.Moved):
                self._layer_rows.select(layer.value)
            self._show_entries([entry])
            self.go_to("entries")

        self.read(lambda engine: memory_entries.find_entry(engine, layer, entry_id), on_entry, group="single")

    # Filter and meaning

    def apply_filter(self) -> None:
        if not (self._filters_by_meaning and self.filter_words):  # a search by meaning begins with Enter
            self.read_again(FILTER_DEBOUNCE_S)

    def action_filter(self) -> None:
        self._open_filter(by_meaning=False)

    def action_meaning(self) -> None:
        self._open_filter(by_meaning=True)

    def _open_filter(self, *, by_meaning: bool) -> None:
        self._is_single = False
        self._filters_by_meaning = by_meaning
        super().action_filter()

    @on(Input.Submitted, "#filter")
    def _on_filter_submitted(self) -> None:
        self.read_again()

    def leave(self) -> bool:
        if not self._is_single:
            return False
        self._is_single = False
        self.read_again()
        return True

    def find_text_to_copy(self) -> str:
        return self.entry.id if self.entry else ""

    # What you do with the entry under the cursor

    @property
    def _value(self) -> EntryValue | None:
        """The entry under the cursor as the engine gave it, None for no entry."""
        return self.entry.value if self.is_ready and self.entry is not None else None

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that can do nothing with this entry are not offered."""
        match action:
            case "edit" | "editor":
                return isinstance(self._value, AgentFile)
            case "decide":
                return isinstance(self._value, FactDraft)
            case "forget":
                return self.is_ready and self.entry is not None and self.entry.can_be_forgotten
        return True

    def action_edit(self) -> None:
        """Edit the file in the console."""
        if isinstance(file := self._value, AgentFile):
            edit_file(self.app, file.agent, file.name, self.read_again)

    def action_editor(self) -> None:
        """Edit the file in the operator's own editor; what is saved there is shown by itself."""
        if isinstance(file := self._value, AgentFile):
            open_in_editor(self.app, file.agent, file.name)

    def action_decide(self, decision: str) -> None:
        """Keep the draft as a fact (`promote`), or dismiss it (`reject`): it is not drafted again."""
        if not isinstance(draft := self._value, FactDraft):
            return
        if decision == "promote":
            message = f"Kept: {crop(one_line(draft.fact), 60)}"
            self._change_memory(lambda engine: engine.knowledge.drafts.promote(draft.id), lambda _: message)
        else:
            message = "Dismissed. It will not be drafted again."
            self._change_memory(lambda engine: engine.knowledge.drafts.reject(draft.id), lambda _: message)

    def action_forget(self) -> None:
        """Forget the entry, after a question that says where it would be removed."""
        if (entry := self.entry) is None:
            return

        def forget() -> None:
            request = {"what": entry.id, "yes": True}
            self._change_memory(lambda engine: dispatch(engine, "forget", request), _describe_forgetting)

        def confirm_forget(preview: Document) -> None:
            title = f"Forget it in {formats.count(sum(preview['counts'].values()), 'place')}?"
            text = "\n".join(item.text for item in make_forgetting_fields(preview))
            confirm(self.app, title, text, "forget", forget, risky=True)

        self.app.load_for_dialog(lambda engine: dispatch(engine, "forget", {"what": entry.id}), confirm_forget)

    def _change_memory(self, change: Callable[[Engine], T], describe: Callable[[T], str]) -> None:
        """Call `change`, show its result as `describe` words it, and read the layer again."""

        def on_done(result: T) -> None:
            self.app.report(describe(result), "memory", "changes")
            if not self.leave():
                self.read_again()

        self.app.call_engine(change, on_done)

    def action_recall(self) -> None:
        """Show what would be recalled for the task under the cursor, or for the first card."""
        value = self._value
        card = next(iter(self.state.cards), None)
        request = PromptRequest("", "", next(iter(self.state.workspaces), ""), "")
        if card is not None:
            assignment = card.assignment
            request = PromptRequest(card.agent, assignment.channel, assignment.workspace, assignment.prompt)
        if isinstance(value, GraphNode):
            request = replace(request, task=value.title)
        if value is not None and not isinstance(value, (AgentFile, RecallMatch)) and value.workspace:
            request = replace(request, workspace=value.workspace)
        self.app.ask(RecallPreview(request), lambda memory: self.show(memory.layer, memory.id))


def _describe_forgetting(report: Document) -> str:
    """The result of forgetting: the number of places, and what was not forgotten."""
    remainder = f". Not forgotten: {'; '.join(report['left'])}" if report["left"] else ""
    return f"Forgotten in {formats.count(sum(report['counts'].values()), 'place')}{remainder}"


def _make_layer_fields(state: LayerState) -> Fields:
    """A layer: what it holds, and its state."""
    name, content = LAYER_NAMES[state.layer]
    sign, tone = LAYER_SIGNS[state.state]
    yield text_line(f"{state.layer.value} {name}", "title")
    yield text_line(content, "grey")
    done = f" {state.progress:.0%}" if state.state == "building" else ""
    words = f": {state.words}" if state.words else ""
    yield text_line(f"{sign} {state.state}{done}{words}", tone)


def _make_layer_row(state: LayerState, now: datetime) -> Row:
    """A layer: letter, name, number of entries, and its progress or age."""
    sign, style = LAYER_SIGNS[state.state]
    progress_or_age = ""
    if state.state == "building":
        progress_or_age = f"{state.progress:>4.0%}"
    elif state.fresh_at:
        progress_or_age = f"{formats.age(now - state.fresh_at):>4}"
    count = f"{state.count:,}" if state.count < 100_000 else formats.tokens(state.count)
    right = f"{count} {progress_or_age}" if state.count else ""
    name = f"{state.layer.value}  {LAYER_NAMES[state.layer][0]}"
    return Row(state.layer.value, name, sign, right, "ink", style, "grey")


MAX_LABEL_CELLS = 20
"""Maximum number of cells of the label before an entry."""


def _make_entry_rows(entries: Sequence[Entry], now: datetime, draft_keys: str = "") -> list[Row]:
    """Entries as rows, below the headings of their groups. `draft_keys` says what keys do with drafts, if there are
    any."""
    label_lengths = (len(entry.label) for entry in entries if not isinstance(entry.value, RecallMatch))
    label_width = min(MAX_LABEL_CELLS, max(label_lengths, default=0))
    groups: dict[str, list[Row]] = {}
    for entry in entries:
        text = one_line(entry.text[:400])
        age = formats.age(now - entry.at) if entry.at else ""
        if isinstance(entry.value, RecallMatch):
            row = Row(entry.key, text, f"{entry.value.score:.2f}", age, "ink", "accent")
        else:
            text = f"{fit_to_width(entry.label, label_width)}  {text}" if label_width else text
            row = Row(entry.key, text, entry.mark or " ", age, "faint" if entry.is_old else "ink", entry.mark_style)
        heading = f"{DRAFTS_HEADING}: {draft_keys}" if entry.group == DRAFTS_HEADING else entry.group
        groups.setdefault(heading, []).append(row)
    return group_rows(groups)

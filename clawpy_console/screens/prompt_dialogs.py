"""The lines of a prompt with their sources, and the dialogs that show them (SPEC 9.5, 9.6): the X-ray has the prompts
that a session sent, the preview of recall has the block that a task would get from memory. `open_source` opens the
source of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Input

from clawpy_console import external_programs, formats
from clawpy_console.fields import TONES, WORDS, Field, Fields, draw_bar, heading, text_line
from clawpy_console.fields.learning import make_memory_fields
from clawpy_console.formats import crop, fit_to_width, one_line, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens.card_details import show_details
from clawpy_console.screens.dialog import Dialog, PreviewDialog
from clawpy_console.screens.memory_entries import LAYER_NAMES
from clawpy_console.widgets import CursorView, Rows
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.session import make_call_heading, make_call_row
from clawpy_console.widgets.texts import PlainText, ReflowingText
from clawpy_console.widgets.transcript import LinesView
from engine import document
from engine.model import (
    Injection,
    Layer,
    ModelCall,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    RecallMatch,
    Refusal,
    SessionView,
    SourceKind,
)
from engine.text import sanitise

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from engine import Engine

Result = TypeVar("Result")


SOURCE_CELLS = 17
"""Cells for the name of a source, with the sign after it."""

TRUST_SIGNS = WORDS["trust"]
"""The sign before a line that says how far it may be followed; `▲` where the content filter objects to it."""

SOURCE_TONES = TONES["source"]
"""The tone of a source's name, by its kind."""


class LineOrigin(NamedTuple):
    """Where a line of a prompt comes from."""

    source: PromptSource | None
    objections: str
    """Those of the content filter, "" for none."""


NO_ORIGIN = LineOrigin(None, "")
"""The origin of a line that was not sent, such as a heading."""


class PromptLines(LinesView, CursorView):
    """Lines of a prompt with a cursor. Posts `Opened` when the operator opens the source of a line."""

    BINDINGS = make_bindings("rows")

    @dataclass
    class Opened(Message):
        """The operator opened the source of a line."""

        source: PromptSource

    def __init__(self, *, id: str) -> None:
        super().__init__(
            id=id, max_lines=1_000_000, signs={"": " " * SOURCE_CELLS}, empty="Select a call.", follow_end=False
        )
        self._origins: list[LineOrigin] = []  # of each line

    @property
    def source(self) -> PromptSource | None:
        """The source of the line under the cursor, None for a heading."""
        return self._origins[self.cursor].source if self.accepts_cursor(self.cursor) else None

    @property
    def trust_words(self) -> str:
        """The trust in the line under the cursor, with the objections of the content filter to it."""
        source = self.source
        if source is None:
            return ""
        label = source.standing or "text from Clawpy Console"
        objections = self._origins[self.cursor].objections
        return f"{label}, ▲ hostile: {objections}" if objections else label

    @property
    def line(self) -> str:
        """The line under the cursor, "" for a heading."""
        return self._lines[self.cursor][1] if self.source else ""

    @property
    def prompt_text(self) -> str:
        """The whole prompt as it was sent."""
        texts = zip(self._origins, self._lines, strict=True)
        return "\n".join(text for (source, _), (_, text) in texts if source is not None)

    def show(self, parts: Sequence[PromptPart], reply: str = "", objections: Sequence[Sequence[str]] = ()) -> None:
        """Show a prompt from its top, with the reply below it. `objections` are those of the content filter to each
        line of each part."""
        lines: list[tuple[str, str]] = []
        origins: list[LineOrigin] = []
        for number, part in enumerate(parts):
            lines += [("hunk", ""), ("file", f"{part.role} · {part.name} · ≈{part.tokens:,} tokens")]
            lines += [("output" if part.role != "assistant" else "say", line.text) for line in part.lines]
            sources = [line.source for line in part.lines]
            line_objections = objections[number] if objections else [""] * len(sources)
            origins += [NO_ORIGIN, NO_ORIGIN, *map(LineOrigin, sources, line_objections)]
        if reply:
            lines += [("hunk", ""), ("file", "answered"), *(("say", item) for item in reply.rstrip("\n").split("\n"))]
        origins += [NO_ORIGIN] * (len(lines) - len(origins))
        self.clear(empty="nothing was sent")
        self._origins = origins[1:]  # no empty line on top
        self.extend(lines[1:])
        self.set_reactive(PromptLines.cursor, 0)
        self.move_cursor(0, 1)
        self.scroll_home(animate=False)

    def seek(self, kind: SourceKind) -> None:
        """Put the cursor on the first line from a source of this kind, without scrolling."""
        numbers = (
            number for number, (source, _) in enumerate(self._origins) if source is not None and source.kind is kind
        )
        self.set_reactive(PromptLines.cursor, next(numbers, self.cursor))
        self.refresh()

    @property
    def entry_count(self) -> int:
        return len(self._lines)

    def accepts_cursor(self, number: int) -> bool:
        return super().accepts_cursor(number) and self._origins[number].source is not None

    def compute_entry_region(self, number: int) -> Region:
        first, end = self._first_rows[number : number + 2]
        return Region(0, first, 1, end - first)

    def find_entry(self, row: int) -> int:
        return self.find_line(row)

    def choose_base_style(self, line: int, base: Style) -> Style:
        has_cursor = line == self.cursor and self.has_focus and self.accepts_cursor(line)
        return base + self.get_style("reply") if has_cursor else base

    def make_lead_segments(self, line: int, part: int, base: Style) -> list[Segment]:
        """The source of a line where it differs from that of the line above, and a sign for how far it is trusted."""
        source, objections = self._origins[line]
        if source is None:
            return [] if self._lines[line][0] == "file" else [Segment(self._signs[""], base)]
        name = ""
        if not part and (not line or source != self._origins[line - 1].source):
            name = source.label.rpartition("/")[2] or source.kind.value
        if line == self.cursor and self.has_focus and not part:
            sign = "▸"
        else:
            sign = "▲" if objections else TRUST_SIGNS.get(source.standing, "│")
        return [
            Segment(fit_to_width(name, SOURCE_CELLS - 3) + " ", base + self.get_style(SOURCE_TONES[source.kind])),
            Segment(f"{sign} ", base + self.get_style("error" if sign == "▲" else "hunk")),
        ]

    def choose_sign(self, line: int) -> str:
        return ""  # a selection is copied as it was sent

    def action_open(self) -> None:
        if (source := self.source) is not None:
            self.post_message(self.Opened(source))


class PromptDialog(Dialog[Result]):
    """Shows the lines of a prompt beside the pane `AUTO_FOCUS`; Tab goes from one to the other."""

    DEFAULT_CLASSES = "-alone"

    prompt = getters.query_one(PromptLines)

    def action_next_pane(self) -> None:
        self.set_focus(self.query_one(str(self.AUTO_FOCUS)) if self.prompt.has_focus else self.prompt)

    action_previous_pane = action_next_pane

    def copy(self, text: str, name: str) -> None:
        """Copy `text`, which the toast calls `name`; nothing where there is no text."""
        if text:
            self.app.copy_to_clipboard(text)
            self.app.show_toast(f"Copied {name}.")


# What a session sent


class SentPrompt(NamedTuple):
    """A prompt that was sent to a model."""

    parts: tuple[PromptPart, ...]
    reply: str
    """"" until the call has ended."""
    objections: list[list[str]]
    """The objections of the content filter to each line of each part, "" for none."""


REFRESH_S = 1.0
"""Seconds after which the calls are read again."""


class XRay(PromptDialog[PromptSource | None]):
    """The calls of one session. Gives the source that the operator wants to see, None on Escape."""

    BINDINGS = make_bindings("xray", "panes", "zoom")
    AUTO_FOCUS = "#calls"
    DEFAULT_CSS = """
    XRay #body { height: 1fr; }
    XRay #calls { width: 36; height: 1fr; margin: 0 1 0 0; }
    XRay #sent { width: 1fr; height: 1fr; }
    XRay #standing { height: 1; dock: bottom; }
    XRay #call { height: auto; max-height: 6; margin-bottom: 1; }
    XRay.-wide #calls { width: 46; }
    XRay.-narrow {
        #body { layout: vertical; }
        #calls { width: 1fr; height: auto; max-height: 4; margin: 0 0 1 0; }
    }
    """

    _call_rows = getters.query_one("#calls", Rows)

    def __init__(self, session: SessionView) -> None:
        super().__init__()
        self._session = session
        self._calls: tuple[ModelCall, ...] = ()
        self._shown_call = ("", "")  # id and state of the call whose prompt is shown

    def compose(self) -> ComposeResult:
        title = f"X-ray  {crop(one_line(self._session.prompt), 60)}"
        with self.make_frame(title, self._session.id, classes="-whole"), Horizontal(id="body"):
            yield Rows(id="calls", empty="Loading…")
            with Vertical(id="sent"):
                yield ReflowingText(id="call")
                yield PromptLines(id="prompt")
                yield ReflowingText(id="standing")
        yield KeyLine()

    def on_mount(self) -> None:
        self._read_calls()
        self.set_interval(REFRESH_S, self._read_calls, name="calls")

    @property
    def call(self) -> ModelCall | None:
        """The call under the cursor."""
        return self._call_rows.find(self._calls)

    def _read_calls(self) -> None:
        self.read(lambda engine: engine.calls.list_for_session(self._session.id), self._show_calls, group="calls")

    def _show_calls(self, calls: list[ModelCall]) -> None:
        is_first_reading = not self._calls
        self._calls = tuple(calls)
        rows = [make_call_row(number, call) for number, call in enumerate(calls, 1)]
        self._call_rows.show(rows, empty="it has made no call yet")
        if is_first_reading and self._calls:
            self._call_rows.select(self._calls[-1].id)
        if not self._calls:
            self.prompt.clear(empty="nothing was sent to a model")
        self._show_call()

    @on(Rows.Moved, "#calls")
    def _show_call(self) -> None:
        """Show the figures of the call under the cursor at once, and its prompt once it was read."""
        call = self.call
        self.query_one("#call", ReflowingText).show(
            lambda width: make_call_heading(call, self._session, width) if call else []
        )
        if call is None or self._shown_call == (call.id, call.state):
            return
        is_same_call = self._shown_call[0] == call.id  # it has ended: only its reply is new
        self._shown_call = call.id, call.state

        def read_prompt(engine: Engine) -> SentPrompt:
            parts = engine.calls.read_prompt(call.id)
            return SentPrompt(parts, engine.calls.read_reply(call.id), engine.find_objections(parts))

        def show_prompt(prompt: SentPrompt) -> None:
            cursor = self.prompt.cursor
            self.prompt.show(prompt.parts, prompt.reply, prompt.objections)
            if is_same_call:
                self.prompt.move_cursor(cursor, 1)

        self.read(read_prompt, show_prompt, group="prompt")

    @on(Rows.Opened, "#calls")
    def _on_call_opened(self) -> None:
        self.set_focus(self.prompt)

    @on(PromptLines.Moved, "#prompt")
    def _on_line_moved(self) -> None:
        """Show below the prompt how far the line under the cursor may be followed."""
        words = self.prompt.trust_words
        self.query_one("#standing", ReflowingText).show(
            lambda width: [Content.styled(crop(words, width), "$wrong" if "▲" in words else "$grey")]
        )

    @on(PromptLines.Opened)
    def _on_line_opened(self, message: PromptLines.Opened) -> None:
        self.dismiss(message.source)

    def action_copy_line(self) -> None:
        self.copy(self.prompt.line, "the line")

    def action_copy_all(self) -> None:
        self.copy(self.prompt.prompt_text, "the whole prompt")


# What a task would recall


class RecallPreview(
    PreviewDialog[RecallMatch | None],  # first, since its styles have to apply
    PromptDialog[RecallMatch | None],
):
    """Asks for a task and shows its recall. Gives the memory that the operator opens, None on Escape."""

    BINDINGS = make_bindings("recalled", "panes", "zoom")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]
    AUTO_FOCUS = "#task"
    DEFAULT_CSS = """
    RecallPreview #task { margin: 0; }
    RecallPreview #body { margin-top: 1; }
    RecallPreview #block { width: 2fr; }
    RecallPreview #pane { min-width: 44; border-left: vkey $line; padding: 0 0 0 1; }
    RecallPreview.-narrow {
        #body { layout: vertical; margin-top: 0; }
        #block { width: 1fr; height: 1fr; }
        #pane { width: 1fr; height: 8; border-left: none; border-top: hkey $line; padding: 0; }
    }
    """

    def __init__(self, request: PromptRequest) -> None:
        """Shows the recall for the task of `request` at once, if there is one."""
        super().__init__()
        self._request = request
        self._recall: Injection | None = None

    def compose(self) -> ComposeResult:
        request = self._request
        place = " · ".join(filter(None, (workspace_name(request.workspace), request.agent)))
        with self.make_frame("What would be recalled for …", place, classes="-whole"):
            yield Input(one_line(request.task), id="task", placeholder="describe a task, then ⏎")
            yield PlainText(id="status")
            with Horizontal(id="body"):
                yield PromptLines(id="block")
                yield from self.compose_pane()
        yield KeyLine()

    def on_mount(self) -> None:
        self.prompt.clear(empty="The block as it would be sent appears here.")
        self._recall_for(self._request.task)

    @on(Input.Submitted, "#task")
    def _on_task_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._recall_for(event.value)
            self.set_focus(self.prompt)

    def _recall_for(self, task: str) -> None:
        if task.strip():
            request = replace(self._request, task=task)
            self.show_status("Searching all layers…", "$grey")
            self.preview(lambda engine: engine.recall_part.preview(request), self._show_recall, wait=0)

    def _show_recall(self, recall: Injection) -> None:
        self._recall = recall
        summary = "Nothing would be recalled" + ("" if recall.budget else ": recallTokens is 0")
        if recall.part is not None:
            memories = formats.count(len(recall.items), "memory", "memories")
            summary = f"{memories}, {recall.tokens:,} of {recall.budget:,} tokens"
        dropped = f"  ·  {formats.count(len(recall.dropped), 'memory', 'memories')} left out" if recall.dropped else ""
        without = "".join(f"\n▲ without {one_line(item)}" for item in recall.left_out)
        self.query_one("#status", PlainText).update(
            Content.assemble((summary, "bold $ink"), (dropped, "$grey"), (without, "$wants"))
        )
        parts = [recall.part] if recall.part is not None else []
        if recall.dropped:
            lines = tuple(line for memory in recall.dropped for line in _make_prompt_lines(memory))
            tokens = sum(memory.tokens for memory in recall.dropped)
            parts.append(PromptPart("left out (budget)", lines, "not sent", tokens))
        self.prompt.show(parts)
        self.prompt.seek(SourceKind.MEMORY)
        self._show_reasons()

    @property
    def current(self) -> RecallMatch | None:
        """The memory under the cursor."""
        source = self.prompt.source
        recall = self._recall
        if source is None or recall is None:
            return None
        return next((memory for memory in (*recall.items, *recall.dropped) if memory.id == source.ref), None)

    @on(PromptLines.Moved, "#block")
    def _show_reasons(self) -> None:
        if self._recall is not None:
            self.show(self._make_reason_fields(self.current, self._recall))

    def _make_reason_fields(self, memory: RecallMatch | None, recall: Injection) -> Fields:
        """The source of a memory, and each part of its score."""
        if memory is None:
            yield text_line("Select a line of a memory.", "faint")
            return
        name, _ = LAYER_NAMES[memory.layer]
        yield text_line(f"{memory.layer.value} {name}, {formats.count(memory.tokens, 'token')}", "title")
        if memory in recall.dropped:
            yield text_line("▼ left out (budget)", "wants")
        yield from make_memory_fields(document(memory))
        yield heading("score")
        for part in memory.parts:
            yield Field(part.name, f"{draw_bar(part.value)} {part.value:.2f} × {part.weight:.2f}")
        yield Field("score", f"{memory.score:.2f}", "title")

    @on(PromptLines.Opened)
    def _on_memory_opened(self) -> None:
        if (memory := self.current) is not None:
            self.dismiss(memory)

    def action_ask(self) -> None:
        self.set_focus(self.query_one("#task"))

    def action_copy_block(self) -> None:
        if self._recall is not None and self._recall.part is not None:
            self.copy(self._recall.part.text, "the block")


def _make_prompt_lines(memory: RecallMatch) -> list[PromptLine]:
    """The text of a memory as lines of a prompt, each with the memory as its source."""
    source = PromptSource(SourceKind.MEMORY, memory.id, f"{memory.layer.value} {memory.source or memory.id}")
    return [PromptLine(line, source) for line in sanitise(memory.text)[:2_000].split("\n")]


# The source of a line


def open_source(app: CardConsole, source: PromptSource, session_id: str) -> None:
    """Open what `source` names: a file in the editor, a card, the session's transcript. Anything else is a toast."""
    match source.kind:
        case SourceKind.SOUL | SourceKind.PROJECT if source.ref:
            external_programs.open_editor(app, source.ref)
        case SourceKind.TASK if source.ref.startswith("pred_"):
            _open_card(app, source.ref)
        case SourceKind.MEMORY if source.ref and source.label[:1] in set(Layer):
            app.open("memory", Layer(source.label[0]), source.ref)
        case SourceKind.LEADER if source.ref:
            app.open("hierarchy", source.ref.partition("#")[0])
        case SourceKind.OVERLAY | SourceKind.LEARNING if source.ref:
            app.open("learning", source.ref)
        case SourceKind.OPERATOR | SourceKind.CONVERSATION:
            app.open("work", session_id)
            app.show_toast("See the transcript of this session.")
        case SourceKind.RUNNER:
            app.show_toast("This line comes from Clawpy Console itself.")
        case _:
            id_in_brackets = f" ({source.ref})" if source.label else ""
            app.show_toast(f"{source.kind.value}: {source.label or source.ref}{id_in_brackets}")


def _open_card(app: CardConsole, card_id: str) -> None:
    def on_refusal(refusal: Refusal) -> None:
        app.show_toast(f"the card {card_id} is gone: {refusal.message}", "warning")

    app.load_for_dialog(lambda engine: engine.cards.get(card_id), lambda card: show_details(app, card), on_refusal)

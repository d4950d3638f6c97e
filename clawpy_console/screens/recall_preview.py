"""The dialog that shows what a task would recall, and why (SPEC 9.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console import formats
from clawpy_console.fields import Field, draw_bar, heading, text_line
from clawpy_console.fields.learning import make_memory_fields
from clawpy_console.formats import one_line, workspace_name
from clawpy_console.keys import bindings
from clawpy_console.screens.dialog import PreviewDialog
from clawpy_console.screens.memory_entries import LAYER_NAMES
from clawpy_console.screens.xray import PromptDialog
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.texts import PlainText, ReflowingText
from clawpy_console.widgets.transcript import PromptLines
from engine import document
from engine.model import (
    Injection,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    RecallMatch,
    SourceKind,
    sanitise,
)


class RecallPreview(
    PreviewDialog[RecallMatch | None],  # first, since its styles have to apply
    PromptDialog[RecallMatch | None],
):
    """Asks for a task and shows its recall. Gives the memory that the operator opens, None on Escape."""

    BINDINGS = bindings("recalled", "panes", "zoom")
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
                with VerticalScroll(id="pane", can_focus=False):
                    yield ReflowingText(id="change")
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
            Content.assemble(
                (summary, "bold $ink"), (f"{dropped}  ·  {recall.seconds * 1000:.0f} ms", "$grey"), (without, "$wants")
            )
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
        source, recall = self.prompt.source, self._recall
        if source is None or recall is None:
            return None
        return next((memory for memory in (*recall.items, *recall.dropped) if memory.id == source.ref), None)

    @on(PromptLines.Moved, "#block")
    def _show_reasons(self) -> None:
        if self._recall is not None:
            self.show(self._make_reason_fields(self.current, self._recall))

    def _make_reason_fields(self, memory: RecallMatch | None, recall: Injection) -> Iterator[Field]:
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

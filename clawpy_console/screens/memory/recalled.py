"""What would be recalled for a task (SPEC 9.5): the block as it would be sent, and why each line is in it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static
from textual.worker import Worker

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from clawpy_console.screens.memory.lines import recall_words, score_lines
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.prompt_lines import PromptLines
from engine.values import (
    Injection,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Recalled,
    Refusal,
    SourceKind,
    sanitise,
)

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

log = logging.getLogger(__name__)


class WouldRecall(Dialog[Recalled | None]):
    """Asks for a task and shows its recall; gives the memory that the operator wants to see, None when he is done."""

    BINDINGS = bindings("recalled", "panes", "zoom")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal")]
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#task"
    DEFAULT_CSS = """
    WouldRecall #task { margin: 0; }
    WouldRecall #found, WouldRecall #without { height: auto; padding: 0 1; }
    WouldRecall #body { height: 1fr; margin-top: 1; }
    WouldRecall #block { width: 2fr; }
    WouldRecall #why-pane { width: 1fr; min-width: 44; border-left: vkey $line; padding: 0 0 0 1;
        scrollbar-size-vertical: 1; }
    WouldRecall #why { height: auto; }
    WouldRecall.-narrow {
        #body { layout: vertical; margin-top: 0; }
        #block { width: 1fr; height: 1fr; }
        #why-pane { width: 1fr; height: 8; border-left: none; border-top: hkey $line; padding: 0; }
    }
    """

    app: ConsoleApp

    def __init__(self, task: str, workspace: str, agent: str, channel: str) -> None:
        """`task` is asked for at once when there is one."""
        super().__init__()
        self._wanted = task
        self._place = (workspace, agent, channel)
        self._found: Injection | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content("What would be recalled for …")
            workspace, agent, _ = self._place
            frame.border_subtitle = Content(" · ".join(one for one in (words.name(workspace), agent) if one))
            yield Input(words.one_line(self._wanted), id="task", placeholder="a task, in words; ⏎ asks")
            yield Static(id="found", markup=False)
            yield Static(id="without", markup=False)
            with Horizontal(id="body"):
                yield PromptLines(id="block")
                with VerticalScroll(id="why-pane", can_focus=False):
                    yield Drawn(id="why")
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#block", PromptLines).clear(empty="The block as it would be sent appears here.")
        if self._wanted.strip():
            self._ask(self._wanted)

    @on(Input.Submitted, "#task")
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self._ask(event.value)
            self.set_focus(self.query_one("#block"))

    def _ask(self, task: str) -> None:
        engine = self.app.live()
        if engine is None:
            return
        workspace, agent, channel = self._place
        request = PromptRequest(agent, channel, workspace, task)
        self.query_one("#found", Static).update(Content.styled("Searching all layers…", "$grey"))

        async def work() -> None:
            try:
                found = await asyncio.to_thread(engine.recalling.preview, request)
            except Exception as error:  # a refusal, or a fault of a layer: said here, and asked again with another task
                log.warning("recall failed", exc_info=not isinstance(error, Refusal))
                self.query_one("#found", Static).update(Content.styled(f"✗ {error}", "$wrong"))
            else:
                self._show(found)

        _: Worker[None] = self.run_worker(work, group="recall", exclusive=True)

    def _show(self, found: Injection) -> None:
        self._found = found
        self.query_one("#found", Static).update(recall_words(found))
        without = "\n".join(f"▲ without {words.one_line(one)}" for one in found.left_out)
        self.query_one("#without", Static).update(Content.styled(without, "$wants"))
        self.query_one("#without").display = bool(without)
        parts = [found.part] if found.part is not None else []
        if found.dropped:
            lines = [line for one in found.dropped for line in _lines(one)]
            tokens = sum(one.tokens for one in found.dropped)
            parts.append(PromptPart("left out (budget)", tuple(lines), "not sent", tokens))
        block = self.query_one("#block", PromptLines)
        block.show(parts)
        block.seek(SourceKind.MEMORY)
        self._draw_why()

    @property
    def current(self) -> Recalled | None:
        """The memory under the cursor."""
        source = self.query_one("#block", PromptLines).source
        if source is None or self._found is None:
            return None
        return next((one for one in (*self._found.items, *self._found.dropped) if one.id == source.ref), None)

    @on(PromptLines.Moved)
    def _draw_why(self) -> None:
        one, now = self.current, self.app.now()
        dropped = self._found is not None and one is not None and one not in self._found.items
        lines = lambda width: score_lines(one, dropped, now, width) if self._found else []  # noqa: E731
        self.query_one("#why", Drawn).show(lines)

    @on(PromptLines.Opened)
    def _opened(self) -> None:
        if (one := self.current) is not None:
            self.dismiss(one)

    def action_next_pane(self) -> None:
        self.set_focus(self.query_one("#task" if self.focused and self.focused.id == "block" else "#block"))

    action_previous_pane = action_next_pane

    def action_ask(self) -> None:
        self.set_focus(self.query_one("#task"))

    def action_copy_block(self) -> None:
        if self._found is not None and self._found.part is not None:
            self.app.copy_to_clipboard(self._found.part.text)
            self.app.say("Copied the block.")

    def action_close(self) -> None:
        self.dismiss(None)


def _lines(one: Recalled) -> list[PromptLine]:
    source = PromptSource(SourceKind.MEMORY, one.id, f"{one.layer.value} {one.source or one.id}")
    return [PromptLine(line, source) for line in sanitise(one.text)[:2_000].split("\n")]

"""What a leader hands down, edited as a text; beside it whose prompts that changes, and how (SPEC 1.9)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea
from textual.worker import Worker

from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.lines import prompt_lines
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine
from engine.values import LeaderProfile, ProfileEdit, ProfilePreview, Refusal

if TYPE_CHECKING:
    from engine import Engine

SETTLED = 0.3
"""Seconds without a key before what the text changes is worked out."""

Edits = tuple[ProfileEdit, ...]


class EditProfile(Dialog[tuple[LeaderProfile, LeaderProfile] | None]):
    """Edits a profile; gives it as it was and as it is once it was saved, None otherwise."""

    BINDINGS = bindings("profile")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#text"
    DEFAULT_CSS = """
    EditProfile #body { height: 1fr; }
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile #pane { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    EditProfile #said { height: auto; padding: 0 1; }
    EditProfile KeyLine { background: $surface; dock: bottom; padding: 0; }
    """

    def __init__(self, engine: Engine, before: LeaderProfile) -> None:
        super().__init__()
        self._engine, self._before = engine, before
        self._begun = engine.wisdom.profile_text(before)
        self._edits: Edits = ()
        self._shown: ProfilePreview | None = None  # what `_edits` make, once it is worked out
        self._leaving = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content(f"Guidance from {self._before.leader}")
            with Horizontal(id="body"):
                yield TextArea(self._begun, id="text", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
                with VerticalScroll(id="pane", can_focus=False):
                    yield Drawn(id="change")
            yield Static(id="said", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#change", Drawn).show(lambda width: prompt_lines(0, None, width))

    @property
    def _text(self) -> str:
        return self.query_one("#text", TextArea).text

    @on(TextArea.Changed, "#text")
    def _typed(self) -> None:
        self._leaving, self._shown = False, None

        async def work() -> None:
            await asyncio.sleep(SETTLED)
            edits, preview = await asyncio.to_thread(self._work_out, self._text)
            self._edits, self._shown = edits, preview
            self._say("", "$grey")
            self.query_one("#change", Drawn).show(lambda width: prompt_lines(len(edits), preview, width))

        _: Worker[None] = self.run_worker(work, group="preview", exclusive=True)

    def _work_out(self, text: str) -> tuple[Edits, ProfilePreview]:
        edits = self._engine.wisdom.profile_edits(self._before, text)
        return edits, self._engine.wisdom.preview_profile(self._before.leader, edits)

    def _say(self, text: str, style: str) -> None:
        said = self.query_one("#said", Static)
        said.display = bool(text)
        said.update(Content.styled(text, style))

    def action_save(self) -> None:
        """Save what is shown beside the text, and nothing that was not."""
        leader, edits = self._before.leader, self._edits
        if self._shown is None:
            self._say("A moment: what it changes is not shown yet.", "$wants")
        elif not edits:
            self._say("Nothing has changed.", "$grey")
        else:
            self.app.ask(lambda: self._engine.wisdom.revise_profile(leader, edits), self._saved, self._refused)

    def _saved(self, after: LeaderProfile) -> None:
        self.dismiss((self._before, after))

    def _refused(self, refusal: Refusal) -> None:
        self._say(f"✗ {refusal}", "$wrong")

    def action_page(self, by: int) -> None:
        pane = self.query_one("#pane", VerticalScroll)
        pane.scroll_to(y=pane.scroll_offset.y + by * max(1, pane.size.height - 1), animate=False)

    def action_close(self) -> None:
        if self._text == self._begun or self._leaving:
            self.dismiss(None)
            return
        self._leaving = True
        self._say("▲ Not saved. Press the same key again to discard your edit.", "$wants")

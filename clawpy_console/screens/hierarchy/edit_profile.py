"""The guidance of a leader, edited as a text; beside it which prompts that changes (SPEC 1.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea

from clawpy_console.dialogs.preview import PreviewDialog
from clawpy_console.fields import Document, Field
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.agent import edited
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine
from engine.model import LeaderProfile, ProfileEdit

if TYPE_CHECKING:
    from engine import Engine

SETTLED = 0.3
"""Seconds without a key before what the text changes is worked out."""


class EditProfile(PreviewDialog[bool]):
    """Edits a profile; True when it was saved."""

    BINDINGS = bindings("profile", "preview")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#text"
    DEFAULT_CSS = """
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    """

    def __init__(self, before: LeaderProfile, text: str) -> None:
        """`text` is the profile as it is edited."""
        super().__init__()
        self._before, self._begun = before, text
        self._edits: tuple[ProfileEdit, ...] | None = ()  # None until they are worked out and shown
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
        self.show([Field("", "Edit the text. The prompts that this changes are shown here.", "grey")])

    @on(TextArea.Changed, "#text")
    def _typed(self, event: TextArea.Changed) -> None:
        self._leaving, self._edits = False, None
        text = event.text_area.text
        self.preview(lambda engine: self._work_out(engine, text), self._show, wait=SETTLED)

    def _work_out(self, engine: Engine, text: str) -> tuple[tuple[ProfileEdit, ...], Document]:
        edits = engine.wisdom.profile_edits(self._before, text)
        found = engine.wisdom.preview_profile(self._before.leader, edits)
        prompts = [{"agents": agents, "changes": lines} for agents, lines in found.changes]
        return edits, {"edits": edits, "fromSoul": found.from_soul, "prompts": prompts}

    def _show(self, found: tuple[tuple[ProfileEdit, ...], Document]) -> None:
        self._edits, document = found
        self.say("")
        self.show(edited(document))

    def action_save(self) -> None:
        """Save what is shown beside the text, and nothing that was not shown."""
        leader, edits = self._before.leader, self._edits
        if edits is None:
            self.say("Not saved: what it changes is not shown yet.")
        elif not edits:
            self.say("Nothing has changed.", "$grey")
        else:
            self.app.ask(
                lambda engine: engine.wisdom.revise_profile(leader, edits), lambda _: self.dismiss(True), self.refuse
            )

    def action_close(self) -> None:
        if self.query_one("#text", TextArea).text == self._begun or self._leaving:
            self.dismiss(False)
            return
        self._leaving = True
        self.say("▲ Not saved. Press the same key again to discard your edit.")

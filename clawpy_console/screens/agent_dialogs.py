"""Dialogs with an editor: for a file of an agent (SPEC 4.1), and for the guidance of a leader (SPEC 1.4).

No edit is lost, neither the operator's nor another program's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static, TextArea

from clawpy_console.dialogs.base import Dialog, PreviewDialog
from clawpy_console.fields import Document, text_line
from clawpy_console.fields.agent import make_edit_fields
from clawpy_console.keys import bindings
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.model import AgentFile, LeaderProfile, ProfileEdit, Refusal, sanitise

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine


TYPING_DEBOUNCE_S = 0.3
"""Seconds without a key before the preview of an edit is computed."""


class EditDialog(Dialog[bool | None]):
    """Edits a text. Gives True when it was saved, else None. An unsaved edit needs the key that closes twice."""

    AUTO_FOCUS = "#text"

    original = ""
    """The text before the edit."""

    _confirming_close = False

    _editor = getters.query_one("#text", TextArea)

    def make_editor(self, *, line_numbers: bool = False) -> TextArea:
        """The widget of the text."""
        return TextArea(self.original, id="text", soft_wrap=True, show_line_numbers=line_numbers, tab_behavior="focus")

    @property
    def text(self) -> str:
        """The text in the editor."""
        return self._editor.text

    @on(TextArea.Changed, "#text")
    def _on_edited(self) -> None:
        self._confirming_close = False

    def action_close(self) -> None:
        if self.text == self.original or self._confirming_close:
            self.dismiss(None)
            return
        self._confirming_close = True
        self.show_status("▲ Not saved. Press the same key again to discard your edit.")


class EditFile(EditDialog):
    """Edits one file; True when it was saved.

    If another program changed the file meanwhile, its text is shown below the operator's. Then ^s saves the text above,
    and ^t replaces it with the text below.
    """

    BINDINGS = bindings("edit")
    DEFAULT_CLASSES = "-alone"
    DEFAULT_CSS = """
    EditFile #text { height: 1fr; }
    EditFile #theirs { height: 1fr; display: none; }
    EditFile #status { height: auto; padding: 0 1; }
    EditFile KeyLine { background: $surface; dock: bottom; padding: 0; }
    EditFile.-clash #theirs { display: block; }
    """

    def __init__(self, file: AgentFile) -> None:
        super().__init__()
        self._file = file
        self.original = sanitise(file.text.replace("\r\n", "\n"))
        self._theirs: AgentFile | None = None

    def compose(self) -> ComposeResult:
        with self.make_frame(f"{self._file.agent}/{self._file.name}", classes="-whole"):
            yield self.make_editor(line_numbers=self._file.name.endswith(".json"))
            yield Static(id="status", markup=False)
            yield TextArea(id="theirs", soft_wrap=True, show_line_numbers=False, read_only=True)
            yield KeyLine()

    def on_mount(self) -> None:
        if self.original != self._file.text.replace("\r\n", "\n"):
            self.show_status("Control characters are not shown, and saving removes them.")
        elif self._file.problem:
            self.show_status(f"✗ {self._file.problem}", "$wrong")

    def action_save(self) -> None:
        """Save the text. If another program changed the file meanwhile, show its text, too."""
        file, text = self._theirs or self._file, self.text

        def on_refusal(refusal: Refusal) -> None:
            if refusal.code == "changed_meanwhile":
                self.app.call_engine(
                    lambda engine: engine.agent_files.read(file.agent, file.name),
                    self._show_conflict,
                    self.show_refusal,
                )
            else:
                self.show_refusal(refusal)

        self.app.call_engine(
            lambda engine: engine.agent_files.write(file.agent, file.name, text, based_on=file.digest),
            lambda _: self._on_saved(),
            on_refusal,
        )

    def _on_saved(self) -> None:
        self.app.show_toast(f"saved {self._file.agent}/{self._file.name}")
        self.dismiss(True)

    def _show_conflict(self, theirs: AgentFile) -> None:
        self._theirs = theirs
        self.query_one("#theirs", TextArea).text = sanitise(theirs.text)
        self.add_class("-clash")
        self.show_status("▲ Another program changed the file; its text is below. Save again to keep yours.")
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "theirs":
            return self._theirs is not None
        return super().check_action(action, parameters)

    def action_theirs(self) -> None:
        """Go on with the other program's text. The editor's own undo brings the operator's text back."""
        if self._theirs is not None:
            area = self._editor
            area.replace(sanitise(self._theirs.text.replace("\r\n", "\n")), (0, 0), area.document.end)


class EditProfile(PreviewDialog[bool | None], EditDialog):  # the first base is the one whose styles apply
    """Edits the profile of a leader. Gives True when it was saved."""

    BINDINGS = bindings("profile", "preview")
    DEFAULT_CLASSES = "-alone"
    DEFAULT_CSS = """
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    """

    def __init__(self, before: LeaderProfile, text: str) -> None:
        """`text` is the profile as it is edited."""
        super().__init__()
        self._before, self.original = before, text
        self._edits: tuple[ProfileEdit, ...] | None = ()  # None until their preview is shown

    def compose(self) -> ComposeResult:
        with self.make_frame(f"Guidance from {self._before.leader}", classes="-whole"):
            with Horizontal(id="body"):
                yield self.make_editor()
                with VerticalScroll(id="pane", can_focus=False):
                    yield ReflowingText(id="change")
            yield Static(id="status", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show([text_line("Edit the text. The prompts that this changes are shown here.", "grey")])

    @on(TextArea.Changed)
    def _on_typed(self) -> None:
        self._edits, text = None, self.text
        self.preview(lambda engine: self._compute_edits(engine, text), self._show_edits, wait=TYPING_DEBOUNCE_S)

    def _compute_edits(self, engine: Engine, text: str) -> tuple[tuple[ProfileEdit, ...], Document]:
        edits = engine.profiles.parse_edits(self._before, text)
        preview = engine.cascade.preview_edits(self._before.leader, edits)
        prompts = [{"agents": change.agents, "changes": change.lines} for change in preview.changes]
        return edits, {"edits": edits, "fromSoul": preview.from_soul, "prompts": prompts}

    def _show_edits(self, result: tuple[tuple[ProfileEdit, ...], Document]) -> None:
        self._edits, document = result
        self.show_status("")
        self.show(make_edit_fields(document))

    def action_save(self) -> None:
        """Save the edits whose preview is shown."""
        leader, edits = self._before.leader, self._edits
        if edits is None:
            self.show_status("Not saved: what it changes is not shown yet.")
        elif not edits:
            self.show_status("Nothing has changed.", "$grey")
        else:
            self.app.call_engine(
                lambda engine: engine.profiles.edit(leader, edits),
                lambda _: self.dismiss(True),
                self.show_refusal,
            )


def edit_file(app: Console, agent: str, name: str, on_saved: Callable[[], object]) -> None:
    """Edit a file of an agent in the console; `on_saved` is called once it was saved."""
    app.load_for_dialog(
        lambda engine: engine.agent_files.read(agent, name), lambda file: app.ask(EditFile(file), lambda _: on_saved())
    )

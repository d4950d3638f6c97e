"""Dialogs with an editor, and a file of an agent in it (SPEC 4.1): no edit is lost, ours or another program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static, TextArea

from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from clawpy_console.widgets.bars import KeyLine
from engine.model import AgentFile, Refusal, sanitise

if TYPE_CHECKING:
    from clawpy_console.console import Console


class EditDialog(Dialog[bool]):
    """Edits a text. Gives True when it was saved; an edit that is not saved needs the key that closes twice."""

    AUTO_FOCUS = "#text"

    original = ""
    """The text before the edit."""

    _confirming_close = False

    def editor(self, *, line_numbers: bool = False) -> TextArea:
        """The widget of the text."""
        return TextArea(self.original, id="text", soft_wrap=True, show_line_numbers=line_numbers, tab_behavior="focus")

    @property
    def text(self) -> str:
        """The text in the editor."""
        return self.query_one("#text", TextArea).text

    @on(TextArea.Changed, "#text")
    def _edited(self) -> None:
        self._confirming_close = False

    def action_close(self) -> None:
        if self.text == self.original or self._confirming_close:
            self.dismiss(False)
            return
        self._confirming_close = True
        self.show_status("▲ Not saved. Press the same key again to discard your edit.")


class EditFile(EditDialog):
    """Edits one file; True when it was saved.

    When another program wrote the file meanwhile its text is shown below: ^s then keeps what stands above, ^t takes
    what stands below.
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
        with self.frame(f"{self._file.agent}/{self._file.name}", classes="-whole"):
            yield self.editor(line_numbers=self._file.name.endswith(".json"))
            yield Static(id="status", markup=False)
            yield TextArea(id="theirs", soft_wrap=True, show_line_numbers=False, read_only=True)
            yield KeyLine()

    def on_mount(self) -> None:
        if self.original != self._file.text.replace("\r\n", "\n"):
            self.show_status("Control characters are not shown, and saving removes them.")
        elif self._file.problem:
            self.show_status(f"✗ {self._file.problem}", "$wrong")

    def action_save(self) -> None:
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
            lambda engine: engine.agent_files.write(file.agent, file.name, text, read=file.digest),
            lambda _: self._saved(),
            on_refusal,
        )

    def _saved(self) -> None:
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
        """Go on with the other program's text; ours can be taken back with the editor's own undo."""
        if self._theirs is not None:
            area = self.query_one("#text", TextArea)
            area.replace(sanitise(self._theirs.text.replace("\r\n", "\n")), (0, 0), area.document.end)


def edit_file(app: Console, agent: str, name: str, on_saved: Callable[[], object]) -> None:
    """Edit a file of an agent in the console; `on_saved` is called once it was saved."""

    def on_close(saved: bool | None) -> None:
        if saved:
            on_saved()

    app.load_for_dialog(
        lambda engine: engine.agent_files.read(agent, name), lambda file: app.push_screen(EditFile(file), on_close)
    )

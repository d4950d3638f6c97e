"""What a session changed: the verdict with its keys, the files, the diff of the file under the cursor (SPEC 9.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import shown_key
from clawpy_console.widgets.lines import DIFF, LinesView, diff_lines
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.session import change_words, check_words, file_row, marked_files, waits
from engine.values import ChangeSet, ChangeState, FileChange, FileDiff, Refusal, SessionView

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


MOST_MARKED = 8
"""Lines about marked files above the list, on a terminal that is not small."""


class Changes(Vertical):
    """Shows one change set, or that there is none."""

    app: ConsoleApp

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._diff_of = ""
        self._diffs: dict[str, FileDiff] = {}
        self._files: dict[str, FileChange] = {}
        self._verdict = Content("")

    def compose(self) -> ComposeResult:
        yield Static("CHANGES", id="changes-title", classes="heading", markup=False)
        yield Static(id="verdict", markup=False)
        yield Rows(id="files", classes="-fit")
        yield LinesView(id="diff", gutter=DIFF, tail=False)

    def show(self, session: SessionView | None, change: ChangeSet | None) -> bool:
        """Show what `session` changed; False when there is nothing to show, test result included."""
        check = (change.check if change else None) or (session.check if session else None)
        lines = [Content.styled(change_words(change, session), "$wants" if waits(change) else "$grey")]
        if change and change.note:
            lines.append(Content.styled(f"▲ {words.one_line(change.note)}", "$wants"))
        if check:
            lines.append(check_words(check))
        files = change.files if change else ()
        lines += marked_files(files, max(self.size.width - 2, 20), MOST_MARKED if self.app.size.height >= 40 else 3)
        state = change.state if change else None
        hints = ("land", "branch", "discard") if waits(change) else ("undo",) if state is ChangeState.LANDED else ()
        said = {"land": "lands it again"} if state is ChangeState.UNDONE else {}
        if hints:
            keys = self.app.keymap
            pairs = ((shown_key(f"work.{action}", keys), said.get(action, action)) for action in hints)
            lines.append(Content("   ").join(Content.assemble((key, "$accent"), f" {word}") for key, word in pairs))
        verdict = Content("\n").join([*lines, Content("")])
        if not verdict.is_same(self._verdict):
            self._verdict = verdict
            self.query_one("#verdict", Static).update(verdict)
        self._files = {one.path: one for one in files}
        self.query_one("#files", Rows).show([file_row(one) for one in files])
        self.query_one("#files").display = bool(files)
        self.query_one("#diff").display = bool(files)
        self._show_diff_of(change.id if change else "")
        return change is not None or check is not None

    def _show_diff_of(self, wanted: str) -> None:
        if wanted == self._diff_of:
            return
        self._diff_of, self._diffs = wanted, {}
        self.query_one("#diff", LinesView).clear(empty="Loading…" if wanted else "")
        engine = self.app.engine
        if wanted and engine is not None:
            self.run_worker(self._read_diff(wanted, lambda: engine.changes.diff(wanted)), group="diff", exclusive=True)

    async def _read_diff(self, change_id: str, read: Callable[[], list[FileDiff]]) -> None:
        try:
            diffs = await asyncio.to_thread(read)
        except Refusal as refusal:
            self.query_one("#diff", LinesView).clear(empty=str(refusal))
            return
        if change_id == self._diff_of:
            self._diffs = {one.path: one for one in diffs}
            self._draw_diff()

    @on(Rows.Moved, "#files")
    def _draw_diff(self) -> None:
        view = self.query_one("#diff", LinesView)
        current = self.query_one("#files", Rows).current
        one, file = self._diffs.get(current), self._files.get(current)
        if file is None or not (one or file.status == "left out"):
            return
        view.clear()
        view.extend([("file", f"{file.old_path} → {file.path}" if file.old_path else file.path)], follow=False)
        if file.refused:
            view.extend([("error", f"✗ cannot be landed: {file.refused}")], follow=False)
        if file.note:
            view.extend([("note", f"▲ {file.note}")], follow=False)
        if one is None:
            return
        view.extend(diff_lines(one.hunks), follow=False)
        if not one.hunks:
            view.extend([("note", "a binary file" if one.binary else "no lines changed")], follow=False)
        if one.cut:
            view.extend([("note", "… the rest is too long to show; `o` opens the folder")], follow=False)

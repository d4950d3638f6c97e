"""What a session changed: what landing does, its files as a tree, their diff, comments and marks (SPEC 3.9, 9.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.work import diff_files
from clawpy_console.screens.work.diff_view import DiffView
from clawpy_console.widgets.base_screen import BaseScreen
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.session import change_words, check_words, marked_files, waits
from engine.model import ChangeSet, FilePart, LandPreview, SessionView

if TYPE_CHECKING:
    from clawpy_console.console import Console


MAX_MARKED = 8
"""Lines about files that need a look, above the list, on a terminal that is not small."""


DEBOUNCE_S = 0.2
"""Seconds without another mark until it is found out what landing would do."""


class Files(Rows):
    """The tree of files. Space marks a file or a folder."""

    BINDINGS = bindings("changes")

    @dataclass
    class Marked(Message):
        """The row of `path` is to be marked, a folder where it ends in a slash."""

        path: str

    def action_mark_file(self) -> None:
        if self.current:
            self.post_message(self.Marked(self.current))


class Changes(Vertical):
    """Shows one change set, or that there is none."""

    app: Console

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._change: ChangeSet | None = None
        self._session: SessionView | None = None
        self._shown: tuple[object, ...] = ()  # what the diff was read for, the id of the change set first
        self._marked: dict[
            object, dict[diff_files.Mark, str]
        ] = {}  # by change set: marks, with the lines they stand on
        self._begun: dict[str, set[diff_files.Mark]] = {}  # by change set: marks whose landing was begun here
        self._dropped: set[str] = set()  # change sets that lost marks, until you land or mark again
        self._preview: LandPreview | None = None
        self._head = Content("")

    def compose(self) -> ComposeResult:
        yield Static("CHANGES", id="changes-title", classes="heading", markup=False)
        yield Static(id="verdict", markup=False)
        yield Files(id="files", classes="-fit")
        yield DiffView(id="diff")

    @property
    def view(self) -> DiffView:
        return self.query_one(DiffView)

    @property
    def parts(self) -> list[FilePart]:
        """What is marked to be landed; [] for all of it."""
        return diff_files.file_parts(self.view.files, self.view.marked)

    def cannot_land(self, change: ChangeSet) -> str:
        """Why `L` waits, "" when it does not: without its marks, all of a change set would land."""
        if not self.view.files or self._shown[0] != change.id:
            return "The diff is not read yet. Try again in a moment."
        if change.id in self._dropped:
            self._dropped.remove(change.id)
            lands = "what is still marked" if self.view.marked else "all of it"
            return f"The diff changed and lost hunks that you had marked. Land again to land {lands}."
        return ""

    def begin_landing(self, change: ChangeSet) -> None:
        """What is marked is being landed: its marks go with it."""
        self._begun[change.id] = self.view.marked

    def landing_refused(self, change: ChangeSet) -> None:
        """Nothing was landed: the marks stay."""
        self._begun.pop(change.id, None)

    def show(self, session: SessionView | None, change: ChangeSet | None) -> bool:
        """Show what `session` changed; False when there is nothing to show, test result included."""
        self._session, self._change = session, change
        files = change.files if change else ()
        self.query_one(Files).display = self.view.display = bool(files)
        wanted = (change.id, change.state, change.landed, files) if change else ()
        if wanted != self._shown:
            if self.view.files:
                lines = diff_files.lines(self.view.files)
                self._marked[self._shown[0]] = {mark: lines[mark] for mark in self.view.marked}
            self._shown, self._preview = wanted, None
            self.view.say("Loading…" if change else "")
            if change is not None:
                self._read(change)
        elif change is not None:
            self.view.comment(change.comments)
        self._draw()
        return change is not None or (session is not None and session.check is not None)

    @property
    def _reads(self) -> BaseScreen[None]:
        assert isinstance(self.screen, BaseScreen)
        return self.screen

    def _read(self, change: ChangeSet) -> None:
        request = self._shown

        def read(files: list[diff_files.DiffFile]) -> None:
            if self._shown != request:  # you went on to another session meanwhile
                return
            lines, before = diff_files.lines(files), self._marked.pop(change.id, {})
            marks = before.keys() - self._begun.pop(change.id, set())
            unchanged = {mark for mark in marks if lines.get(mark) == before[mark]}
            self.view.show(files, change.comments, unchanged)
            if marks - unchanged:
                self._dropped.add(change.id)
                self.app.say("The diff changed and lost hunks that you had marked. Look at the marks again.", "warning")
            self._look()

        self._reads.read(
            lambda engine: diff_files.read_files(change.files, engine.changes.diff(change.id)),
            read,
            lambda refusal: self.view.say(str(refusal)) if self._shown == request else None,
            group="diff",
        )

    @on(DiffView.Marked)
    def _marks_changed(self) -> None:
        if self._change is not None:
            self._dropped.discard(self._change.id)
        self._look()

    def _look(self) -> None:
        """Find out what landing would do, now that other parts are marked."""

        def on_preview(preview: LandPreview) -> None:
            self._preview = preview
            self._draw()

        self._preview = None
        self._draw()
        if (change := self._change) is not None and waits(change):
            parts = self.parts
            self._reads.read(
                lambda engine: engine.changes.preview_land(change.id, parts),
                on_preview,
                lambda refusal: on_preview(LandPreview(False, unsupported=(str(refusal),))),
                group="preview",
                wait=DEBOUNCE_S if parts else 0.0,
            )

    def _draw(self) -> None:
        change, session = self._change, self._session
        check = (change.check if change else None) or (session.check if session else None)
        lines = [Content.styled(change_words(change, session), "$wants" if waits(change) else "$grey")]
        if change and waits(change):
            lines += [Content.styled(text, style) for text, style in self._landing(change)]
        if change and change.note:
            lines.append(Content.styled(f"▲ {words.one_line(change.note)}", "$wants"))
        if check:
            lines.append(check_words(check))
        files = change.files if change else ()
        lines += marked_files(files, max(self.size.width - 2, 20), MAX_MARKED if self.app.size.height >= 40 else 2)
        if self.unsent:
            key = shown_key("work.send_comments", self.app.keymap)
            lines.append(Content.assemble((key, "$accent"), " send comments to the agent"))
        head = Content("\n").join([*lines, Content("")])
        if not head.is_same(self._head):
            self._head = head
            self.query_one("#verdict", Static).update(head)
        shown = self.view.files or [diff_files.DiffFile(file, [], [], True) for file in files]
        self.query_one(Files).show(diff_files.tree_rows(shown, self.view.marked))

    def _landing(self, change: ChangeSet) -> list[tuple[str, str]]:
        """What landing would do, in words with their style."""
        lines = []
        if parts := self.parts:
            hunks = sum(len(part.hunks) for part in parts)
            some = f", some only in part ({words.count(hunks, 'hunk')})" if hunks else ""
            text = f"● {len(parts)} of {words.count(len(change.files), 'file')} marked{some}: only these land"
            lines.append((text, "$accent"))
        preview, place = self._preview, words.workspace_name(change.workspace)
        if preview is None:
            return lines
        if preview.clean:
            text = f"Landing changes {words.count(preview.files, 'file')} in {place}; HEAD and index stay"
            return [*lines, (text, "$grey")]
        for wrong, paths in (
            ("you changed the same lines in", preview.conflicts),
            ("in the way:", preview.in_the_way),
            ("cannot be landed:", preview.unsupported),
        ):
            if paths:
                more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
                lines.append((f"✗ {wrong} {', '.join(paths[:3])}{more}", "$wrong"))
        return lines

    @property
    def unsent(self) -> bool:
        """Whether there are comments that can go to the agent that made the changes."""
        sends = self._session is not None and self._session.flow is None and self._session.state.over
        return sends and self._change is not None and any(not comment.sent for comment in self._change.comments)

    @on(DiffView.Moved, "#diff")
    def _follow(self) -> None:
        self.query_one(Files).select(self.view.path)

    @on(Files.Marked)
    def _mark(self, message: Files.Marked) -> None:
        path = message.path
        inside = path if path.endswith("/") else f"{path}/"
        chosen = [file for file in self.view.files if file.change.path == path or file.change.path.startswith(inside)]
        self.view.mark(set().union(*(item.marks for item in chosen)))

    @on(Rows.Opened, "#files")
    def _open(self, message: Rows.Opened) -> None:
        self.view.go_to_file(message.row_id)
        self.view.focus()

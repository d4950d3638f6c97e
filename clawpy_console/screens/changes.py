"""The change set of a session: its files as a tree, its diff, what landing it does, and its landing (SPEC 3.9, 9.4).

`Changes` is the right half of the work screen, which calls `show` for the session under the cursor and `operate` for a
key. It remembers marks, landings and operations by change set, so that going to another session loses none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual import getters, on
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message

from clawpy_console import formats
from clawpy_console.fields.cards import describe_open_comments
from clawpy_console.formats import one_line, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens import diff, find_base_screen
from clawpy_console.screens.dialog import confirm
from clawpy_console.screens.diff_view import DiffView
from clawpy_console.widgets import Pane, Rows
from clawpy_console.widgets.session import describe_change_set, describe_check, is_waiting_to_land, make_file_warnings
from clawpy_console.widgets.texts import Heading, PlainText
from engine.model import ChangeSet, ChangeState, FileChange, FilePart, LandPreview, Refusal, SessionView
from engine.wording import join_names

if TYPE_CHECKING:
    from clawpy_console.console import Console, EngineCall


class Files(Rows):
    """The tree of files. Space marks a file or a folder."""

    BINDINGS = make_bindings("changes")

    @dataclass
    class Marked(Message):
        """The operator marked the row of `path`, a folder where it ends in a slash."""

        path: str

    can_mark = True
    """Whether the change set can still be landed."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can_mark if action == "mark_file" else super().check_action(action, parameters)

    def action_mark_file(self) -> None:
        if self.current:
            self.post_message(self.Marked(self.current))


class _DiffVersion(NamedTuple):
    """The values of a change set on which its diff depends. When one of them changes, the diff is read again."""

    change_id: str
    state: ChangeState
    landed: int
    files: tuple[FileChange, ...]


MAX_NAMED_FILES = 3
"""Maximum number of files that a sentence names."""

MAX_WARNINGS = 8
"""Maximum number of warnings about files, above the list, on a terminal that is not small."""

PREVIEW_DEBOUNCE_S = 0.2
"""Seconds without another mark until what landing would do is computed."""


MarkedLines = dict[diff.Mark, str]
"""The lines of the diff that each mark was made on."""


class MarkMemory:
    """The marks of change sets whose diff is not shown, and those that were landed.

    A mark stays when the diff is read again, if its lines are still the same. If not, it is lost.
    """

    def __init__(self) -> None:
        self.with_lost_marks: set[str] = set()
        """The ids of change sets that lost marks, until the operator lands or marks again."""
        self._waiting: dict[str, MarkedLines] = {}
        """By the id of the change set."""
        self._landed: dict[tuple[str, int], MarkedLines] = {}
        """By the id of the change set and the number of its earlier landings."""

    def remember(self, change_id: str, marked_lines: MarkedLines) -> None:
        self._waiting[change_id] = marked_lines

    def restore(self, change_id: str, lines: Mapping[diff.Mark, str]) -> tuple[set[diff.Mark], bool]:
        """The marks of a change set that stay, now that its diff has these lines, and whether others were lost."""
        marked_lines = self._waiting.pop(change_id, {})
        unchanged = {mark for mark, marked in marked_lines.items() if lines.get(mark) == marked}
        has_lost = len(unchanged) < len(marked_lines)
        if has_lost:
            self.with_lost_marks.add(change_id)
        return unchanged, has_lost

    def remember_landing(self, change: ChangeSet, marked_lines: MarkedLines) -> None:
        self._landed[change.id, change.landings] = marked_lines

    def take_landing(self, change: ChangeSet) -> MarkedLines | None:
        """What was marked for the landing that follows on `change`, once; None if it was not landed here."""
        return self._landed.pop((change.id, change.landings), None)


class Changes(Pane):
    """Shows the change set of one session, or that it has none; lands it, branches it, discards it and undoes that.

    A change set that lost marks (`MarkMemory`) cannot be landed until the operator marks again, or was told and lands
    again. An operation on a change set runs until the set is another than at its start. Until then no other begins.
    """

    class OperationChanged(Message):
        """An operation on a change set began, or was refused."""

    app: Console

    _files = getters.query_one(Files)
    diff_view = getters.query_one(DiffView)

    def __init__(self) -> None:
        super().__init__(id="right")
        self._change: ChangeSet | None = None
        self._session: SessionView | None = None
        self._diff_version: _DiffVersion | None = None
        """The version of the diff that is shown."""

        self._marks = MarkMemory()

        self._operations: dict[str, tuple[str, ChangeSet]] = {}
        """The last operation on each change set, by its id, and the set as it was at its start."""

        self._preview: LandPreview | None = None

    def compose(self) -> ComposeResult:
        yield Heading("CHANGES", id="changes-title")
        yield PlainText(id="verdict")
        yield Files(id="files", classes="-fit")
        yield DiffView()

    def on_resize(self) -> None:
        self._draw()

    @property
    def parts(self) -> list[FilePart]:
        """The parts that are marked to be landed; [] for the whole change set."""
        return diff.select_parts(self.diff_view.files, self.diff_view.marked)

    def show(self, session: SessionView | None, change: ChangeSet | None) -> bool:
        """Show the change set of `session`. False when there is nothing to show, not even a test result."""
        self._session = session
        self._change = change
        files = change.files if change else ()
        self._files.display = self.diff_view.display = bool(files)
        self._files.can_mark = self.diff_view.can_mark = is_waiting_to_land(change)
        version = _DiffVersion(change.id, change.state, change.landed, files) if change else None
        if version != self._diff_version:
            if self._diff_version is not None and self.diff_view.files:
                self._marks.remember(self._diff_version.change_id, self._read_marked_lines())
            self._diff_version = version
            self._preview = None
            self.diff_view.show_message("Loading…" if change else "")
            if change is not None:
                self._read_diff(change)
        elif change is not None:
            self.diff_view.show_comments(change.comments)
        self._draw()
        return change is not None or (session is not None and session.check is not None)

    def _read_marked_lines(self) -> MarkedLines:
        lines = diff.read_lines_by_mark(self.diff_view.files)
        return {mark: lines[mark] for mark in self.diff_view.marked}

    def _has_diff_of(self, change: ChangeSet) -> bool:
        return self._diff_version is not None and self._diff_version.change_id == change.id

    def _read_diff(self, change: ChangeSet) -> None:
        """Read the diff and show it. Marks stay on hunks whose lines are the same; the operator is told of others."""
        version = self._diff_version

        def on_files(files: list[diff.DiffFile]) -> None:
            if self._diff_version != version:  # another session is shown by now
                return
            marks, has_lost_marks = self._marks.restore(change.id, diff.read_lines_by_mark(files))
            self.diff_view.show(files, change.comments, marks)
            if has_lost_marks:
                self.app.show_toast(
                    "The diff changed and lost hunks that you had marked. Look at the marks again.", "warning"
                )
            self._read_preview()

        find_base_screen(self).read(
            lambda engine: diff.read_files(change.files, engine.changes.read_diff(change.id)),
            on_files,
            lambda refusal: self.diff_view.show_message(str(refusal)) if self._diff_version == version else None,
            group="diff",
        )

    @on(DiffView.Marked)
    def _on_marks_changed(self) -> None:
        if self._change is not None:
            self._marks.with_lost_marks.discard(self._change.id)
        self._read_preview()

    def _read_preview(self) -> None:
        """Read what landing would do with the marks as they are."""
        version = self._diff_version

        def on_preview(preview: LandPreview) -> None:
            if self._diff_version == version:
                self._preview = preview
                self._draw()

        self._preview = None
        self._draw()
        if (change := self._change) is not None and is_waiting_to_land(change):
            parts = self.parts
            find_base_screen(self).read(
                lambda engine: engine.changes.preview_land(change.id, parts),
                on_preview,
                lambda refusal: on_preview(LandPreview(clean=False, unsupported=(str(refusal),))),
                group="preview",
                wait=PREVIEW_DEBOUNCE_S if parts else 0.0,
            )

    def _draw(self) -> None:
        """Draw what is known of the changes above the diff, and the tree of their files."""
        lines = [*self._make_summary_lines(self._change, self._session), Content("")]
        self.query_one("#verdict", PlainText).replace(Content("\n").join(lines))
        files = self._change.files if self._change else ()
        shown = self.diff_view.files or [diff.DiffFile(file, [], [], all_or_nothing=True) for file in files]
        self._files.show(diff.make_tree_rows(shown, self.diff_view.marked))

    def _make_summary_lines(self, change: ChangeSet | None, session: SessionView | None) -> list[Content]:
        """What landing the changes would do, how they were tested, and what to look at."""
        check = (change.check if change else None) or (session.check if session else None)
        lines = [
            Content.styled(describe_change_set(change, session), "$wants" if is_waiting_to_land(change) else "$grey")
        ]
        if change and is_waiting_to_land(change):
            lines += [Content.styled(text, style) for text, style in self._make_preview_lines(change)]
        if change and change.note and change.state is not ChangeState.DISCARDED:
            lines.append(Content.styled(f"▲ {one_line(change.note)}", "$wants"))
        if check:
            lines.append(describe_check(check))
        width = max(self.size.width - 2, 20)
        limit = MAX_WARNINGS if self.app.size.height >= 40 else 2
        lines += make_file_warnings(change.files if change else (), width, limit)
        if self.has_comments_to_send:
            key = find_base_screen(self).key_of("work.send_comments")
            lines.append(Content.assemble((key, "$accent"), " send comments to the agent"))
        return lines

    def _make_preview_lines(self, change: ChangeSet) -> list[tuple[str, str]]:
        """The effect of landing, as lines with their style."""
        lines = []
        if parts := self.parts:
            hunks = sum(len(part.hunks) for part in parts)
            in_part = f", some only in part ({formats.count(hunks, 'hunk')})" if hunks else ""
            text = f"● {len(parts)} of {formats.count(len(change.files), 'file')} marked{in_part}: only these land"
            if change.check and (hunks or len(parts) < len(change.files)):
                text = f"{text}, not tested alone"
            lines.append((text, "$accent"))
        preview = self._preview
        if preview is None or not change.landable_files:
            return lines
        if preview.clean:
            files = formats.count(preview.files, "file")
            text = f"Landing changes {files} in {workspace_name(change.workspace)}; HEAD and index stay"
            return [*lines, (text, "$grey")]
        for problem, paths in (
            ("you changed the same lines in", preview.conflicts),
            ("in the way:", preview.in_the_way),
            ("cannot be landed:", preview.unsupported),
        ):
            if paths:
                lines.append((f"✗ {problem} {join_names(paths, MAX_NAMED_FILES)}", "$wrong"))
        return lines

    @property
    def has_comments_to_send(self) -> bool:
        """Whether there are comments that can be sent to the agent that made the changes."""
        session = self._session
        change = self._change
        if session is None or change is None or session.flow is not None or not session.state.is_over:
            return False
        return any(not comment.sent for comment in change.comments)

    @on(DiffView.Moved, "#diff")
    def _select_file(self) -> None:
        entry = self.diff_view.current
        self._files.select(entry.file.change.path if entry else "")

    @on(Files.Marked)
    def _mark_file(self, message: Files.Marked) -> None:
        place = f"{message.path.removesuffix('/')}/"
        files = [file for file in self.diff_view.files if f"{file.change.path}/".startswith(place)]
        self.diff_view.toggle_marks(set().union(*(file.marks for file in files)))

    @on(Rows.Opened, "#files")
    def _go_to_file(self, message: Rows.Opened) -> None:
        self.diff_view.go_to_file(message.row_id)
        self.diff_view.focus()

    # Operations

    def offers(self, name: str, change: ChangeSet) -> bool:
        """Whether the key of an operation can do something, or say that another one runs; see `operate`."""
        if self._find_operation(change):
            return True
        return bool(change.landings) if name == "undo" else is_waiting_to_land(change)

    def operate(self, name: str, change: ChangeSet) -> None:
        """`land`, `branch` or `discard` a change set, or `undo` its last landing; only says so while an operation on it
        still runs."""
        if operation := self._find_operation(change):
            self.app.show_toast(f"{operation} is still running. Try again in a moment.", "warning")
            return
        operations = {"land": self._land, "branch": self._branch, "discard": self._discard, "undo": self._undo}
        operations[name](change)

    def _land(self, change: ChangeSet) -> None:
        """Land the marked hunks, or all changes. Marks that the diff has lost are reported first."""
        if self._refuse_landing(change):
            return
        if self._find_refused_files(change):
            self._mark_landable_files(change, "Nothing was landed")
            return
        parts = self.parts
        self._marks.remember_landing(change, self._read_marked_lines())
        self.diff_view.marked = set()

        def restore_marks() -> None:
            marked_lines = self._marks.take_landing(change) or {}
            if self._has_diff_of(change):
                self.diff_view.toggle_marks(marked_lines.keys() - self.diff_view.marked)

        undo_hint = f" Undo: {find_base_screen(self).key_of('work.undo')}"
        self._carry_out(
            "landing",
            change,
            lambda engine: engine.changes.land(change.id, parts),
            lambda landed: describe_landing(change, landed, parts) + undo_hint,
            restore_marks,
        )

    def _refuse_landing(self, change: ChangeSet) -> bool:
        """Whether `change` cannot be landed yet, which is said. Lost marks are said once: all of it would land without
        them."""
        if not self.diff_view.files or not self._has_diff_of(change):
            self.app.show_toast("The diff is not read yet. Try again in a moment.", "warning")
            return True
        if change.id in self._marks.with_lost_marks:
            self._marks.with_lost_marks.discard(change.id)
            lands = "what is still marked" if self.diff_view.marked else "all of it"
            lost = "The diff changed and lost hunks that you had marked"
            self.app.show_toast(f"{lost}. Land again to land {lands}.", "warning")
            return True
        return False

    def _find_refused_files(self, change: ChangeSet) -> list[FileChange]:
        """The files that keep what is marked, or all of `change`, from being landed."""
        if marked_paths := {part.path for part in self.parts}:
            return [file for file in change.files if file.path in marked_paths and not file.can_land]
        refused = [file for file in change.files if file.refused]
        return refused if change.landable_files else list(change.files)

    def _mark_landable_files(self, change: ChangeSet, consequence: str) -> None:
        """Mark what can be landed of what is marked, else of all of `change`. Say what is wrong, after the
        `consequence`, and the next step."""
        refused = self._find_refused_files(change) or [file for file in change.files if file.refused]
        landable = set().union(*(file.marks for file in self.diff_view.files if file.change.can_land))
        if marks := self.diff_view.marked & landable or landable:
            self.diff_view.marked = set()
            self.diff_view.toggle_marks(marks)
        next_step = self._describe_next_step(len({path for path, _ in marks}))
        self.app.show_toast(f"{_explain_refused_files(refused, consequence)} {next_step}", "warning")

    def _describe_next_step(self, marked_files: int) -> str:
        """What to do beside files that cannot be landed, when so many others are marked."""
        key_of = find_base_screen(self).key_of
        if marked_files:
            others, them = ("The other file is", "it") if marked_files == 1 else ("The other files are", "them")
            return f"{others} marked: {key_of('work.land')} lands {them}."
        source = f" from {self._session.cwd}" if self._session and not self._session.gone else ""
        return f"Copy what you need{source}, then {key_of('work.discard')} discards them."

    def _branch(self, change: ChangeSet) -> None:
        """Commit the changes to a new branch."""
        if any(file.refused for file in change.files) and self.diff_view.files and self._has_diff_of(change):
            self._mark_landable_files(change, "No branch was made")
            return
        self._carry_out(
            "branching",
            change,
            lambda engine: engine.changes.branch(change.id),
            lambda result: f"Committed to {result.branch}. The commit is not signed, and no hooks ran.",
        )

    def _discard(self, change: ChangeSet) -> None:
        """Discard the changes, after a question."""
        files = formats.count(len(change.files), "changed file")
        question = f"{files} of “{one_line(change.title)}” will be deleted. This cannot be undone."
        discard = partial(
            self._carry_out,
            "discarding",
            change,
            lambda engine: engine.changes.discard(change.id),
            lambda _: "Discarded.",
        )
        confirm(self.app, "Discard the changes?", question, "discard", discard, risky=True)

    def _undo(self, change: ChangeSet) -> None:
        """Undo the last landing. What it had landed is marked again, where that is known."""

        def describe(undone: ChangeSet) -> str:
            marked_lines = self._marks.take_landing(undone)
            if marked_lines is not None:
                self._marks.remember(undone.id, marked_lines)
                if self._has_diff_of(undone):
                    self._diff_version = None  # it is read again, and then marked
            is_known = marked_lines is not None or change.state is ChangeState.LANDED
            lands = "it again" if is_known else f"all that waits: {formats.count(len(undone.landable_files), 'file')}"
            return f"Landing undone. {find_base_screen(self).key_of('work.land')} lands {lands}."

        self._carry_out("undo", change, lambda engine: engine.changes.undo(change.id), describe)

    def _find_operation(self, change: ChangeSet) -> str:
        """The operation that runs on `change`, "" for none. A comment that is added meanwhile does not end it."""
        name, before = self._operations.get(change.id, ("", change))
        return name if replace(before, comments=change.comments) == change else ""

    def _carry_out(
        self,
        name: str,
        change: ChangeSet,
        call: EngineCall[ChangeSet],
        describe: Callable[[ChangeSet], str],
        on_refused: Callable[[], object] = lambda: None,
    ) -> None:
        """Carry out the operation `name` on `change`; `describe` puts its result into words."""

        def on_refusal(refusal: Refusal) -> None:
            self._operations.pop(change.id, None)
            on_refused()
            self.app.show_toast(refusal, "error")
            self.post_message(self.OperationChanged())

        self._operations[change.id] = name, change
        self.post_message(self.OperationChanged())
        self.app.call_engine(
            call, lambda result: self.app.report(describe(result), "changes", "sessions", "cards", "place"), on_refusal
        )


def _explain_refused_files(refused: Sequence[FileChange], consequence: str) -> str:
    names = [f"{file.path} ({file.refused or file.note})" for file in refused]
    return f"{consequence}, because these cannot be landed: {join_names(names, MAX_NAMED_FILES)}."


def describe_landing(change: ChangeSet, landed: ChangeSet, parts: Sequence[FilePart]) -> str:
    """What landing `parts` of `change`, by default all of it, has done. `landed` is the change set after that."""
    comments = describe_open_comments([bool(comment.sent) for comment in change.comments])
    open_comments = f" {comments}." if comments else ""
    is_partial = landed.state is not ChangeState.LANDED
    waiting = f" The rest waits: {formats.count(len(landed.files), 'file')}." if is_partial else ""
    is_in_hunks = bool(parts) and all(part.hunks for part in parts)
    hunks = f"{formats.count(sum(len(part.hunks) for part in parts), 'hunk')} in " if is_in_hunks else ""
    return f"Landed {hunks}{formats.count(len(parts or change.landable_files), 'file')}.{waiting}{open_comments}"

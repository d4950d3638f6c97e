"""The task board: the operator's tasks, the tasks of heartbeats and of files, and one task for each session (SPEC 9.3).

When a session starts, the task of its card is running; a card without a task gets one. When the session ends, the task
is done, failed, or open again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlmodel import Field, Session

from engine.events.work import TaskAdded, TaskChanged
from engine.frozen import frozen
from engine.model import Refusal, Result, SessionView, Status, Task, TaskState
from engine.prediction.card_rows import CardRow
from engine.randomness import Randomness
from engine.redaction import redact, refuse_secret
from engine.storage import Row, ask, find_by_prefix, load, load_all, read_all, state, value_of
from engine.storage.database import Database, Transaction
from engine.text import read_markdown_lines, sanitise

LAST_FILE_TASKS = "tasks.written"
"""Key in the state table: the [workspace, title] of each task that was open in the files of `tasksDir` last time."""

MAX_TITLE_CHARS = 500
"""Maximum number of characters of a title or a note."""

FILE, HEARTBEAT, HEARTBEAT_ORDER = "file", "heartbeat", "order"
"""Sources of tasks besides the operator and sessions."""

ITEM_REMOVED = "its item was ticked or removed from heartbeat.md"
"""The note of a heartbeat task that is done because its item is gone. The task opens again if the item comes back."""


class TaskRow(Row, table=True):
    """One task. `source` is "operator", "file" (a file of `tasksDir`), "heartbeat", "order" (an item of a heartbeat
    that runs by itself) or "session"."""

    __tablename__ = "tasks"
    id: str = Field(primary_key=True)
    title: str
    state: TaskState = TaskState.OPEN
    channel: str = ""
    workspace: str = ""
    source: str = "operator"
    created_at: datetime
    updated_at: datetime
    session_id: str | None = None
    note: str = ""
    needs: list[str] = Field(default_factory=list)
    """The ids of the tasks that must be done before this one. They are older, so there are no circles."""


_WHERE_OF_HEARTBEATS = f"""
    WHERE source IN ('{HEARTBEAT}', '{HEARTBEAT_ORDER}') AND (state = '{TaskState.OPEN}' OR note = '{ITEM_REMOVED}')
"""
"""Selects the tasks of heartbeats that are open, or done because their item is gone."""

_SELECT_OFFERS = (
    f"SELECT 1 FROM predictions WHERE task_id = :task AND status IN ('{Status.PENDING}', '{Status.APPROVED}')"
)
"""Whether a card that is pending or approved is about a task."""

_WHERE_OF_FILES = f"WHERE source = '{FILE}'"
"""Selects the tasks of files."""

_WHERE_NEEDS = """WHERE instr(needs, '"' || :task || '"')"""
"""Selects the tasks that need a task."""

FileTask = tuple[str, str]
"""The workspace and the title of a task in a file."""


@frozen
class TaskBoard:
    """The service `engine.tasks`: the task board of one home. `CardRow.task_id` is the task of a card."""

    database: Database
    randomness: Randomness

    def list(self, *, workspace: str | None = None, state: str | None = None, limit: int = 100) -> list[Task]:
        """The tasks: those that are not over before the others, and of these the one changed last first. A task
        without a workspace belongs to every workspace."""
        conditions = ["TRUE"]
        if workspace is not None:
            conditions.append("workspace IN (:workspace, '')")
        if state is not None:
            conditions.append("state = :state")
        clauses = f"""
            WHERE {" AND ".join(conditions)}
            ORDER BY state IN ('{TaskState.DONE}', '{TaskState.FAILED}'), updated_at DESC, id DESC LIMIT :limit
        """
        values = {"workspace": workspace, "state": state, "limit": limit}
        with self.database.read() as session:
            return _make_tasks(session, read_all(session, TaskRow, clauses, values))

    def get(self, task_id: str) -> Task:
        """The task with this id, or with an id that begins so. Raises `Refusal` `unknown_task`, `ambiguous_id`."""
        with self.database.read() as session:
            row = find_by_prefix(session, TaskRow, task_id, noun="task", verb="clawpy tasks list")
            return _make_tasks(session, [row])[0]

    def list_needing(self, task_id: str) -> Sequence[Task]:
        """The tasks that need this one done first."""
        with self.database.read() as session:
            return _make_tasks(session, read_all(session, TaskRow, _WHERE_NEEDS, {"task": task_id}))

    def add(self, title: str, *, channel: str = "", workspace: str = "", needs: Sequence[str] = ()) -> Task:
        """Add an open task of the operator; the tasks `needs` (ids or prefixes) must be done first.

        Raises `Refusal` `bad_title`, `secret_in_text`, and as `get`.
        """
        clean_title = refuse_secret(sanitise(title).strip())
        if not clean_title or len(clean_title) > MAX_TITLE_CHARS:
            raise Refusal("bad_title", f"a title must have 1 to {MAX_TITLE_CHARS} characters", "say what to do")
        prerequisite_ids = list(dict.fromkeys(self.get(need).id for need in needs))

        def insert(tx: Transaction) -> Task:
            row = self._add(tx, clean_title, "operator", channel=channel, workspace=workspace, needs=prerequisite_ids)
            return _make_tasks(tx.session, [row])[0]

        return self.database.write(insert)

    def add_heartbeat_task(
        self, tx: Transaction, title: str, *, since: datetime, channel: str, workspace: str, run: bool
    ) -> str:
        """Add an open task for an item of a heartbeat (SPEC 4.1) that is due `since` then, and may `run` by itself.
        Returns its id."""
        source = HEARTBEAT_ORDER if run else HEARTBEAT
        return self._add(tx, _shorten(title), source, channel=channel, workspace=workspace, created_at=since).id

    def has_heartbeat_tasks(self) -> bool:
        """Whether a heartbeat made tasks that are open, or done because their items are gone."""
        with self.database.read() as session:
            return bool(read_all(session, TaskRow, _WHERE_OF_HEARTBEATS))

    def update_from_heartbeats(self, tx: Transaction, items: Mapping[str, bool], *, all_read: bool) -> None:
        """Update the tasks of heartbeats from the present pages.

        `items` has the id of the last task of each item, and whether the item runs by itself. A task whose item is gone
        is done, but only if `all_read`: all pages could be read. It opens again if the item comes back."""
        for row in load_all(tx.session, TaskRow, _WHERE_OF_HEARTBEATS):
            source = HEARTBEAT_ORDER if items.get(row.id) else HEARTBEAT
            if row.source != source:
                row.source = source
            if row.id in items and row.state == TaskState.DONE:
                self._change(tx, row, TaskState.OPEN, "")
            elif row.id not in items and row.state == TaskState.OPEN and all_read:
                self._change(tx, row, TaskState.DONE, ITEM_REMOVED)

    def update_from_files(self, folder: Path, workspaces: Mapping[str, str]) -> None:
        """Update the tasks from the files of `tasksDir`.

        A line `- [ ] words` in a `*.md` file is an open task. The task is done if the box is checked or the line is
        gone, and open again if the box is unchecked or the line is back. The tasks of `shop.md` belong to the workspace
        `workspaces["shop"]`, as `name_workspaces` returns them; without such a workspace they belong to none.

        Raises OSError or ValueError, which name the file, if one cannot be read; then nothing changes.
        """
        in_files = _read_task_files(folder, workspaces)
        present = set(in_files)
        with self.database.read() as session:
            before = state.get(session, LAST_FILE_TASKS)
            stored = {(row.workspace, row.title): row.state for row in read_all(session, TaskRow, _WHERE_OF_FILES)}
        new = [task for task in in_files if task not in stored]
        # A task that was done on the board stays done while the files do not change.
        last = present if before is None else {(workspace, title) for workspace, title in before}
        finished = [task for task, its_state in stored.items() if its_state == TaskState.OPEN and task not in present]
        reopened = [task for task in in_files if stored.get(task) == TaskState.DONE and task not in last]
        states = dict.fromkeys(finished, TaskState.DONE) | dict.fromkeys(reopened, TaskState.OPEN)
        after = [list(task) for task in sorted(in_files)]

        def apply(tx: Transaction) -> None:
            for row in load_all(tx.session, TaskRow, _WHERE_OF_FILES):
                new_state = states.get((row.workspace, row.title))
                if new_state and row.state != TaskState.RUNNING:  # a session may have started it since
                    self._change(tx, row, new_state, "")
            for workspace, title in new:
                self._add(tx, title, FILE, workspace=workspace)
            state.put(tx, LAST_FILE_TASKS, after)

        if new or finished or after != before:
            self.database.write(apply)

    def make_room_for_next(self, tx: Transaction, task_id: str) -> bool:
        """Make room for the next task of a heartbeat's item. A task that was tried without success, and that no card
        offers and no open task needs, fails for that. Returns whether there is room, as there is if the task is unknown
        or over."""
        row = load(tx.session, TaskRow, task_id)
        if row is None or row.state not in (TaskState.OPEN, TaskState.RUNNING):
            return True
        was_tried = row.state == TaskState.OPEN and row.session_id is not None
        if not was_tried or ask(tx.session, _SELECT_OFFERS, {"task": task_id}):
            return False
        if read_all(
            tx.session, TaskRow, f"{_WHERE_NEEDS} AND state = :open", {"task": task_id, "open": TaskState.OPEN}
        ):
            return False  # they would wait for a task that nothing does any more
        self._change(tx, row, TaskState.FAILED, row.note)
        return True

    def finish(self, task_id: str) -> Task:
        """Mark a task as done. Raises `Refusal`: `unknown_task`, or `task_running` while a session works on it."""
        full_id = self.get(task_id).id

        def set_done(tx: Transaction) -> Task:
            row = tx.session.get_one(TaskRow, full_id)  # tasks are never deleted
            if row.state == TaskState.RUNNING:
                raise Refusal(
                    "task_running", f"{row.id} is being worked on", "stop its session, or wait until it finishes"
                )
            self._change(tx, row, TaskState.DONE, "")
            return _make_tasks(tx.session, [row])[0]

        return self.database.write(set_done)

    def session_started(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions: set the card's task to running, or add one."""
        card = load(tx.session, CardRow, view.prediction_id)
        row = load(tx.session, TaskRow, card.task_id) if card and card.task_id else None
        if row is not None:
            row.session_id = view.id
            self._change(tx, row, TaskState.RUNNING, "")
            return
        row = self._add(
            tx,
            _shorten(view.prompt) or view.id,
            "session",
            channel=view.channel,
            workspace=view.workspace,
            state=TaskState.RUNNING,
            session_id=view.id,
        )
        if card is not None:
            card.task_id = row.id

    def session_ended(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions: the task is done if the session succeeded. A check that found a problem does not finish
        its task, because other tasks may need it. A task that no session made stays open until it succeeds."""
        clauses = "WHERE session_id = :session AND state = :state"
        running = load_all(tx.session, TaskRow, clauses, {"session": view.id, "state": TaskState.RUNNING})
        if not running:
            return  # it ended before it started
        row = running[0]
        if view.result is Result.SUCCEEDED:
            self._change(tx, row, TaskState.DONE, view.summary)
        else:
            state = TaskState.FAILED if row.source == "session" else TaskState.OPEN
            outcome = view.outcome if view.result is Result.FAILED else view.state.value
            self._change(tx, row, state, f"{outcome}: {view.error or view.summary}")

    def _add(self, tx: Transaction, title: str, source: str, **columns: Any) -> TaskRow:
        """Add a task from this source. `columns` are its other columns; it is open if they give no state."""
        row = TaskRow(
            id=self.randomness.new_id("task"),
            title=title,
            source=source,
            **{"created_at": tx.now, "updated_at": tx.now} | columns,
        )
        tx.insert(row)
        tx.record(TaskAdded(subject=row.id, workspace=row.workspace, title=title))
        return row

    def _change(self, tx: Transaction, row: TaskRow, state: TaskState, note: str) -> None:
        """Set the note of a task, and its state if that differs."""
        row.note = sanitise(note)[:MAX_TITLE_CHARS]
        if row.state == state:
            return
        row.state = state
        row.updated_at = tx.now
        tx.record(TaskChanged(subject=row.id, workspace=row.workspace, state=state))


def name_workspaces(watched: Sequence[str], checked_before: Iterable[str] = ()) -> dict[str, str]:
    """The workspaces by the names of their folders: those that this engine watches, and those that were checked before,
    the last one of a name. Without the latter, a task would move to another workspace while its own is not watched. ""
    for a name of several watched workspaces."""
    counts = Counter(Path(path).name for path in watched)
    names = {Path(path).name: path if counts[Path(path).name] == 1 else "" for path in watched}
    return {Path(path).name: path for path in checked_before} | names


def _read_task_files(folder: Path, workspaces: Mapping[str, str]) -> list[FileTask]:
    """The open tasks in the files of `folder`, in order and each once."""
    open_tasks: list[FileTask] = []
    for file in sorted(folder.iterdir()):
        if file.suffix == ".md" and file.is_file():
            try:
                text = file.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError as error:
                raise ValueError(f"{file.name} is not UTF-8") from error
            for line in read_markdown_lines(text):
                title = redact(sanitise(line.text).strip())[:MAX_TITLE_CHARS]
                if line.mark == " " and title:
                    open_tasks.append((workspaces.get(file.stem, ""), title))
    return list(dict.fromkeys(open_tasks))


def _shorten(text: str) -> str:
    """A text as the title of a task."""
    return sanitise(text).strip()[:MAX_TITLE_CHARS]


def _make_tasks(session: Session, rows: Sequence[TaskRow]) -> list[Task]:
    """The tasks of these rows, each with the tasks that it waits for."""
    needed = {need for row in rows for need in row.needs}
    query = "SELECT id FROM tasks WHERE id IN (SELECT value FROM json_each(:needed)) AND state <> :done"
    undone = {id for (id,) in ask(session, query, {"needed": needed, "done": TaskState.DONE})} if needed else set()
    return [
        value_of(row, Task, needs=tuple(row.needs), waits_for=tuple(need for need in row.needs if need in undone))
        for row in rows
    ]

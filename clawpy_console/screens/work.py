"""Screen 2, work: sessions, what they do, what they changed, and what becomes of it (SPEC 9.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import formats
from clawpy_console.formats import one_line
from clawpy_console.keys import bindings
from clawpy_console.screens.changes import Changes, describe_landing
from clawpy_console.screens.dialog import confirm
from clawpy_console.screens.own_prompt import write_own_prompt
from clawpy_console.screens.session_actions import PermissionPane, ReplyLine, SessionActions
from clawpy_console.state import SESSIONS_PER_PAGE
from clawpy_console.widgets.frame import Columns, Filter, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows, group_rows
from clawpy_console.widgets.session import is_waiting_to_land, make_heading_lines, make_session_row
from clawpy_console.widgets.transcript import Transcript
from engine.model import ChangeSet, ChangeState, ModelCall, Refusal, SessionState, SessionView

if TYPE_CHECKING:
    from engine import Engine

OLDER = "=older"
"""The id of the row that lists older sessions."""

ASKING, TO_LAND = "ASKING YOU", "WAITING TO LAND"
"""The headings of the sessions that wait for you."""

WAITING_MARKS = {ASKING: "▲", TO_LAND: "▼"}
"""The signs of the sessions below them."""

CHANGE_ACTIONS = frozenset({"land", "branch", "discard", "undo"})
"""Actions that do something with a change set."""


SessionGroups = dict[str, list[SessionView]]
"""Sessions by the headings of the list."""


class WorkScreen(SessionActions):
    """Sessions left, transcript in the middle, the diff right; above them the permission that the session asks for."""

    MODE = "work"
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS = bindings("asked", "work", "columns", "filter")
    PANES = {
        "sessions": "left", "transcript": "middle", "files": "right", "diff": "right", "asked-detail": "",
    }  # fmt: skip
    FILTER_PANE = "sessions"

    _rows = getters.query_one("#sessions", Rows)
    _transcript = getters.query_one("#transcript", Transcript)
    _changes = getters.query_one(Changes)

    def __init__(self) -> None:
        super().__init__()
        self._session_to_select = ""  # as soon as it is listed: the id of a session or of its card
        self._is_opening = True  # the cursor is not yet where the screen opens
        self._initial_session = ""  # the session that the screen opened on
        self._keeps_cursor = False  # the operator moved it to another session
        self._oldest_listed = ""  # the oldest session in the list when the operator asked for older ones
        self._calls: tuple[ModelCall, ...] = ()  # of the session under the cursor
        self._calls_session: SessionView | None = None  # the session as it was when its calls were read
        self._viewed: set[str] = set()  # sessions that ran by themselves and were looked at
        self._operations: dict[str, tuple[str, ChangeSet]] = {}  # by change set: the last, and the set as it was

    def compose_body(self) -> ComposeResult:
        yield Columns(id="tabs")
        yield PermissionPane(id="asked")
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static("SESSIONS", id="sessions-title", classes="heading", markup=False)
                yield Filter("prompt, channel, state")
                yield Rows(id="sessions", empty="Nothing has run yet.")
            with Vertical(id="middle", classes="pane"):
                yield ReflowingText(id="about")
                yield Transcript(id="transcript")
            yield Changes(id="right", classes="pane")
        yield ReplyLine(id="reply")

    @property
    def session(self) -> SessionView | None:
        return self._rows.find(self.state.sessions)

    @property
    def change(self) -> ChangeSet | None:
        """The change set of the session under the cursor."""
        session = self.session
        return self.state.change_of(session) if session else None

    def show(self, session_id: str) -> None:
        """Put the cursor on this session, now or as soon as it is listed."""
        self._select_when_listed(session_id)
        self._draw_sessions()

    def _select_when_listed(self, session_or_card_id: str) -> None:
        self._session_to_select, self._keeps_cursor = session_or_card_id, True
        self.app.cards.last_approved_id = ""

    # Drawing

    def on_screen_resume(self) -> None:
        self._is_opening = True
        if card_id := self.app.cards.last_approved_id:
            self._select_when_listed(card_id)
        if self._complete:
            self._draw_sessions()

    def make_column_titles(self) -> Mapping[str, str]:
        files = len(self.change.files) if self.change else 0
        return {"left": "sessions", "middle": "transcript", "right": f"changes {files}" if files else "changes"}

    def draw(self, changed: frozenset[str]) -> None:
        if not changed or changed & {"sessions", "changes", "permissions"}:
            self._draw_session()

    def draw_times(self) -> None:
        self._draw_sessions()
        self._draw_about()
        self._draw_asked()

    def _draw_sessions(self) -> None:
        """Draw the list, and put its cursor where that was asked for."""
        groups, sessions = self._group_sessions(), self.state.sessions
        self._rows.show(self._make_session_rows(groups), empty="No match." if self.filter_words else None)
        self._select_waiting_session(groups)
        self._select_requested_session()
        total = f"{len(sessions)}{'+' if self.state.has_older else ''}" if sessions else ""
        if total and self.filter_words:
            total = f"{sum(map(len, groups.values()))} of {total}"
        self.update_static("#sessions-title", Content.assemble("SESSIONS", (total and f"  {total}", "$grey")))

    def _select_waiting_session(self, groups: SessionGroups) -> None:
        """When the screen opens, put the cursor on the first session that waits for the operator, unless one was
        chosen."""
        if not self._is_opening or self._keeps_cursor:
            return
        self._is_opening = not self.app.greeted  # a session of the last start may wait no more
        waiting = [session.id for session in (*groups[ASKING], *groups[TO_LAND])]
        if waiting and self._rows.current not in waiting:
            self._rows.select(waiting[0])
        self._initial_session = self._rows.current

    def _select_requested_session(self) -> None:
        """Put the cursor on the session that was asked for, or on the first older one, as soon as it is listed."""
        ids = [session.id for session in self.state.sessions]
        if self._oldest_listed in ids[:-1]:
            self._session_to_select, self._oldest_listed = ids[ids.index(self._oldest_listed) + 1], ""
        for session in self.state.sessions if self._session_to_select else ():
            if self._session_to_select in (session.id, session.prediction_id):
                self._rows.select(session.id)
                self._session_to_select = ""
                break

    def _group_sessions(self) -> SessionGroups:
        """The sessions that have the words of the filter, by the headings of the list."""
        to_land = {change.session_id for change in self.state.changes if is_waiting_to_land(change)}
        asking = {request.session_id for request in self.state.permissions}
        groups: SessionGroups = {ASKING: [], "RUNNING": [], TO_LAND: [], "FINISHED": []}
        for session in self.state.sessions:
            text = f"{session.prompt} {session.channel} {session.state} {session.workspace}"
            if not has_words(text, self.filter_words):
                continue
            if session.id in asking:
                heading = ASKING
            elif not session.state.over:
                heading = "RUNNING"
            else:
                heading = TO_LAND if session.id in to_land else "FINISHED"
            groups[heading].append(session)
        return groups

    def _make_session_rows(self, groups: SessionGroups) -> list[Row]:
        """The sessions as rows, and a row that reads older ones."""
        rows = {
            heading: [
                make_session_row(
                    session, self.now, self.state.make_place_prefix(session.workspace), WAITING_MARKS.get(heading, "")
                )
                for session in sessions
            ]
            for heading, sessions in groups.items()
        }
        effect = "looks further" if self.filter_words else f"lists {SESSIONS_PER_PAGE} more"
        older = [Row(OLDER, f"older: ⏎ {effect}", "▾", style="grey")] if self.state.has_older else []
        return group_rows({**rows, "": older})

    def _draw_session(self) -> None:
        """Draw the session under the cursor: its heading, its request, its output and its changes."""
        session = self.session
        self._read_calls()
        self._draw_about()
        self._draw_asked()
        if session is None:
            self._transcript.clear(empty="Select a session.")
        else:
            self._transcript.follow(session)
            self._mark_viewed(session)
        has_changes = self._changes.show(session, self.change)
        self.set_class(not has_changes, "-no-changes")
        if self.PANES.get(self.pane) == "right" and not (self.change and self.change.files):
            self.go_to("sessions")  # what had the focus is hidden
        self.draw_columns()
        self.refresh_bindings()

    def _mark_viewed(self, session: SessionView) -> None:
        """Report that the operator looked at a session that ran by itself: only then do its changes count as kept."""
        unseen = session.mode == "autonomous" and session.state.over and session.id not in self._viewed
        if unseen and self.app.engine is not None:
            self._viewed.add(session.id)
            self.app.call_engine(lambda engine: engine.cards.mark_reviewed(session.prediction_id))

    def _draw_about(self) -> None:
        """Draw the heading of the session under the cursor."""
        session, calls, now = self.session, self._calls, self.now
        self.query_one("#about", ReflowingText).show(
            lambda width: make_heading_lines(session, calls, now, width) if session else []
        )

    def _draw_asked(self) -> None:
        """Draw the permissions that the session asks for."""
        requests = self.state.requests_of(self.session.id) if self.session else ()
        pane = self._permission_pane
        before = pane.current
        pane.show(requests)
        if before != pane.current:
            self.refresh_bindings()

    def _read_calls(self) -> None:
        """Read the calls of the session under the cursor, for its heading: again when it spent more, or ended."""
        session, before = self.session, self._calls_session
        if session is None or before is None or session.id != before.id:
            self._calls = ()
        elif (session.tokens, session.state.over) == (before.tokens, before.state.over):
            return
        self._calls_session = session
        if session is None or self.app.engine is None or session.flow is not None:
            return

        def on_calls(calls: list[ModelCall]) -> None:
            if self._calls_session is session:
                self._calls = tuple(calls)
                self._draw_about()

        self.app.call_engine(lambda engine: engine.calls.for_session(session.id), on_calls)

    @on(Rows.Moved, "#sessions")
    def _on_session_moved(self) -> None:
        self._keeps_cursor |= self._rows.current != self._initial_session
        self._draw_session()

    @on(Rows.Opened, "#sessions")
    def _on_session_opened(self, message: Rows.Opened) -> None:
        if message.row_id != OLDER:
            self._keeps_cursor = True
            self.go_to("transcript")
            return
        self._oldest_listed = self.state.sessions[-1].id
        self.app.load_older_sessions()

    def refresh_output(self, sessions: frozenset[str]) -> None:
        if self._transcript.session_id in sessions:
            self._transcript.pull()

    def apply_filter(self) -> None:
        self._draw_sessions()

    def action_own_prompt(self) -> None:
        """Write a prompt for the workspace of the session under the cursor; one that names a flow runs at once."""
        write_own_prompt(self.app, self.session.workspace if self.session else self.app.workspace_filter)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing for this session are not offered."""
        if action in CHANGE_ACTIONS and self._operation:
            return True  # the key says that an operation is running
        match action:
            case "land" | "branch" | "discard":
                return is_waiting_to_land(self.change)
            case "undo":
                return self.change is not None and bool(self.change.landings)
            case "send_comments":
                return self._changes.has_comments_to_send
            case "stop":
                return self.session is not None and not self.session.state.over
            case "answer":
                return bool(self._permission_pane.requests)
            case "next_request":
                return len(self._permission_pane.requests) > 1
            case "own_prompt":
                return not self._permission_pane.requests  # the same key denies
            case "reply" | "xray":
                if self.session is None or self.session.flow is not None:  # a flow uses no model
                    return False
                return action == "xray" or self.session.state is not SessionState.QUEUED
            case "comment":
                return self._diff.comment_place is not None
            case "open_folder":
                return self.session is not None
        return super().check_action(action, parameters)

    def action_stop(self) -> None:
        if (session := self.session) is not None:
            self.app.call_engine(  # the end of the session is a toast
                lambda engine: engine.sessions.stop(session.id, "stopped by you"),
                lambda _: self.app.reload(["changes", "sessions"]),
            )

    # What becomes of a change set

    def action_land(self) -> None:
        """Land the marked hunks, or all changes. Marks that the diff has lost are reported first."""
        changes = self._changes
        if (change := self._find_idle_change()) is None:
            return
        if problem := changes.find_landing_problem(change):
            self.app.show_toast(problem, "warning")
            return
        parts = changes.parts
        changes.take_marks(change)

        self._carry_out(
            "landing",
            change,
            lambda engine: engine.changes.land(change.id, parts),
            lambda landed: f"{describe_landing(change, landed, parts)} Undo: {self.key_of('work.undo')}",
            lambda: changes.restore_marks(change),
        )

    def action_branch(self) -> None:
        if (change := self._find_idle_change()) is not None:
            self._carry_out(
                "branching",
                change,
                lambda engine: engine.changes.branch(change.id),
                lambda result: f"Committed to {result.branch}.",
            )

    def action_discard(self) -> None:
        if (change := self._find_idle_change()) is None:
            return
        files = formats.count(len(change.files), "changed file")
        question = f"{files} of “{one_line(change.title)}” will be deleted. This cannot be undone."

        def discard() -> None:
            self._carry_out(
                "discarding", change, lambda engine: engine.changes.discard(change.id), lambda _: "Discarded."
            )

        confirm(self.app, "Discard the changes?", question, "discard", discard, risky=True)

    def action_undo(self) -> None:
        if (change := self._find_idle_change()) is None:
            return

        def describe(undone: ChangeSet) -> str:
            is_known = self._changes.mark_again(undone) or change.state is ChangeState.LANDED
            lands = "it again" if is_known else f"all that waits: {formats.count(len(undone.files), 'file')}"
            return f"Landing undone. {self.key_of('work.land')} lands {lands}."

        self._carry_out("undo", change, lambda engine: engine.changes.undo(change.id), describe)

    @property
    def _operation(self) -> str:
        """The operation that runs on the change set of this session, "" for none.

        It runs until the change set is another than at its start.
        """
        change = self.change
        name, before = self._operations.get(change.id, ("", None)) if change else ("", None)
        return name if before == change else ""

    def _find_idle_change(self) -> ChangeSet | None:
        """The change set in sight; None while an operation runs on it, which is said."""
        if self._operation:
            self.app.show_toast(f"{self._operation} is still running. Try again in a moment.", "warning")
            return None
        return self.change

    def _carry_out(
        self,
        name: str,
        change: ChangeSet,
        call: Callable[[Engine], ChangeSet],
        describe: Callable[[ChangeSet], str],
        on_refused: Callable[[], object] | None = None,
    ) -> None:
        """Carry out the operation `name` on `change`; `describe` puts its result into words."""

        def on_refusal(refusal: Refusal) -> None:
            self._operations.pop(change.id, None)
            if on_refused is not None:
                on_refused()
            self.app.show_toast(str(refusal), "error")
            self.refresh_bindings()

        self._keeps_cursor = True  # the cursor stays on it, for an undo
        self._operations[change.id] = name, change
        self.refresh_bindings()
        self.app.call_engine(call, lambda result: self._report(describe(result)), on_refusal)

    def _report(self, text: str) -> None:
        self.app.report(text, "changes", "sessions", "cards", "place")

    def copy_text(self) -> str:
        return self.session.id if self.session else ""

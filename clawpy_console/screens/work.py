"""Screen 2, work: sessions, what they do, what they changed, and what you tell their agents (SPEC 9.4 to 9.6).

`changes` has the right half with the change set, `permission_pane` the question of a session that waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from clawpy_console import external_programs
from clawpy_console.formats import crop, has_words, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.screens import FilteredScreen
from clawpy_console.screens.changes import Changes
from clawpy_console.screens.diff_view import DiffView
from clawpy_console.screens.own_prompt import open_prompt_box
from clawpy_console.screens.permission_pane import PermissionPane
from clawpy_console.state import SESSIONS_PER_PAGE, AppState
from clawpy_console.widgets import Pane, Row, Rows, group_rows
from clawpy_console.widgets.frame import Columns
from clawpy_console.widgets.session import is_waiting_to_land, make_heading_lines, make_session_row
from clawpy_console.widgets.texts import Filter, Heading, ReflowingText, ReplyLine
from clawpy_console.widgets.transcript import Transcript
from engine.model import Card, ChangeSet, ModelCall, PermissionAnswer, Refusal, SessionState, SessionView

OLDER_ROW_ID = "=older"
"""The id of the row that lists older sessions."""

ASKING = "ASKING YOU"
RUNNING = "RUNNING"
TO_LAND = "WAITING TO LAND"
FINISHED = "FINISHED"
"""The headings of the list, in their order."""

WAITING_MARKS = {ASKING: "▲", TO_LAND: "▼"}
"""The signs of the sessions that wait for you, by their heading."""

SessionGroups = dict[str, list[SessionView]]
"""Sessions by the headings of the list."""


class WorkScreen(FilteredScreen):
    """Sessions left, transcript in the middle, the diff right; above them the permission that the session asks for."""

    MODE = "work"
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS = make_bindings("asked", "work", "columns", "filter")
    PANES = {
        "sessions": "left", "transcript": "middle", "files": "right", "diff": "right", "asked-detail": "",
    }  # fmt: skip
    FILTER_PANE = "sessions"

    _rows = getters.query_one("#sessions", Rows)
    _transcript = getters.query_one("#transcript", Transcript)
    _changes = getters.query_one(Changes)
    _diff = getters.query_one(DiffView)
    _permission_pane = getters.query_one(PermissionPane)
    _reply_line = getters.query_one(ReplyLine)

    def __init__(self) -> None:
        super().__init__()
        self._session_to_select = ""  # as soon as it is listed: the id of a session or of its card
        self._is_opening = True  # the cursor is not yet where the screen opens
        self._initial_session = ""  # the session that the screen opened on
        self._keeps_cursor = False  # the operator moved it to another session, or changed something there
        self._oldest_listed = ""  # the oldest session in the list when the operator asked for older ones
        self._calls: tuple[ModelCall, ...] = ()  # of the session under the cursor
        self._calls_session: SessionView | None = None  # the session as it was when its calls were read
        self._viewed_ids: set[str] = set()  # sessions that ran by themselves and were looked at
        self._sends_comments_of: set[str] = set()  # change sets whose comments are on their way to the agent

    def compose_body(self) -> ComposeResult:
        yield Columns(id="tabs")
        yield PermissionPane()
        with Horizontal(id="columns"):
            with Pane(id="left"):
                yield Heading("SESSIONS", id="sessions-title")
                yield Filter("prompt, channel, state")
                yield Rows(id="sessions", empty="Nothing has run yet.")
            with Pane(id="middle"):
                yield ReflowingText(id="about")
                yield Transcript(id="transcript")
            yield Changes()
        yield ReplyLine(id="reply")

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        return self._rows.find(self.state.sessions)

    @property
    def change(self) -> ChangeSet | None:
        """The change set of the session under the cursor."""
        return self.state.find_change_of(self.session) if self.session else None

    def find_text_to_copy(self) -> str:
        return self.session.id if self.session else ""

    # The list of sessions

    def show(self, session_id: str) -> None:
        """Put the cursor on this session, now or as soon as it is listed."""
        self._select_when_listed(session_id)
        self._draw_sessions()

    def _select_when_listed(self, session_or_card_id: str) -> None:
        self._session_to_select = session_or_card_id
        self._keeps_cursor = True
        self.app.cards.last_approved_id = ""

    def on_screen_resume(self) -> None:
        self._is_opening = True
        if card_id := self.app.cards.last_approved_id:
            self._select_when_listed(card_id)
        if self._is_complete:
            self._draw_sessions()

    def apply_filter(self) -> None:
        self._draw_sessions()

    def _draw_sessions(self) -> None:
        """Draw the list, and put its cursor where that was asked for."""
        words = self.filter_words
        total = f"{len(self.state.sessions) or ''}{'+' if self.state.has_older_sessions else ''}"
        groups = group_sessions(self.state, words)
        self._rows.show(self._make_session_rows(groups), empty="No match." if words else None)
        self._select_waiting_session(groups)
        self._select_requested_session()
        if total and words:
            total = f"{sum(map(len, groups.values()))} of {total}"
        self.show_content("#sessions-title", Content.assemble("SESSIONS", (total and f"  {total}", "$grey")))

    def _make_session_rows(self, groups: SessionGroups) -> list[Row]:
        """The sessions as rows, and a row that reads older ones."""
        state = self.state
        now = self.now
        rows = {
            heading: [
                make_session_row(
                    session, now, state.make_place_prefix(session.workspace), WAITING_MARKS.get(heading, "")
                )
                for session in sessions
            ]
            for heading, sessions in groups.items()
        }
        effect = "looks further" if self.filter_words else f"lists {SESSIONS_PER_PAGE} more"
        older = Row(OLDER_ROW_ID, f"older: {self.key_of('rows.open')} {effect}", "▾", style="grey")
        return group_rows({**rows, "": [older] if state.has_older_sessions else []})

    def _select_waiting_session(self, groups: SessionGroups) -> None:
        """When the screen opens, put the cursor on the first session that waits for the operator, unless one was
        chosen."""
        if not self._is_opening or self._keeps_cursor:
            return
        self._is_opening = not self.app.is_loaded  # a session of the last start may wait no more
        waiting = [session.id for session in (*groups[ASKING], *groups[TO_LAND])]
        if waiting and self._rows.current not in waiting:
            self._rows.select(waiting[0])
        self._initial_session = self._rows.current

    def _select_requested_session(self) -> None:
        """Put the cursor on the session that was asked for, or on the first older one, as soon as it is listed."""
        ids = [session.id for session in self.state.sessions]
        if self._oldest_listed in ids[:-1]:
            self._session_to_select = ids[ids.index(self._oldest_listed) + 1]
            self._oldest_listed = ""
        for session in self.state.sessions if self._session_to_select else ():
            if self._session_to_select in (session.id, session.prediction_id):
                self._rows.select(session.id)
                self._session_to_select = ""
                break

    @on(Rows.Moved, "#sessions")
    def _on_session_moved(self) -> None:
        self._keeps_cursor |= self._rows.current != self._initial_session
        self._draw_session()

    @on(Rows.Opened, "#sessions")
    def _on_session_opened(self, message: Rows.Opened) -> None:
        if message.row_id != OLDER_ROW_ID:
            self._keeps_cursor = True
            self.go_to("transcript")
        elif self.state.sessions:
            self._oldest_listed = self.state.sessions[-1].id
            self.app.load_older_sessions()

    # The session under the cursor

    def draw(self, changed: frozenset[str]) -> None:
        if not changed or changed & {"sessions", "changes", "permissions"}:
            self._draw_session()

    def draw_times(self) -> None:
        self._draw_sessions()
        self._draw_about()
        self._draw_asked()

    def make_column_titles(self) -> Mapping[str, str]:
        files = len(self.change.files) if self.change else 0
        return {"left": "sessions", "middle": "transcript", "right": f"changes {files}" if files else "changes"}

    def _draw_session(self) -> None:
        """Draw the session under the cursor: its heading, its request, its output and its changes."""
        session = self.session
        change = self.change
        self._read_calls()
        self._draw_about()
        self._draw_asked()
        if session is None:
            self._transcript.clear(empty="Select a session.")
        else:
            self._transcript.follow(session)
            self._mark_viewed(session)
        self.set_class(not self._changes.show(session, change), "-no-changes")
        if self.PANES.get(self.pane) == "right" and not (change and change.files):
            self.go_to("sessions")  # what had the focus is hidden
        self.draw_columns()
        self.refresh_bindings()

    def _draw_about(self) -> None:
        """Draw the heading of the session under the cursor."""
        session = self.session
        calls = self._calls
        now = self.now
        self.query_one("#about", ReflowingText).show(
            lambda width: make_heading_lines(session, calls, now, width) if session else []
        )

    def _draw_asked(self) -> None:
        """Draw the permissions that the session asks for."""
        pane = self._permission_pane
        before = pane.current
        pane.show(self.state.find_requests_of(self.session.id) if self.session else ())
        if before != pane.current:
            self.refresh_bindings()

    def _mark_viewed(self, session: SessionView) -> None:
        """Report that the operator looked at a session that ran by itself: only then do its changes count as kept."""
        is_unseen = session.mode == "autonomous" and session.state.is_over and session.id not in self._viewed_ids
        if is_unseen and self.app.engine is not None:
            self._viewed_ids.add(session.id)
            self.app.call_engine(lambda engine: engine.cards.mark_reviewed(session.prediction_id))

    def _read_calls(self) -> None:
        """Read the calls of the session under the cursor, for its heading: again when it spent more, or ended."""
        session = self.session
        before = self._calls_session
        if session is None or before is None or session.id != before.id:
            self._calls = ()
        elif (session.tokens, session.state.is_over) == (before.tokens, before.state.is_over):
            return
        self._calls_session = session
        if session is None or self.app.engine is None or session.flow is not None:
            return

        def on_calls(calls: list[ModelCall]) -> None:
            if self._calls_session is session:
                self._calls = tuple(calls)
                self._draw_about()

        self.app.call_engine(lambda engine: engine.calls.list_for_session(session.id), on_calls)

    # Keys

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that can do nothing for this session are not offered."""
        match action:
            case "operate":
                return self.change is not None and self._changes.offers(str(parameters[0]), self.change)
            case "send_comments":
                return self._changes.has_comments_to_send
            case "stop":
                return self.session is not None and not self.session.state.is_over
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
        return True

    def action_answer(self, answer: str) -> None:
        """Answer the request for a permission."""
        self._permission_pane.answer(PermissionAnswer(answer))

    def action_next_request(self) -> None:
        self._permission_pane.select_next()
        self.refresh_state(frozenset({"permissions"}))

    def action_stop(self) -> None:
        if (session := self.session) is not None:
            self.app.call_engine(  # the end of the session is a toast
                lambda engine: engine.sessions.stop(session.id, "stopped by you"),
                lambda _: self.app.reload(["changes", "sessions"]),
            )

    def action_own_prompt(self) -> None:
        """Write a prompt for the workspace of the session under the cursor; one that names a flow runs at once."""
        open_prompt_box(self.app, self.session.workspace if self.session else self.app.workspace_filter)

    def action_xray(self) -> None:
        from clawpy_console.screens.prompt_dialogs import XRay, open_source

        if (session := self.session) is not None:
            self.app.ask(XRay(session), lambda source: open_source(self.app, source, session.id))

    def action_open_folder(self) -> None:
        session = self.session
        if session is not None and session.gone:
            self.app.show_toast(f"{session.gone}. What it changed is in the pane on the right.", "warning")
        elif session is not None:
            agent = "" if session.state.is_over else ", where its agent still works"
            place = "worktree" if session.cwd != session.workspace else "repository"
            banner = f"The {place} of “{crop(one_line(session.prompt), 60)}”{agent}"
            gone_message = f"{session.cwd} is gone: only the diff is left, in the pane on the right"
            external_programs.open_shell(self.app, session.cwd, banner=banner, gone_message=gone_message)

    # The change set

    def action_operate(self, name: str) -> None:
        """Land, branch or discard the changes, or undo a landing."""
        if (change := self.change) is not None:
            self._changes.operate(name, change)

    @on(Changes.OperationChanged)
    def _on_operation_changed(self) -> None:
        self._keeps_cursor = True  # for an undo
        self.refresh_bindings()

    # What you write: replies and comments

    def on_descendant_focus(self) -> None:
        """Hide the line when another pane has the focus, and keep what was written in it."""
        super().on_descendant_focus()
        for line in self.query(ReplyLine):
            line.set_class(line.has_focus, "-shown")

    @on(ReplyLine.Closed)
    def _on_reply_closed(self) -> None:
        if self.has_class("-at-left"):
            self.go_to("sessions")
        else:
            self.go_to("diff" if self.has_class("-at-right") else "transcript")

    def action_reply(self) -> None:
        if (session := self.session) is not None:
            self._open_reply_line(session)

    def _open_reply_line(self, session: SessionView) -> None:
        """Open the line for a reply to `session`."""
        agent = session.agent or session.channel
        title = f"tell {agent}"
        enter_hint = "send"
        placeholder = "read at its next turn"
        if session.state.is_over:
            title = f"continue {agent}"
            enter_hint = "creates a card that continues it"
            placeholder = "what should it do next?"
        self._reply_line.open(
            session.id,
            title,
            lambda reply: self._send_reply(session, reply),
            enter_hint=enter_hint,
            placeholder=placeholder,
        )

    def _send_reply(self, session: SessionView, text: str) -> None:
        """Send `text` to the agent of a running session; make a card of it that continues a session that is over."""

        def find_latest() -> SessionView:
            return next((listed for listed in self.state.sessions if listed.id == session.id), session)

        def on_refusal(refusal: Refusal) -> None:
            self.app.show_toast(refusal, "warning")
            self.app.reload(["sessions"])
            self._reply_line.give_back(session.id, text)
            if self.is_active and not isinstance(self.focused, Input):  # else it would take what is typed now
                self._open_reply_line(find_latest())  # if it ended meanwhile, the same text can continue it

        def on_card(card: Card) -> None:
            self.app.show_toast("This card continues it.")
            self.app.open("mission", card)

        if find_latest().state.is_over:
            self.app.cards.continue_session(session, text, on_card, on_refusal)
        else:
            self.app.call_engine(
                lambda engine: engine.sessions.reply(session.id, text),
                lambda _: self.app.show_toast(f"Sent. {session.agent or session.channel} reads it at its next turn."),
                on_refusal,
            )

    def action_comment(self) -> None:
        """Open the line for a comment on the line of the diff under the cursor."""
        change = self.change
        place = self._diff.comment_place
        if change is None or place is None:
            return

        def add_comment(text: str) -> None:
            self.app.carry_out(
                lambda engine: engine.changes.comments.add(
                    change.id, place.path, place.line, text, old=place.is_before
                ),
                "Comment added.",
                "changes",
            )

        self._reply_line.open(
            f"{change.id} {place.words}",
            f"comment on {place.words}",
            add_comment,
            enter_hint="save",
            placeholder="what should be different here?",
        )

    @on(DiffView.RemoveComment)
    def _remove_comment(self, message: DiffView.RemoveComment) -> None:
        if (change := self.change) is not None:
            self.app.carry_out(
                lambda engine: engine.changes.comments.remove(change.id, message.number), "Comment removed.", "changes"
            )

    def action_send_comments(self) -> None:
        """Make a card that sends all comments to the agent."""
        change = self.change
        session = self.session
        if change is None or session is None or change.id in self._sends_comments_of:
            return
        self._sends_comments_of.add(change.id)

        def on_refusal(refusal: Refusal) -> None:
            self._sends_comments_of.discard(change.id)
            self.app.show_toast(refusal, "error")

        def on_marked(_: object) -> None:
            self._sends_comments_of.discard(change.id)
            self.app.reload(["changes"])

        def send(unsent: tuple[str, tuple[int, ...]]) -> None:
            text, numbers = unsent

            def on_card(card: Card) -> None:
                self.app.call_engine(
                    lambda engine: engine.changes.comments.mark_sent(change.id, numbers), on_marked, on_refusal
                )
                self.app.show_toast("This card sends your comments.")
                self.app.open("mission", card)

            self.app.cards.continue_session(session, text, on_card, on_refusal)

        self.app.call_engine(lambda engine: engine.changes.comments.make_unsent_message(change.id), send, on_refusal)


def group_sessions(state: AppState, words: list[str]) -> SessionGroups:
    """The sessions that have `words`, by the headings of the list."""
    to_land = {change.session_id for change in state.changes if is_waiting_to_land(change)}
    asking = {request.session_id for request in state.permissions}
    groups: SessionGroups = {ASKING: [], RUNNING: [], TO_LAND: [], FINISHED: []}
    for session in state.sessions:
        if not has_words(f"{session.prompt} {session.channel} {session.state} {session.workspace}", words):
            continue
        heading = (TO_LAND if session.id in to_land else FINISHED) if session.state.is_over else RUNNING
        groups[ASKING if session.id in asking else heading].append(session)
    return groups

"""Screen 2, work: sessions, what they do, what they changed, and what becomes of it (SPEC 9.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.dialogs.ask import confirm
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import Filtering
from clawpy_console.screens.work.changes import Changes
from clawpy_console.screens.work.conversing import Conversing, PermissionPane, ReplyLine
from clawpy_console.screens.work.diff_view import DiffView
from clawpy_console.state import NEWEST
from clawpy_console.widgets.keyline import Columns, Filter
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows, grouped
from clawpy_console.widgets.session import change_words, heading_lines, session_row, waits
from clawpy_console.widgets.transcript import Transcript
from engine.model import Card, ChangeSet, ChangeState, ModelCall, Refusal, SessionView

if TYPE_CHECKING:
    from engine import Engine

OLDER = "=older"
"""The id of the row that lists older sessions."""

ASKING, TO_LAND = "ASKING YOU", "WAITING TO LAND"
"""The headings of the sessions that wait for you."""

DOES = frozenset({"land", "branch", "discard", "undo"})
"""Actions that do something with a change set."""


class WorkScreen(Conversing, Filtering):
    """Sessions left, transcript in the middle, the diff right; above them what the session asks to be allowed."""

    MODE = "work"
    CSS_PATH = ["../columns.tcss", "work.tcss"]
    AUTO_FOCUS = "#sessions"
    BINDINGS = bindings("asked", "work", "columns", "filter")
    PANES = {
        "sessions": "sessions", "transcript": "transcript", "files": "files", "diff": "diff", "asked": "asked-detail",
    }  # fmt: skip
    COLUMNS = {"sessions": "left", "transcript": "middle", "files": "right", "diff": "right"}
    FILTERED = "sessions"

    def __init__(self) -> None:
        super().__init__()
        self._wanted = ""  # a session to select as soon as it is listed, by its id or that of its card
        self._opening = True  # the screen was opened, and the cursor is where it opens on as soon as that is known
        self._opened_on = ""  # the session that it opened on; the operator chose none while the cursor is there
        self._chosen = False
        self._beyond = ""  # the oldest session that was listed when older ones were asked for
        self._calls: tuple[ModelCall, ...] = ()  # of the session under the cursor
        self._viewed: set[str] = set()  # sessions that ran by themselves and were looked at
        self._calls_of: tuple[str, int, bool] = ("", 0, False)
        self._pending: dict[str, tuple[str, ChangeSet]] = {}  # by change set: what was begun with it, as it was then

    def body(self) -> ComposeResult:
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
        """The session under the cursor."""
        current = self.query_one("#sessions", Rows).current
        return next((session for session in self.state.sessions if session.id == current), None)

    @property
    def change(self) -> ChangeSet | None:
        """What the session under the cursor changed."""
        session = self.session
        return self.state.change_of(session) if session else None

    def show(self, session_id: str) -> None:
        """Put the cursor on this session, now or as soon as it is listed."""
        self._wanted, self._chosen, self.app.cards.approved = session_id, True, ""
        self._draw_sessions(self.app.now())

    # Drawing

    def on_screen_resume(self) -> None:
        self._opening = True
        if card_id := self.app.cards.approved:
            self._wanted, self._chosen, self.app.cards.approved = card_id, True, ""
        if self._complete:
            self._draw_sessions(self.app.now())

    def columns(self) -> Mapping[str, str]:
        files = len(self.change.files) if self.change else 0
        return {"left": "sessions", "middle": "transcript", "right": f"changes {files}" if files else "changes"}

    def draw(self, changed: frozenset[str]) -> None:
        if not changed or changed & {"sessions", "changes", "permissions"}:
            self._draw_session()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self._complete:
            self._draw_sessions(now)
            self._draw_about(now)
            self._draw_asked(now)

    def _draw_sessions(self, now: datetime) -> None:
        rows, state = self.query_one("#sessions", Rows), self.state
        rows.show(self._session_rows(now), empty="No match." if self.needle else None)
        self._open_on_what_waits(rows)
        count = f"  {len(state.sessions)}{'+' if state.older else ''}" if state.sessions else ""
        self.put("#sessions-title", Content.assemble("SESSIONS", (count, "$grey")))
        ids = [session.id for session in state.sessions]
        if self._beyond in ids[:-1]:
            self._wanted, self._beyond = ids[ids.index(self._beyond) + 1], ""
        listed = (session.id for session in state.sessions if self._wanted in (session.id, session.prediction_id))
        if self._wanted and (session_id := next(listed, "")):
            rows.select(session_id)
            self._wanted = ""

    def _open_on_what_waits(self, rows: Rows) -> None:
        """Put the cursor on the first session that waits for you, unless you chose one before."""
        if not self._opening or self._chosen:
            return
        self._opening = not self.app.greeted  # what was kept from last time may not wait any more
        groups = self._groups()
        waiting = [group.id for group in (*groups[ASKING], *groups[TO_LAND])]
        if waiting and rows.current not in waiting:
            rows.select(waiting[0])
        self._opened_on = rows.current

    def _groups(self) -> dict[str, list[SessionView]]:
        """The sessions that have the words of the filter, by the headings of the list."""
        to_land = {change.session_id for change in self.state.changes if change.state is ChangeState.WAITING}
        asking = {request.session_id for request in self.state.permissions}
        groups: dict[str, list[SessionView]] = {ASKING: [], "RUNNING": [], TO_LAND: [], "FINISHED": []}
        for session in self.state.sessions:
            ended = TO_LAND if session.id in to_land else "FINISHED"
            if all(
                word in f"{session.prompt} {session.channel} {session.state} {session.workspace}".lower()
                for word in self.needle
            ):
                groups[ASKING if session.id in asking else ended if session.state.over else "RUNNING"].append(session)
        return groups

    def _session_rows(self, now: datetime) -> list[Row]:
        several = len({session.workspace for session in self.state.sessions}) > 1
        rows = {
            name: [
                session_row(member, now, waits=name == TO_LAND, asks=name == ASKING, placed=several)
                for member in members
            ]
            for name, members in self._groups().items()
        }
        more = "looks further" if self.needle else f"lists {NEWEST} more"
        older = [Row(OLDER, f"older: ⏎ {more}", "▾", style="grey")] if self.state.older else []
        return grouped({**rows, "": older})

    def _draw_session(self) -> None:
        session = self.session
        self._read_calls()
        self._draw_about(self.app.now())
        self._draw_asked(self.app.now())
        transcript = self.query_one("#transcript", Transcript)
        if session is None:
            transcript.clear(empty="Select a session.")
        else:
            transcript.follow(session, self.app.transcript)
            self._mark_viewed(session)
        shows = self.query_one(Changes).show(session, self.change)
        self.set_class(not shows, "-nothing")
        self.draw_columns()
        self.refresh_bindings()

    def _mark_viewed(self, session: SessionView) -> None:
        """What ran by itself counts as kept only when somebody looked at it."""
        unseen = session.mode == "autonomous" and session.state.over and session.id not in self._viewed
        if unseen and self.app.engine is not None:
            self._viewed.add(session.id)
            self.app.ask(lambda engine: engine.cards.look_at(session.prediction_id))

    def _draw_about(self, now: datetime) -> None:
        session, calls = self.session, self._calls
        self.query_one("#about", ReflowingText).show(
            lambda width: heading_lines(session, calls, now, width) if session else []
        )

    def _draw_asked(self, now: datetime) -> None:
        requests = self.state.asked_by(self.session.id) if self.session else ()
        pane = self.query_one(PermissionPane)
        before = pane.current
        pane.show(requests, now, self.app.keymap)
        if before != pane.current:
            self.refresh_bindings()

    def _read_calls(self) -> None:
        """The calls of the session under the cursor, for its heading: again when it spent more, or ended."""
        session = self.session
        wanted = (session.id, session.tokens, session.state.over) if session else ("", 0, False)
        if wanted == self._calls_of:
            return
        if wanted[0] != self._calls_of[0]:
            self._calls = ()
        self._calls_of = wanted
        if session is None or self.app.engine is None or session.flow is not None:
            return

        def read(calls: list[ModelCall]) -> None:
            if self._calls_of == wanted:
                self._calls = tuple(calls)
                self._draw_about(self.app.now())

        self.app.ask(lambda engine: engine.calls.for_session(session.id), read)

    @on(Rows.Moved, "#sessions")
    def _session_moved(self) -> None:
        self._chosen |= self.query_one("#sessions", Rows).current != self._opened_on
        self._draw_session()

    @on(Rows.Opened, "#sessions")
    def _session_opened(self, message: Rows.Opened) -> None:
        if message.row_id != OLDER:
            self._chosen = True
            self.go_to("transcript")
            return
        self._beyond = self.state.sessions[-1].id
        self.app.read_older()

    def output_grew(self, sessions: frozenset[str]) -> None:
        transcript = self.query_one("#transcript", Transcript)
        if transcript.session_id in sessions and self.app.transcript is not None:
            transcript.pull(self.app.transcript)

    def filtered(self) -> None:
        self._draw_sessions(self.app.now())

    # What becomes of a change set

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing for this session are not offered."""
        if action in DOES and self._operation:
            return True  # they say that it runs
        if action in ("land", "branch", "discard"):
            return waits(self.change)
        if action == "undo":
            return self.change is not None and bool(self.change.landings)
        if action == "send_comments":
            return self.query_one(Changes).unsent
        if action == "stop":
            return self.session is not None and not self.session.state.over
        if action in ("answer", "next_request"):
            return len(self.query_one(PermissionPane).requests) > (action == "next_request")
        if action in ("reply", "xray"):
            return self.session is not None and self.session.flow is None  # a flow talks with no model
        if action == "open_folder":
            return self.session is not None
        return super().check_action(action, parameters)

    def reason_not(self, action_id: str) -> str:
        if self.session is None:
            return "No session is selected."
        reasons = {
            "work.undo": "Nothing of this session is landed.",
            "work.stop": "This session is over.",
            "work.reply": "No model works on this session.",
            "work.xray": "No model works on this session.",
            "work.send_comments": "There are no comments to send.",
        }
        changes = dict.fromkeys(("work.land", "work.branch", "work.discard"), change_words(self.change, self.session))
        return (reasons | changes).get(action_id) or super().reason_not(action_id)

    def action_land(self) -> None:
        undo, changes = shown_key("work.undo", self.app.keymap), self.query_one(Changes)
        parts, before = changes.parts, self.change
        if before is not None and not self._operation:
            if why := changes.cannot_land(before):
                self.app.say(why, "warning")
                return
            changes.begin_landing(before)

        def done(landed: ChangeSet) -> str:
            remainder = "" if landed.state is ChangeState.LANDED else f" {words.count(len(landed.files), 'file')} left."
            files = parts or (before.files if before else ())
            return f"Landed {words.count(len(files), 'file')}.{remainder} Undo: {undo}"

        self._carry_out("landing", lambda engine, id: engine.changes.land(id, parts), done, changes.landing_refused)

    def action_branch(self) -> None:
        self._carry_out(
            "branching", lambda engine, id: engine.changes.branch(id), lambda result: f"Committed to {result.branch}."
        )

    def action_discard(self) -> None:
        if self._operation or (change := self.change) is None:
            self._say_busy()
            return
        files = words.count(len(change.files), "changed file")
        question = f"{files} of “{words.one_line(change.title)}” will be deleted. This cannot be undone."

        def discard() -> None:
            self._carry_out(
                "discarding", lambda engine, id: engine.changes.discard(id), lambda _: "Discarded.", change=change
            )

        confirm(self.app, "Discard the changes?", question, "discard", discard, risky=True)

    def action_undo(self) -> None:
        done = f"Landing undone. {shown_key('work.land', self.app.keymap)} lands it again."
        self._carry_out("undo", lambda engine, id: engine.changes.undo(id), lambda _: done)

    # Comments

    def action_comment(self) -> None:
        change, commented = self.change, self.query_one(DiffView).comment_at
        if change is None or commented is None:
            return
        path, line, old = commented
        place = f"{path}:{line}{' before the change' if old else ''}"

        def written(text: str) -> None:
            self.app.ask(
                lambda engine: engine.changes.comment(change.id, path, line, text, old=old),
                lambda _: self._commented("Comment added."),
            )

        about = f"{change.id} {place}"
        self.query_one(ReplyLine).write(about, f"comment on {place}", "save", "what should be different here?", written)

    @on(DiffView.Removed)
    def _remove_comment(self, message: DiffView.Removed) -> None:
        if (change := self.change) is not None:
            self.app.ask(
                lambda engine: engine.changes.remove_comment(change.id, message.number),
                lambda _: self._commented("Comment removed."),
            )

    def _commented(self, text: str) -> None:
        self.app.say(text)
        self.app.renew(["changes"])

    def action_send_comments(self) -> None:
        change, session = self.change, self.session
        if change is None or session is None:
            return

        def send(unsent: tuple[str, tuple[int, ...]]) -> None:
            text, numbers = unsent

            def on_card(_: Card) -> None:
                self.app.ask(
                    lambda engine: engine.changes.sent_comments(change.id, numbers),
                    lambda _: self.app.renew(["changes"]),
                )
                self.app.say("The card that sends your comments is on top. Approve it.")

            self.app.cards.continue_session(session, text, on_card)

        self.app.ask(lambda engine: engine.changes.unsent_comments(change.id), send)

    def action_stop(self) -> None:
        if (session := self.session) is not None:
            self.app.ask(
                lambda engine: engine.sessions.stop(session.id, "stopped by you"), lambda _: self._report("stopped")
            )

    @property
    def _operation(self) -> str:
        """What was begun with the change set of this session and is not known to be done, "" for nothing."""
        change = self.change
        doing, before = self._pending.get(change.id, ("", None)) if change else ("", None)
        return doing if change == before else ""

    def _say_busy(self) -> None:
        self.app.say(f"{self._operation} is still running. Try again in a moment.", "warning")

    def _carry_out(
        self,
        doing: str,
        call: Callable[[Engine, str], ChangeSet],
        done: Callable[[ChangeSet], str],
        undone: Callable[[ChangeSet], None] = lambda change: None,
        *,
        change: ChangeSet | None = None,
    ) -> None:
        """Call what is `doing` something with `change`, by default the change set in sight; `done` says what came of
        it, `undone` is called on a refusal."""
        if self._operation or (change := change or self.change) is None:
            self._say_busy()
            return

        def on_refusal(refusal: Refusal) -> None:
            self._pending.pop(change.id, None)
            undone(change)
            self.app.say(str(refusal), "error")
            self.refresh_bindings()

        self._chosen = True  # whoever comes back finds it, to take it back
        self._pending[change.id] = (doing, change)
        self.refresh_bindings()
        self.app.ask(lambda engine: call(engine, change.id), lambda result: self._report(done(result)), on_refusal)

    def _report(self, text: str) -> None:
        self.app.say(text)
        self.app.renew(["changes", "sessions", "cards", "place"])

    def copy_text(self) -> str:
        return self.session.id if self.session else ""

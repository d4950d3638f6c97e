"""Screen 2, work: sessions, what they do, what they changed, and what becomes of it (SPEC 9.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import words
from clawpy_console.actions import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.lines import DIFF, LinesView, diff_lines
from clawpy_console.widgets.rows import Row, Rows
from clawpy_console.widgets.transcript import Transcript
from engine.values import ChangeSet, ChangeState, CheckResult, FileDiff, Refusal, SessionState, SessionView

STATES: dict[SessionState, tuple[str, str]] = {
    SessionState.QUEUED: ("○", "faint"),
    SessionState.RUNNING: ("◐", "accent"),
    SessionState.SUCCEEDED: ("✓", "grey"),
    SessionState.FAILED: ("✗", "wrong"),
    SessionState.CANCELLED: ("✗", "grey"),
    SessionState.BLOCKED: ("✗", "wrong"),
    SessionState.INTERRUPTED: ("✗", "wants"),
}

MARKS = {"added": ("+", "good"), "deleted": ("-", "wrong"), "renamed": ("→", "grey"), "mode": ("·", "grey")}


class WorkScreen(ConsoleScreen):
    """Sessions left, transcript in the middle, the diff right."""

    MODE = "work"
    CSS_PATH = "work.tcss"
    AUTO_FOCUS = "#sessions"
    BINDINGS = bindings("work")
    PANES = {"sessions": "sessions", "transcript": "transcript", "files": "files", "diff": "diff"}
    COLUMNS = {"sessions": "left", "transcript": "middle", "files": "right", "diff": "right"}

    def __init__(self) -> None:
        super().__init__()
        self._wanted = ""  # a session to select as soon as it is listed
        self._filter = ""
        self._diff_of = ""
        self._diffs: dict[str, FileDiff] = {}

    def body(self) -> ComposeResult:
        yield Static(id="tabs", markup=False)
        with Horizontal(id="columns"):
            with Vertical(id="left", classes="pane"):
                yield Static("SESSIONS", id="sessions-title", classes="heading", markup=False)
                yield Input(placeholder="words in the prompt, channel, state", id="filter")
                yield Rows(id="sessions", empty="nothing has run yet")
            with Vertical(id="middle", classes="pane"):
                yield Drawn(id="about")
                yield Transcript(id="transcript")
            with Vertical(id="right", classes="pane"):
                yield Static("CHANGES", id="changes-title", classes="heading", markup=False)
                yield Static(id="verdict", markup=False)
                yield Rows(id="files", classes="-fit")
                yield LinesView(id="diff", gutter=DIFF)

    def on_mount(self) -> None:
        self.add_class("-at-left")

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        current = self.query_one("#sessions", Rows).current
        return next((one for one in self.known.sessions if one.id == current), None)

    @property
    def change(self) -> ChangeSet | None:
        """What the session under the cursor changed."""
        session = self.session
        return self.known.change_of(session) if session else None

    def select(self, session_id: str) -> None:
        """Put the cursor on this session, now or as soon as it is listed."""
        self._wanted = session_id
        self._draw_sessions(self.app.now())

    # Drawing

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        self._draw_tabs()

    def _draw_tabs(self) -> None:
        """On a narrow terminal, where one column is shown: which, and what is beside it."""
        files = len(self.change.files) if self.change else 0
        tabs = (("left", "sessions"), ("middle", "transcript"), ("right", f"changes {files}" if files else "changes"))
        drawn = [Content.styled(name, "bold $accent" if self.has_class(f"-at-{at}") else "$grey") for at, name in tabs]
        hint = Content.styled("   ← → to move", "$faint")
        self.put("#tabs", Content.styled("  │  ", "$faint").join(drawn) + hint)

    def draw(self, changed: frozenset[str]) -> None:
        self._draw_sessions(self.app.now())
        if not changed or changed & {"sessions", "changes"}:
            self._draw_session()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.query("#sessions"):
            self._draw_sessions(now)
            self._draw_about(now)

    def _draw_sessions(self, now: datetime) -> None:
        rows = self.query_one("#sessions", Rows)
        rows.show(self._session_rows(now), empty="no session has these words" if self._filter else None)
        if self._wanted and any(one.id == self._wanted for one in self.known.sessions):
            rows.select(self._wanted)
            self._wanted = ""

    def _session_rows(self, now: datetime) -> Iterable[Row]:
        needle = self._filter.lower().split()
        shown = [
            one
            for one in self.known.sessions
            if all(word in f"{one.prompt} {one.channel} {one.state} {one.workspace}".lower() for word in needle)
        ]
        waiting = {one.session_id for one in self.known.changes if one.state is ChangeState.WAITING}
        groups = (
            ("RUNNING", [one for one in shown if not one.state.over]),
            ("WAITING TO LAND", [one for one in shown if one.state.over and one.id in waiting]),
            ("OVER", [one for one in shown if one.state.over and one.id not in waiting]),
        )
        rows: list[Row] = []
        for heading, members in groups:
            if members:
                rows += [Row("", f" {heading}"), *(_session_row(one, one.id in waiting, now) for one in members)]
                rows.append(Row("", ""))
        return rows[:-1]

    def _draw_session(self) -> None:
        session = self.session
        self._draw_about(self.app.now())
        transcript = self.query_one("#transcript", Transcript)
        if session is None:
            transcript.clear(empty="choose a session")
        else:
            transcript.follow(session, self.app.transcript)
        self._draw_change()

    def _draw_about(self, now: datetime) -> None:
        session = self.session
        self.query_one("#about", Drawn).show(lambda width: _about(session, now, width) if session else [])

    def _draw_change(self) -> None:
        session, change = self.session, self.change
        check = (change.check if change else None) or (session.check if session else None)
        lines = [Content.styled(_change_words(change, session), "$wants" if _waits(change) else "$grey")]
        if change and change.note:
            lines.append(Content.styled(f"▲ {words.one_line(change.note)}", "$wants"))
        if check:
            lines.append(_check_words(check))
        landed = change is not None and change.state is ChangeState.LANDED
        hints = ("land", "branch", "discard") if _waits(change) else ("undo",) if landed else ()
        if hints:
            keys = self.app.keymap
            lines.append(
                Content("   ").join(
                    Content.assemble((shown_key(f"work.{action}", keys), "$accent"), f" {action}") for action in hints
                )
            )
        self.put("#verdict", Content("\n").join([*lines, Content("")]))
        files = change.files if change else ()
        self.query_one("#files", Rows).show([_file_row(one) for one in files])
        self.query_one("#files").display = bool(files)
        self.query_one("#diff").display = bool(files)
        self.set_class(change is None and check is None, "-nothing")
        self._draw_tabs()
        self.refresh_bindings()
        wanted = change.id if change else ""
        if wanted != self._diff_of:
            self._diff_of, self._diffs = wanted, {}
            self.query_one("#diff", LinesView).clear(empty="reading …" if wanted else "")
            engine = self.app.engine
            if wanted and engine is not None:
                self.run_worker(
                    self._read_diff(wanted, lambda: engine.changes.diff(wanted)), group="diff", exclusive=True
                )

    async def _read_diff(self, change_id: str, read: Callable[[], list[FileDiff]]) -> None:
        try:
            diffs = await asyncio.to_thread(read)
        except Refusal as refusal:
            self.query_one("#diff", LinesView).clear(empty=str(refusal))
            return
        if change_id == self._diff_of:
            self._diffs = {one.path: one for one in diffs}
            self._draw_diff()

    def _draw_diff(self) -> None:
        view = self.query_one("#diff", LinesView)
        one = self._diffs.get(self.query_one("#files", Rows).current)
        if one is None:
            return
        view.clear()
        view.extend([("file", f"{one.old_path} → {one.path}" if one.old_path else one.path)], follow=False)
        view.extend(diff_lines(one.hunks), follow=False)
        if not one.hunks:
            view.extend([("note", "a binary file" if one.binary else "no lines changed")], follow=False)
        if one.cut:
            view.extend([("note", "… the rest is too long to show; `o` opens the folder")], follow=False)

    @on(Rows.Moved, "#sessions")
    def _session_moved(self) -> None:
        self._draw_session()

    @on(Rows.Moved, "#files")
    def _file_moved(self) -> None:
        self._draw_diff()

    @on(Rows.Opened, "#sessions")
    def _session_opened(self) -> None:
        self.go_to("transcript")

    @on(Rows.Opened, "#files")
    def _file_opened(self) -> None:
        self.go_to("diff")

    def output_grew(self, sessions: frozenset[str]) -> None:
        transcript = self.query_one("#transcript", Transcript)
        if transcript.session_id in sessions and self.app.transcript is not None:
            transcript.pull(self.app.transcript)

    # Filter

    def action_filter(self) -> None:
        self.go_to("sessions")
        box = self.query_one("#filter", Input)
        box.add_class("-shown")
        box.focus()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        self._filter = event.value
        self._draw_sessions(self.app.now())

    @on(Input.Submitted, "#filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        event.input.set_class(bool(event.value), "-shown")
        self.go_to("sessions")

    # What becomes of a change set

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing for this session are not offered."""
        if action in ("land", "branch", "discard"):
            return _waits(self.change)
        if action == "undo":
            return self.change is not None and self.change.state is ChangeState.LANDED
        if action == "stop":
            return self.session is not None and not self.session.state.over
        return super().check_action(action, parameters)

    def action_land(self) -> None:
        engine, change = self.app.live(), self._waiting_change()
        if engine is not None and change is not None:
            undo = shown_key("work.undo", self.app.keymap)
            done = f"landed {words.count(len(change.files), 'file')}; {undo} takes it back"
            self._carry_out(lambda: engine.changes.land(change.id), done)

    def action_branch(self) -> None:
        engine, change = self.app.live(), self._waiting_change()
        if engine is not None and change is not None:
            self.app.ask(
                lambda: engine.changes.branch(change.id), lambda made: self._done(f"committed to {made.branch}")
            )

    def action_discard(self) -> None:
        from clawpy_console.dialogs.confirm import Confirm

        engine, change = self.app.live(), self._waiting_change()
        if engine is None or change is None:
            return
        files = words.count(len(change.files), "changed file")
        question = f"{files} of “{words.one_line(change.title)}” will be gone for good."

        def answered(yes: bool | None) -> None:
            if yes:
                self._carry_out(lambda: engine.changes.discard(change.id), "discarded")

        self.app.push_screen(Confirm("Throw the changes away?", question, key="X", word="discard"), answered)

    def action_undo(self) -> None:
        engine, change = self.app.live(), self.change
        if engine is None:
            return
        if change is None or change.state is not ChangeState.LANDED:
            self.app.say("nothing landed from this session", "warning")
            return
        self._carry_out(lambda: engine.changes.undo(change.id), "the landing is taken back")

    def action_stop(self) -> None:
        engine, session = self.app.live(), self.session
        if engine is None or session is None:
            return
        if session.state.over:
            self.app.say("this session is over", "warning")
            return
        self.app.ask(
            lambda: engine.sessions.stop(session.id, "stopped by the operator"), lambda _: self._done("stopped")
        )

    def action_open_folder(self) -> None:
        if (session := self.session) is not None:
            self.app.open_shell(session.cwd)

    def _waiting_change(self) -> ChangeSet | None:
        change = self.change
        if not _waits(change):
            self.app.say("nothing of this session waits to be landed", "warning")
            return None
        return change

    def _carry_out(self, call: Callable[[], object], done: str) -> None:
        self.app.ask(call, lambda _: self._done(done))

    def _done(self, text: str) -> None:
        self.app.say(text)
        self.app.renew(["changes", "sessions", "cards", "place"])

    def copy_text(self) -> str:
        return self.session.id if self.session else ""


def _waits(change: ChangeSet | None) -> bool:
    """Whether it can be landed, branched or discarded: a landing that was taken back can be landed again."""
    return change is not None and change.state in (ChangeState.WAITING, ChangeState.UNDONE)


def _ended(session: SessionView) -> tuple[str, str, str]:
    """Glyph, colour and word of how a session stands. One that ran to its end and found red tests says so."""
    check = session.check
    if session.state is SessionState.SUCCEEDED and check is not None and check.failed + check.errors:
        return "▲", "wants", f"ran, {check.failed + check.errors} red"
    glyph, style = STATES[session.state]
    return glyph, style, session.state.value


def _session_row(session: SessionView, waits: bool, now: datetime) -> Row:
    mark, style = ("▸", "wants") if waits else _ended(session)[:2]
    if session.state is SessionState.RUNNING and session.started_at:
        right = words.running(now - session.started_at)
    else:
        right = words.span(now - (session.ended_at or session.created_at))
    text = words.one_line(session.prompt)
    return Row(session.id, text, mark, right, "ink" if waits or not session.state.over else "grey", style)


def _file_row(file) -> Row:  # type: ignore[no-untyped-def]
    mark, style = MARKS.get(file.status, ("~", "accent"))
    counts = "binary" if file.added is None else f"+{file.added} -{file.removed}"
    name = f"{file.old_path} → {file.path}" if file.old_path else file.path
    return Row(file.path, name, mark, counts, "ink", style, "faint")


def _about(session: SessionView, now: datetime, width: int) -> list[Content]:
    glyph, style, how = _ended(session)
    end = session.ended_at or now
    took = words.running(end - session.started_at) if session.started_at else "not started"
    place = f"{words.name(session.workspace)} → {session.channel} · {session.flow or session.runner} · {session.mode}"
    money = f" · {words.money(session.cost)}"
    if session.tokens:
        money += f" · {words.tokens(session.tokens)} tokens"
    said = words.one_line(session.error or session.summary)
    lines = [
        *Content.styled(words.one_line(session.prompt), "bold $ink").wrap(width)[:2],
        Content.assemble((f"{glyph} {how}", f"${style}"), (f"  {took}{money}", "$grey")),
        Content.styled(words.crop(place, width), "$grey"),
        Content.styled(words.crop(session.sandbox, width), "$faint"),
        Content.styled(words.crop(session.cwd, width), "$faint"),
    ]
    if said and session.state.over:
        lines[-3:-3] = Content.styled(said, "$wrong" if session.error else "$ink").wrap(width)[:2]
    return lines


def _change_words(change: ChangeSet | None, session: SessionView | None) -> str:
    if change is None:
        return "nothing changed" if session is None or session.state.over else "nothing yet"
    files = words.count(len(change.files), "file")
    return {
        ChangeState.WAITING: f"▸ {files} waiting to be landed",
        ChangeState.LANDED: f"✓ {files} landed",
        ChangeState.BRANCHED: f"✓ {files} on branch {change.branch}",
        ChangeState.DISCARDED: f"{files} discarded",
        ChangeState.UNDONE: f"↶ {files}, landing taken back",
    }[change.state]


def _check_words(check: CheckResult) -> Content:
    counts = f"{check.passed} passed"
    if check.failed or check.errors:
        counts = f"{check.failed + check.errors} failed, {counts}"
    glyph, style = ("✓", "$grey") if check.green else ("✗", "$wrong")
    head = Content.assemble((f"{glyph} {check.tool}: {counts}", style), (f"  {check.seconds:.1f} s", "$faint"))
    return Content("\n").join(
        [head, *(Content.styled(f"  {words.one_line(one)}", "$grey") for one in check.failing[:5])]
    )

"""The actions of the work screen on a session of an agent: permissions, replies, comments, X-ray (SPEC 9.3 to 9.6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from clawpy_console import external_programs, formats
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import bindings, format_key
from clawpy_console.screens.base import ConsoleScreen, find_next_choice
from clawpy_console.screens.diff_view import DiffView
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.transcript import LinesView, find_row_starts
from engine.model import Card, ChangeSet, PermissionAnswer, PermissionRequest, Refusal, SessionView

if TYPE_CHECKING:
    from clawpy_console.console import Console

REQUEST_GUARD_S = 0.6
"""Seconds after the request on screen changed in which no key answers it."""

MAX_DETAIL_LINES = 12
"""Maximum number of lines of the detail that are in sight."""

MAX_HEIGHT_PERCENT = 60
"""Maximum height of the pane, in per cent of the screen's height."""

OTHER_LINES = 9
"""Lines of the pane besides the detail: frame, head and keys."""

ANSWER_KEYS = (
    ("asked.once", "allow once"),
    ("asked.session", "allow for this session"),
    ("asked.deny", "deny"),
    ("asked.never", "deny for this session"),
)
"""Ids of the actions that answer a request, with their labels."""

OWN_VERBS = frozenset({"run", "fetch"})
"""First words of titles whose other words are the whole of what is asked for."""

DIFF_KINDS = {"+": "added", "-": "removed", "@": "hunk"}
"""The kind of a line of a diff, by its first character."""


class PermissionPane(Vertical):
    """Shows one permission request of a session at a time; hidden when there is none.

    A key answers the request that is on screen. For a moment after another one appeared no key answers, so that text
    which the operator was typing allows nothing.
    """

    DEFAULT_CSS = """
    PermissionPane { height: auto; max-height: 60%; display: none; border: round $wants; padding: 0 1; margin: 0 1;
        border-title-color: $wants; border-title-style: bold; border-subtitle-color: $grey;
        &.-shown { display: block; }
        & > ReflowingText { height: auto; }
        & > LinesView { height: auto; max-height: 12; margin: 0 0 0 1; }
    }
    """

    _detail = getters.query_one("#asked-detail", LinesView)

    app: Console
    clock = staticmethod(time.monotonic)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.requests: tuple[PermissionRequest, ...] = ()
        """The requests of the session under the cursor."""
        self._selected_id = ""  # of the request that is to be shown
        self._shown_id = ""  # of the request that is on screen
        self._changed_at = float("-inf")  # when another request came on screen

    def compose(self) -> ComposeResult:
        yield ReflowingText(id="asked-head")
        yield LinesView(id="asked-detail", signs={"": " "}, max_lines=60_000, follow_end=False)
        yield ReflowingText(id="asked-keys")

    @property
    def current(self) -> PermissionRequest | None:
        """The request on screen."""
        selected = next((request for request in self.requests if request.id == self._selected_id), None)
        return selected or next(iter(self.requests), None)

    @property
    def answerable(self) -> PermissionRequest | None:
        """The request that a key answers now; None for `REQUEST_GUARD_S` after another one came on screen."""
        request = self.current
        if request is None or request.id != self._shown_id or self.clock() - self._changed_at < REQUEST_GUARD_S:
            return None
        return request

    def show(self, requests: Sequence[PermissionRequest]) -> None:
        """Show one of `requests`, those of the session under the cursor. The one on screen stays while it is among
        them."""
        self.requests = tuple(requests)
        request = self.current
        self.set_class(request is not None, "-shown")
        if request is None:
            self._shown_id = self._selected_id = ""
            return
        self._selected_id = request.id
        number = self.requests.index(request) + 1
        position = f"  {number} of {len(self.requests)}" if len(self.requests) > 1 else ""
        self.border_title = Content(f"▲ {request.agent} asks{position}")
        self.border_subtitle = Content(
            f"{request.tool} · waits {formats.duration(self.app.now() - request.asked_at)} · {request.id}"
        )
        if request.id != self._shown_id:
            self._shown_id = request.id
            self._changed_at = self.clock()
            self._show_detail(request)
        self.query_one("#asked-head", ReflowingText).show(lambda width: self._make_head_lines(request, width))
        self.query_one("#asked-keys", ReflowingText).show(
            lambda width: _make_key_lines(self.app.keymap, len(self.requests), width)
        )

    def _show_detail(self, request: PermissionRequest) -> None:
        view = self._detail
        view.clear()
        is_diff = request.detail.startswith(("@@", "--- ", "diff "))  # or looks like one: every line is shown whole
        lines = request.detail.splitlines()
        view.extend((DIFF_KINDS.get(line[:1], "same") if is_diff else "output", line) for line in lines)

    def _make_head_lines(self, request: PermissionRequest, width: int) -> list[Content]:
        """The title and the reason. The detail is hidden if the title shows all of it, else it gets the room that head
        and keys leave, so that these are always in sight."""
        title = Content.styled(one_line(request.title), "bold $ink").wrap(width)
        why = Content.assemble(("why  ", "$faint"), (one_line(request.reason), "$grey"))
        lines = [*title[:2], *why.wrap(width)[:2]]
        verb, _, subject = request.title.partition(" ")
        shown = (request.title, subject) if verb in OWN_VERBS else (request.title,)
        detail = request.detail.strip()
        self._detail.display = bool(detail) and (len(title) > 2 or detail not in shown)
        row_width = max(8, width - 3)  # without the margin, the sign and the scrollbar
        row_count = sum(len(find_row_starts(line, row_width)) for line in request.detail.splitlines())
        room = max(1, min(MAX_DETAIL_LINES, self.screen.size.height * MAX_HEIGHT_PERCENT // 100 - OTHER_LINES))
        self._detail.styles.height = max(1, min(room, row_count))
        if row_count > room and self._detail.display:
            hint = f"▼ {formats.count(row_count - room, 'line')} more below: ⇥ goes there, then scroll"
            lines.append(Content.styled(crop(hint, width), "$wants"))
        return lines

    def select_next(self) -> None:
        """Select the next of several requests; the next `show` draws it."""
        if (request := self.current) is not None:
            self._selected_id = find_next_choice(self.requests, request).id


def _make_key_lines(keymap: Mapping[str, str], request_count: int, width: int) -> list[Content]:
    pairs = [
        Content.assemble((format_key(action, keymap), "bold $wants"), (f" {label}", "$grey"))
        for action, label in ANSWER_KEYS
    ]
    if request_count > 1:
        pairs.append(Content.assemble((format_key("asked.next", keymap), "$accent"), (" next", "$grey")))
    lines: list[Content] = []
    for pair in pairs:
        if lines and lines[-1].cell_length + 3 + pair.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "   ", pair)
        else:
            lines.append(pair)
    return lines


class ReplyLine(Input):
    """The line in which a reply or a comment is written; hidden until `open`.

    What is sent goes to what the line was opened for, wherever the cursor stands by then.
    """

    BINDINGS = bindings("reply")
    DEFAULT_CSS = """
    ReplyLine { display: none; height: 3; margin: 0 1; border-title-color: $accent; border-subtitle-color: $grey;
        &.-shown { display: block; }
    }
    """

    class Closed(Message):
        """The line was closed."""

    _about = ""
    """The id of what the text is about, such as a session."""

    _on_text: Callable[[str], object]

    def open(
        self,
        about: str,
        title: str,
        on_text: Callable[[str], object],
        *,
        enter_hint: str,
        placeholder: str,
        text: str = "",
    ) -> None:
        """Open the line with `text` in it, else with what was left there about the same thing. `on_text` gets what is
        sent."""
        if about != self._about or text:
            self.value = text
        self._about, self._on_text = about, on_text
        self.border_title, self.border_subtitle = Content(title), Content(f"⏎ {enter_hint}")
        self.placeholder = placeholder
        self.add_class("-shown")
        self.screen.set_focus(self)  # at once: the next key is text

    def action_close(self) -> None:
        self.remove_class("-shown")
        self.post_message(self.Closed())

    async def action_submit(self) -> None:
        if text := self.value.strip():
            self.value = ""
            self.action_close()
            self._on_text(text)


class SessionActions(ConsoleScreen):
    """Base of a screen that has a `PermissionPane`, a `DiffView`, a `ReplyLine` and a session under the cursor."""

    _permission_pane = getters.query_one(PermissionPane)
    _reply_line = getters.query_one(ReplyLine)
    _diff = getters.query_one(DiffView)

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        raise NotImplementedError

    @property
    def change(self) -> ChangeSet | None:
        """The change set of the session under the cursor."""
        raise NotImplementedError

    # Permissions

    def action_answer(self, answer: str) -> None:
        """Answer the request that is shown, unless it came only just now."""
        if (request := self._permission_pane.answerable) is None:
            return
        permission = PermissionAnswer(answer)

        def on_refusal(refusal: Refusal) -> None:
            self.app.show_toast(str(refusal), "warning")
            self.app.reload(["permissions"])

        self.app.call_engine(
            lambda engine: engine.permissions.answer(request.id, permission),
            lambda _: self.app.report(f"{permission.words}: {request.title}", "permissions", "sessions"),
            on_refusal,
        )

    def action_next_request(self) -> None:
        self._permission_pane.select_next()
        self.refresh_state(frozenset({"permissions"}))

    # Replies

    def action_reply(self) -> None:
        if (session := self.session) is not None:
            self._open_reply_line(session)

    def _open_reply_line(self, session: SessionView, text: str = "") -> None:
        """Open the line for a reply to `session`, with `text` in it."""
        agent = session.agent or session.channel
        if session.state.over:
            title, enter_hint = f"continue {agent}", "creates a card that continues it"
            placeholder = "what should it do next?"
        else:
            title, enter_hint, placeholder = f"tell {agent}", "send", "read at its next turn"
        self._reply_line.open(
            session.id,
            title,
            lambda reply: self._send_reply(session, reply),
            enter_hint=enter_hint,
            placeholder=placeholder,
            text=text,
        )

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

    def _find_latest(self, session: SessionView) -> SessionView:
        """`session` as it is now."""
        return next((listed for listed in self.state.sessions if listed.id == session.id), session)

    def _send_reply(self, session: SessionView, text: str) -> None:
        """Send `text` to the agent of a running session; make a card of it that continues a session that is over."""

        def on_refusal(refusal: Refusal) -> None:
            self.app.show_toast(str(refusal), "warning")
            self.app.reload(["sessions"])
            self._open_reply_line(
                self._find_latest(session), text
            )  # if it ended meanwhile, the same text can continue it

        def on_card(card: Card) -> None:
            self.app.show_toast("This card continues it.")
            self.app.open("mission", card)

        if self._find_latest(session).state.over:
            self.app.cards.continue_session(session, text, on_card)
        else:
            self.app.call_engine(
                lambda engine: engine.sessions.reply(session.id, text),
                lambda _: self.app.show_toast(f"Sent. {session.agent or session.channel} reads it at its next turn."),
                on_refusal,
            )

    # Comments

    def action_comment(self) -> None:
        """Open the line for a comment on the line of the diff under the cursor."""
        change, commented = self.change, self._diff.comment_place
        if change is None or commented is None:
            return
        path, line, old = commented
        location = f"{path}:{line}{' before the change' if old else ''}"

        def add_comment(text: str) -> None:
            self.app.carry_out(
                lambda engine: engine.changes.comments.add(change.id, path, line, text, old=old),
                "Comment added.",
                "changes",
            )

        self._reply_line.open(
            f"{change.id} {location}",
            f"comment on {location}",
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
        change, session = self.change, self.session
        if change is None or session is None:
            return

        def send(unsent: tuple[str, tuple[int, ...]]) -> None:
            text, numbers = unsent

            def on_card(_: Card) -> None:
                self.app.call_engine(
                    lambda engine: engine.changes.comments.mark_sent(change.id, numbers),
                    lambda _: self.app.reload(["changes"]),
                )
                self.app.show_toast(f"The card that sends your comments waits for you: {self.key_of('app.mission')}")

            self.app.cards.continue_session(session, text, on_card)

        self.app.call_engine(lambda engine: engine.changes.comments.make_unsent_message(change.id), send)

    # X-ray and the folder

    def action_xray(self) -> None:
        from clawpy_console.screens.xray import XRay, open_source

        if (session := self.session) is not None:
            self.app.ask(XRay(session), lambda source: open_source(self.app, source, session.id))

    def action_open_folder(self) -> None:
        session = self.session
        if session is not None and session.gone:
            self.app.show_toast(f"{session.gone}. What it changed is in the pane on the right.", "warning")
        elif session is not None:
            notice = "" if session.state.over else "The session keeps working there."
            agent = "" if session.state.over else ", where its agent still works"
            name = crop(one_line(session.prompt), 60)
            external_programs.open_shell(
                self.app, session.cwd, notice=notice, banner=f"The worktree of “{name}”{agent}"
            )

"""What the work screen does with a session of an agent: permissions, replies, X-ray (SPEC 9.3, 9.4, 9.6).

A key answers the request that is on screen, and none for a moment after that one changed: who was typing something
else allows nothing by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from clawpy_console import outside, words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.outside import lead_to
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.lines import LinesView
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.session import waits
from engine.model import Card, PermissionAnswer, PermissionRequest, PromptSource, Refusal, SessionView


class ReplyLine(Input):
    """Hidden until `write`. What is sent goes to what it was opened for, wherever the cursor stands then."""

    BINDINGS = bindings("reply")
    DEFAULT_CSS = """
    ReplyLine { display: none; height: 3; margin: 0 1; border-title-color: $accent; border-subtitle-color: $grey;
        &.-shown { display: block; }
    }
    """

    class Closed(Message):
        """You left it."""

    _about = ""
    _then: Callable[[str], object]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drafts: dict[str, str] = {}  # what was begun and not sent, by what it is about

    def write(
        self, about: str, title: str, hint: str, asks: str, then: Callable[[str], object], text: str = ""
    ) -> None:
        """Open the line, with `text` in it; what was begun about the same thing is still there. `hint` says what Enter
        does, `asks` stands in the empty line, `then` gets what is sent."""
        if about != self._about or text:
            self._drafts[self._about] = self.value
            self.value = text or self._drafts.get(about, "")
        self._about, self._then = about, then
        self.border_title, self.border_subtitle, self.placeholder = Content(title), Content(f"⏎ {hint}"), asks
        self.add_class("-shown")
        self.screen.set_focus(self)  # at once: the next key is text

    def action_close(self) -> None:
        self.remove_class("-shown")
        self.post_message(self.Closed())

    async def action_submit(self) -> None:
        if text := self.value.strip():
            self.value = ""
            self.action_close()
            self._then(text)


GUARD_S = 0.6
"""Seconds after the request on screen changed in which no key answers it."""

MAX_DETAIL_LINES, MAX_HEIGHT_PERCENT, OTHER_LINES = 12, 60, 9
"""Lines of the detail at most; per cent of the screen's height, all in all; rows of the rest: frame, head, keys."""

KEYS = (
    ("asked.once", "allow once"),
    ("asked.session", "allow for this session"),
    ("asked.deny", "deny"),
    ("asked.never", "deny for this session"),
)


DIFF = {"added": "+", "removed": "-", "": " "}
"""The sign before a line of a diff, by its kind."""


class PermissionPane(Vertical):
    """Shows one request of a session at a time; hidden when there is none."""

    DEFAULT_CSS = """
    PermissionPane { height: auto; max-height: 60%; display: none; border: round $wants; padding: 0 1; margin: 0 1;
        border-title-color: $wants; border-title-style: bold; border-subtitle-color: $grey;
        &.-shown { display: block; }
        & > ReflowingText { height: auto; }
        & > LinesView { height: auto; max-height: 12; margin: 0 0 0 1; }
    }
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.clock = clock
        self.requests: tuple[PermissionRequest, ...] = ()
        """Those of the session under the cursor."""
        self._wanted = ""
        self._shown = ""
        self._changed_at = float("-inf")
        self._lines = 0  # of the detail

    def compose(self) -> ComposeResult:
        yield ReflowingText(id="asked-head")
        yield LinesView(id="asked-detail", gutter=DIFF, cap=60_000, tail=False)
        yield ReflowingText(id="asked-keys")

    @property
    def current(self) -> PermissionRequest | None:
        """The request on screen."""
        chosen = next((request for request in self.requests if request.id == self._wanted), None)
        return chosen or (self.requests[0] if self.requests else None)

    @property
    def settled(self) -> PermissionRequest | None:
        """What a key answers now; None in the moment after it changed."""
        request = self.current
        steady = request is not None and request.id == self._shown and self.clock() - self._changed_at >= GUARD_S
        return request if steady else None

    def show(self, requests: Sequence[PermissionRequest], now: datetime, keymap: Mapping[str, str]) -> None:
        """The requests of the session under the cursor. The one on screen stays there while it is among them."""
        self.requests = tuple(requests)
        request = self.current
        self.set_class(request is not None, "-shown")
        if request is None:
            self._shown = self._wanted = ""
            return
        self._wanted = request.id
        number = self.requests.index(request) + 1
        many = f"  {number} of {len(self.requests)}" if len(self.requests) > 1 else ""
        self.border_title = Content(f"▲ {request.agent} asks{many}")
        self.border_subtitle = Content(
            f"{request.tool} · waits {words.duration(now - request.asked_at)} · {request.id}"
        )
        if request.id != self._shown:
            self._shown = request.id
            self._changed_at = self.clock()
            self._show_detail(request)
        hidden = self._fit()
        self.query_one("#asked-head", ReflowingText).show(lambda width: _head(request, width, hidden))
        self.query_one("#asked-keys", ReflowingText).show(lambda width: _keys(keymap, len(self.requests), width))

    def _show_detail(self, request: PermissionRequest) -> None:
        view = self.query_one("#asked-detail", LinesView)
        view.clear()
        view.display = bool(request.detail.strip()) and request.detail.strip() != request.title
        is_diff = request.detail.startswith(("@@", "--- ", "diff "))
        lines = (
            list(diff_lines(request.detail)) if is_diff else [("output", line) for line in request.detail.splitlines()]
        )
        view.extend(lines)
        self._lines = len(lines) if view.display else 0

    def _fit(self) -> int:
        """Give the detail the room that head and keys leave it, so that these are always in sight; returns how many of
        its lines are not."""
        room = max(1, min(MAX_DETAIL_LINES, self.screen.size.height * MAX_HEIGHT_PERCENT // 100 - OTHER_LINES))
        self.query_one("#asked-detail", LinesView).styles.height = max(1, min(room, self._lines))
        return max(0, self._lines - room)

    def next(self) -> None:
        """Show the next of several."""
        if (request := self.current) is not None:
            place = self.requests.index(request)
            self._wanted = self.requests[(place + 1) % len(self.requests)].id


def _head(request: PermissionRequest, width: int, hidden: int) -> list[Content]:
    why = Content.assemble(("why  ", "$faint"), (words.one_line(request.reason), "$grey"))
    lines = [*Content.styled(words.one_line(request.title), "bold $ink").wrap(width)[:2], *why.wrap(width)[:2]]
    if hidden:
        hint = f"▼ {words.count(hidden, 'line')} more below: ⇥ goes there, then scroll"
        lines.append(Content.styled(words.crop(hint, width), "$wants"))
    return lines


def _keys(keymap: Mapping[str, str], many: int, width: int) -> list[Content]:
    pairs = [
        Content.assemble((shown_key(action, keymap), "bold $wants"), (f" {label}", "$grey")) for action, label in KEYS
    ]
    if many > 1:
        pairs.append(Content.assemble((shown_key("asked.next", keymap), "$accent"), (" next", "$grey")))
    lines: list[Content] = []
    for pair in pairs:
        if lines and lines[-1].cell_length + 3 + pair.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "   ", pair)
        else:
            lines.append(pair)
    return lines


def diff_lines(text: str) -> Iterable[tuple[str, str]]:
    """A unified diff as lines with their kinds."""
    for line in text.splitlines():
        if line.startswith("@@"):
            yield "hunk", line
        elif line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file", "similarity", "rename ")):
            continue  # the file is named above, in words
        elif line.startswith("+"):
            yield "added", line[1:]
        elif line.startswith("-"):
            yield "removed", line[1:]
        else:
            yield "same", line[1:]


class Conversing(ConsoleScreen):
    """Base of a screen that has an `PermissionPane`, a `ReplyLine` and a session under the cursor."""

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        raise NotImplementedError

    # Permissions

    def action_answer(self, answer: str) -> None:
        if (request := self.query_one(PermissionPane).settled) is None:
            return
        permission = PermissionAnswer(answer)
        label = ("allowed" if permission.allows else "denied") + (" for this session" if permission.lasts else "")

        def done(_: object) -> None:
            self.app.say(f"{label}: {request.title}")
            self.app.renew(["permissions", "sessions"])

        def on_refusal(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            self.app.renew(["permissions"])

        self.app.ask(lambda engine: engine.permissions.answer(request.id, permission), done, on_refusal)

    def action_next_request(self) -> None:
        self.query_one(PermissionPane).next()
        self.refresh_state(frozenset({"permissions"}))

    # Replies

    def action_reply(self) -> None:
        if (session := self.session) is not None:
            self._reply(session)

    def _reply(self, session: SessionView, text: str = "") -> None:
        """Open the line for a reply to `session`, with `text` in it."""
        over, who = session.state.over, session.agent or session.channel
        title, hint = ("continue", "creates a card that continues it") if over else ("tell", "send")
        asks = "what should it do next?" if over else "read at its next turn"
        line = self.query_one(ReplyLine)
        line.write(session.id, f"{title} {who}", hint, asks, lambda reply: self._send_reply(session, reply), text)

    @on(ReplyLine.Closed)
    def _reply_closed(self) -> None:
        column = next((item for item in ("left", "right") if self.has_class(f"-at-{item}")), "middle")
        self.go_to({"left": "sessions", "right": "diff"}.get(column, "transcript"))

    def _latest(self, session: SessionView) -> SessionView:
        """The session as it is now."""
        return next((session_now for session_now in self.state.sessions if session_now.id == session.id), session)

    def _send_reply(self, session: SessionView, text: str) -> None:
        def on_refusal(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            if refusal.code == "not_running":  # it ended while you wrote: the same words can continue it
                self.app.renew(["sessions"])
                self._reply(self._latest(session), text)

        def on_card(card: Card) -> None:
            self.app.say("The card that continues it is on top.")
            self.app.open("mission", card)

        if self._latest(session).state.over:
            self.app.cards.continue_session(session, text, on_card)
        else:
            notice = "told"
            self.app.ask(
                lambda engine: engine.sessions.reply(session.id, text), lambda _: self.app.say(notice), on_refusal
            )

    # X-ray and the folder

    def action_xray(self) -> None:
        from clawpy_console.screens.work.xray import XRay

        session = self.session
        if session is None:
            return

        def on_choice(source: PromptSource | None) -> None:
            if source is not None:
                lead_to(self.app, source, session.id)

        self.app.push_screen(XRay(session), on_choice)

    def action_open_folder(self) -> None:
        session = self.session
        if session is not None and session.gone:
            self.app.say(f"{session.gone}: {self._instead_of_folder(session)}", "warning")
        elif session is not None:
            says = "" if session.state.over else "The session keeps working there."
            agent = "" if session.state.over else ", where its agent still works"
            name = words.crop(words.one_line(session.prompt), 60)
            outside.open_shell(self.app, session.cwd, says=says, banner=f"The worktree of “{name}”{agent}")

    def _instead_of_folder(self, session: SessionView) -> str:
        """What there is to do about a session whose folder is gone."""
        change, keys = self.app.state.change_of(session), self.app.keymap
        if waits(change):
            land, branch = shown_key("work.land", keys), shown_key("work.branch", keys)
            folder = f"For a folder: {branch} makes a branch, `git worktree add FOLDER BRANCH` opens it"
            return f"{land} lands it. {folder}"
        return "its diff is in the pane on the right" if change is not None else f"the files are in {session.workspace}"

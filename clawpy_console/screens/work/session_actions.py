"""The actions of the work screen on a session of an agent: permissions, replies, comments, X-ray (SPEC 9.3 to 9.6)."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from clawpy_console import external_programs
from clawpy_console.external_programs import open_source
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.work.diff_view import DiffView
from clawpy_console.screens.work.permission_pane import PermissionPane
from clawpy_console.widgets.session import is_waiting_to_land
from engine.model import Card, ChangeSet, PermissionAnswer, PromptSource, Refusal, SessionView


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

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drafts: dict[str, str] = {}  # texts that were begun and not sent, by what they are about

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
        """Open the line with `text` in it, else with the draft about the same thing. `on_text` gets what is sent."""
        if about != self._about or text:
            self._drafts[self._about] = self.value
            self.value = text or self._drafts.get(about, "")
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
        if (request := self.query_one(PermissionPane).answerable) is None:
            return
        permission = PermissionAnswer(answer)
        label = ("allowed" if permission.allows else "denied") + (" for this session" if permission.lasts else "")

        def on_refusal(refusal: Refusal) -> None:
            self.app.show_toast(str(refusal), "warning")
            self.app.reload(["permissions"])

        self.app.call_engine(
            lambda engine: engine.permissions.answer(request.id, permission),
            lambda _: self.app.report(f"{label}: {request.title}", "permissions", "sessions"),
            on_refusal,
        )

    def action_next_request(self) -> None:
        self.query_one(PermissionPane).select_next()
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
        self.query_one(ReplyLine).open(
            session.id,
            title,
            lambda reply: self._send_reply(session, reply),
            enter_hint=enter_hint,
            placeholder=placeholder,
            text=text,
        )

    @on(ReplyLine.Closed)
    def _reply_closed(self) -> None:
        if self.has_class("-at-left"):
            self.go_to("sessions")
        else:
            self.go_to("diff" if self.has_class("-at-right") else "transcript")

    def _latest(self, session: SessionView) -> SessionView:
        """`session` as it is now."""
        return next((listed for listed in self.state.sessions if listed.id == session.id), session)

    def _send_reply(self, session: SessionView, text: str) -> None:
        def on_refusal(refusal: Refusal) -> None:
            self.app.show_toast(str(refusal), "warning")
            if refusal.code == "not_running":  # it ended meanwhile: the same text can continue it
                self.app.reload(["sessions"])
                self._open_reply_line(self._latest(session), text)

        def on_card(card: Card) -> None:
            self.app.show_toast("The card that continues it is on top.")
            self.app.open("mission", card)

        if self._latest(session).state.over:
            self.app.cards.continue_session(session, text, on_card)
        else:
            self.app.call_engine(
                lambda engine: engine.sessions.reply(session.id, text),
                lambda _: self.app.show_toast("told"),
                on_refusal,
            )

    # Comments

    def action_comment(self) -> None:
        change, commented = self.change, self.query_one(DiffView).comment_at
        if change is None or commented is None:
            return
        path, line, old = commented
        place = f"{path}:{line}{' before the change' if old else ''}"

        def add_comment(text: str) -> None:
            self.app.call_engine(
                lambda engine: engine.changes.comments.add(change.id, path, line, text, old=old),
                lambda _: self.app.report("Comment added.", "changes"),
            )

        self.query_one(ReplyLine).open(
            f"{change.id} {place}",
            f"comment on {place}",
            add_comment,
            enter_hint="save",
            placeholder="what should be different here?",
        )

    @on(DiffView.RemoveComment)
    def _remove_comment(self, message: DiffView.RemoveComment) -> None:
        if (change := self.change) is not None:
            self.app.call_engine(
                lambda engine: engine.changes.comments.remove(change.id, message.number),
                lambda _: self.app.report("Comment removed.", "changes"),
            )

    def action_send_comments(self) -> None:
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
                self.app.show_toast("The card that sends your comments is on top. Approve it.")

            self.app.cards.continue_session(session, text, on_card)

        self.app.call_engine(lambda engine: engine.changes.comments.unsent(change.id), send)

    # X-ray and the folder

    def action_xray(self) -> None:
        from clawpy_console.screens.work.xray import XRay

        session = self.session
        if session is None:
            return

        def on_choice(source: PromptSource | None) -> None:
            if source is not None:
                open_source(self.app, source, session.id)

        self.app.push_screen(XRay(session), on_choice)

    def action_open_folder(self) -> None:
        session = self.session
        if session is not None and session.gone:
            self.app.show_toast(f"{session.gone}: {self._missing_folder_hint(session)}", "warning")
        elif session is not None:
            notice = "" if session.state.over else "The session keeps working there."
            agent = "" if session.state.over else ", where its agent still works"
            name = crop(one_line(session.prompt), 60)
            external_programs.open_shell(
                self.app, session.cwd, notice=notice, banner=f"The worktree of “{name}”{agent}"
            )

    def _missing_folder_hint(self, session: SessionView) -> str:
        """The keys or commands that still help with a session whose folder is gone."""
        change, keymap = self.app.state.change_of(session), self.app.keymap
        if is_waiting_to_land(change):
            land, branch = shown_key("work.land", keymap), shown_key("work.branch", keymap)
            folder = f"For a folder: {branch} makes a branch, `git worktree add FOLDER BRANCH` opens it"
            return f"{land} lands it. {folder}"
        return "its diff is in the pane on the right" if change is not None else f"the files are in {session.workspace}"

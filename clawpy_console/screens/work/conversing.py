"""What the work screen does with a session of an agent: reply, continue, permissions, X-ray (SPEC 9.3-9.6)."""

from __future__ import annotations

from textual import on

from clawpy_console import outside, words
from clawpy_console.keys import shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.work.permission import Asked
from clawpy_console.screens.work.reply import ReplyLine
from clawpy_console.sources import lead_to
from clawpy_console.widgets.session import waits
from engine.values import Card, PermissionAnswer, PromptSource, Refusal, SessionView


class Conversing(ConsoleScreen):
    """Base of a screen that has an `Asked`, a `ReplyLine` and a session under the cursor."""

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        raise NotImplementedError

    # Permissions

    def action_answer(self, answer: str) -> None:
        self.query_one(Asked).answer(PermissionAnswer(answer))

    def action_next_request(self) -> None:
        self.query_one(Asked).next()
        self.refresh_known(frozenset({"permissions"}))

    @on(Asked.Answered)
    def _answered(self, message: Asked.Answered) -> None:
        request, answer = message.request, message.answer
        said = ("allowed" if answer.allows else "denied") + (" for this session" if answer.lasts else "")

        def done(_: object) -> None:
            self.app.say(f"{said}: {request.title}")
            self.app.renew(["permissions", "sessions"])

        def refused(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            self.app.renew(["permissions"])

        self.app.ask(lambda engine: engine.permissions.answer(request.id, answer), done, refused)

    # Replies

    def action_reply(self) -> None:
        if (session := self.session) is not None:
            self.query_one(ReplyLine).open(session)

    @on(ReplyLine.Closed)
    def _left(self) -> None:
        column = next((one for one in ("left", "right") if self.has_class(f"-at-{one}")), "middle")
        self.go_to({"left": "sessions", "right": "diff"}.get(column, "transcript"))

    @on(ReplyLine.Said)
    def _said(self, message: ReplyLine.Said) -> None:
        self._left()
        session = next((one for one in self.known.sessions if one.id == message.session.id), message.session)
        if session.state.over:
            self._continue(session, message.text)
        else:
            self._tell(session, message.text)

    def _tell(self, session: SessionView, text: str) -> None:
        def refused(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            if refusal.code == "not_running":  # it ended while he wrote: the same words can continue it
                self.app.renew(["sessions"])
                now = next((one for one in self.known.sessions if one.id == session.id), session)
                self.query_one(ReplyLine).open(now, text)

        self.app.ask(lambda engine: engine.sessions.reply(session.id, text), lambda _: self.app.say("told"), refused)

    def _continue(self, session: SessionView, text: str) -> None:
        def made(card: Card) -> None:
            self.app.say("The card that continues it is on top.")
            self.app.open("mission", card)

        self.app.cards.continue_session(session, text, made)

    # X-ray and the folder

    def action_xray(self) -> None:
        from clawpy_console.screens.work.xray import XRay

        session = self.session
        if session is None:
            return

        def chosen(source: PromptSource | None) -> None:
            if source is not None:
                lead_to(self.app, source, session.id)

        self.app.push_screen(XRay(session), chosen)

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
        change, keys = self.app.known.change_of(session), self.app.keymap
        if waits(change):
            land, branch = shown_key("work.land", keys), shown_key("work.branch", keys)
            folder = f"For a folder: {branch} makes a branch, `git worktree add FOLDER BRANCH` opens it"
            return f"{land} lands it. {folder}"
        return "its diff is in the pane on the right" if change is not None else f"the files are in {session.workspace}"

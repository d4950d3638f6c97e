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
from engine.model import Card, PermissionAnswer, PromptSource, Refusal, SessionView


class Conversing(ConsoleScreen):
    """Base of a screen that has an `Asked`, a `ReplyLine` and a session under the cursor."""

    @property
    def session(self) -> SessionView | None:
        """The session under the cursor."""
        raise NotImplementedError

    # Permissions

    def action_answer(self, answer: str) -> None:
        if (request := self.query_one(Asked).settled) is None:
            return
        given = PermissionAnswer(answer)
        said = ("allowed" if given.allows else "denied") + (" for this session" if given.lasts else "")

        def done(_: object) -> None:
            self.app.say(f"{said}: {request.title}")
            self.app.renew(["permissions", "sessions"])

        def refused(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            self.app.renew(["permissions"])

        self.app.ask(lambda engine: engine.permissions.answer(request.id, given), done, refused)

    def action_next_request(self) -> None:
        self.query_one(Asked).next()
        self.refresh_known(frozenset({"permissions"}))

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
        line.write(session.id, f"{title} {who}", hint, asks, lambda said: self._said(session, said), text)

    @on(ReplyLine.Closed)
    def _left(self) -> None:
        column = next((one for one in ("left", "right") if self.has_class(f"-at-{one}")), "middle")
        self.go_to({"left": "sessions", "right": "diff"}.get(column, "transcript"))

    def _now(self, session: SessionView) -> SessionView:
        """The session as it is now."""
        return next((one for one in self.known.sessions if one.id == session.id), session)

    def _said(self, session: SessionView, text: str) -> None:
        def refused(refusal: Refusal) -> None:
            self.app.say(str(refusal), "warning")
            if refusal.code == "not_running":  # it ended while you wrote: the same words can continue it
                self.app.renew(["sessions"])
                self._reply(self._now(session), text)

        def made(card: Card) -> None:
            self.app.say("The card that continues it is on top.")
            self.app.open("mission", card)

        if self._now(session).state.over:
            self.app.cards.continue_session(session, text, made)
        else:
            told = "told"
            self.app.ask(lambda engine: engine.sessions.reply(session.id, text), lambda _: self.app.say(told), refused)

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

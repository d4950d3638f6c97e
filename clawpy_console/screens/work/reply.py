"""The line in which a reply is written: to a running session, or to a finished one, which is then continued."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from clawpy_console.keys import bindings
from engine.values import SessionView


class ReplyLine(Input):
    """Hidden until `open`. What is sent goes to the session it was opened for, wherever the cursor stands then."""

    BINDINGS = bindings("reply")
    DEFAULT_CSS = """
    ReplyLine { display: none; height: 3; margin: 0 1; border-title-color: $accent; border-subtitle-color: $grey;
        &.-shown { display: block; }
    }
    """

    class Said(Message):
        """The operator wrote `text` to `session`."""

        def __init__(self, session: SessionView, text: str) -> None:
            super().__init__()
            self.session, self.text = session, text

    class Closed(Message):
        """He left it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session: SessionView | None = None
        self._then: Callable[[str], None] | None = None

    def open(self, session: SessionView, text: str = "") -> None:
        """Write to `session`, beginning with `text`."""
        if self._session is None or self._session.id != session.id or text:
            self.value = text
        self._session, self._then = session, None
        over = session.state.over
        self.border_title = Content(f"{'continue' if over else 'tell'} {session.agent or session.channel}")
        self.border_subtitle = Content("⏎ creates a card that continues it" if over else "⏎ send")
        self.placeholder = "what should it do next?" if over else "read at its next turn"
        self.add_class("-shown")
        self.focus()

    def write(self, title: str, then: Callable[[str], None]) -> None:
        """Write something else: `then` gets it."""
        self.value, self.placeholder, self._session, self._then = "", "what should be different here?", None, then
        self.border_title, self.border_subtitle = Content(title), Content("⏎ save")
        self.add_class("-shown")
        self.focus()

    def close(self) -> None:
        """Hide; what was written is kept for the same session."""
        self.remove_class("-shown")

    def action_close(self) -> None:
        self.close()
        self.post_message(self.Closed())

    async def action_submit(self) -> None:
        text, session = self.value.strip(), self._session
        if text and session is not None:
            self.close()
            self.value = ""
            self.post_message(self.Said(session, text))
        elif text and self._then is not None:
            self.close()
            self.post_message(self.Closed())
            self._then(text)

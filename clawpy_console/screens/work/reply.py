"""The line in which you write to a session, or a comment on a line of its changes."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from clawpy_console.keys import bindings


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
        self._left: dict[str, str] = {}  # what was begun and not sent, by what it is about

    def write(
        self, about: str, title: str, hint: str, asks: str, then: Callable[[str], object], text: str = ""
    ) -> None:
        """Open the line, with `text` in it; what was begun about the same thing is still there. `hint` says what Enter
        does, `asks` stands in the empty line, `then` gets what is sent."""
        if about != self._about or text:
            self._left[self._about] = self.value
            self.value = text or self._left.get(about, "")
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

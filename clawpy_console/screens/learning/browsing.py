"""What the two screens behind key 5 share: the line that tells them apart, and the way to a session."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal

from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.tab_line import Columns, TabLine

BROWSES = (("candidates", "candidate"), ("learnings", "learning"))
"""The modes, and of which kind what waits there is."""


class Browsing(ConsoleScreen):
    """Base of a screen behind key 5. `SIDES` names what stands left and right, for a terminal that shows one side."""

    PLACE = "candidates"
    SIDES: ClassVar[tuple[str, str]] = ("", "")

    _read = False  # since the engine is open

    def read_again(self) -> None:
        """Read anew what the screen lists."""
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        self._read = self.app.engine is not None
        self.read_again()
        self.call_after_refresh(self.laid_out)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.laid_out)

    def laid_out(self) -> None:
        """Its parts have their sizes: columns are as wide as there is room for."""
        if self.ready:
            self.tick(self.app.now())

    def top(self) -> ComposeResult:
        """The first line of the body."""
        with Horizontal(id="top"):
            yield TabLine()
            yield Columns(id="tabs")

    def draw(self, changed: frozenset[str]) -> None:
        if not self._read and self.app.engine is not None:
            self._read = True
            self.read_again()
        if not changed or "waiting" in changed:
            waiting = self.known.waiting
            counts = {mode: sum(one.kind == kind for one in waiting) for mode, kind in BROWSES}
            tabs = [(mode, f"{count}" if count else "") for mode, count in counts.items()]
            self.query_one(TabLine).show(tabs, self.MODE)

    def draw_tabs(self) -> None:
        self.show_columns(dict(zip(("left", "right"), self.SIDES, strict=True)))

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self.draw_tabs()

    def lead_to_session(self, session_id: str) -> None:
        """Go to a session on the work screen, or say why that cannot be."""
        if not session_id:
            self.app.say("It does not come from a session.", "warning")
        elif any(one.id == session_id for one in self.known.sessions):
            self.app.open_session(session_id)
        else:
            self.app.say(
                "its session is older than those listed; at the end of their list in work (2) ⏎ lists more",
                "warning",
            )

    @on(TabLine.Chosen)
    async def _browse(self, message: TabLine.Chosen) -> None:
        await self.app.action_go(message.name)

"""Where to move an agent: leaders to choose from, and what each would change (SPEC 1.4, 1.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static
from textual.worker import Worker

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.lines import move_lines
from clawpy_console.screens.hierarchy.organisation import OWNER, searched
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.rows import Row, Rows
from engine.values import AgentView, MovePreview, Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

log = logging.getLogger(__name__)

SETTLED = 0.08
"""Seconds that the cursor rests on a leader before what changes is worked out."""


class MoveAgent(Dialog[str | None]):
    """Gives the id of the leader that was chosen, None on Escape. Nothing is moved here."""

    BINDINGS = bindings("moving")
    AUTO_FOCUS = "#wanted"
    DEFAULT_CSS = """
    MoveAgent #body { height: 1fr; }
    MoveAgent #leaders-pane { width: 32; margin: 0 1 0 0; }
    MoveAgent #change-pane { width: 1fr; padding: 0 1; border-left: vkey $line; scrollbar-size-vertical: 1; }
    MoveAgent #wanted { height: 3; }
    MoveAgent #change { height: auto; }
    MoveAgent KeyLine { background: $surface; dock: bottom; padding: 0; }
    """

    app: ConsoleApp

    def __init__(self, agent: AgentView, leaders: Sequence[AgentView]) -> None:
        """`leaders` are those it may be moved under, besides the owner."""
        super().__init__()
        self._agent, self._leaders = agent, leaders
        self._preview: MovePreview | None = None
        self._of = ""  # the leader that the preview is of
        self._refused: Refusal | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content(f"Move {words.crop(words.one_line(self._agent.id), 40)} under …")
            frame.border_subtitle = Content(f"now under {words.crop(words.one_line(self._agent.reports_to), 40)}")
            with Horizontal(id="body"):
                with Vertical(id="leaders-pane"):
                    yield Input(placeholder="name, title, domain, tier 3", id="wanted")
                    yield Rows(id="leaders", empty="No match.", classes="-lit")
                with VerticalScroll(id="change-pane", can_focus=False):
                    yield Drawn(id="change")
            yield Static(id="said", classes="note", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#leaders", Rows).can_focus = False
        self._list()
        self.query_one("#leaders", Rows).select(self._agent.reports_to)

    def _list(self) -> None:
        needle = self.query_one("#wanted", Input).value.lower().split()
        rows = []
        if all(word in OWNER for word in needle):
            rows.append(self._row(OWNER, "you", ""))
        for one in self._leaders:
            if all(word in searched(one) for word in needle):
                rows.append(self._row(one.id, words.one_line(one.id), f"{one.tier}"))
        self.query_one("#leaders", Rows).show(rows)
        self._moved()

    def _row(self, id: str, text: str, tier: str) -> Row:
        here = id == self._agent.reports_to
        return Row(id, text if id != OWNER else OWNER, "●" if here else " ", tier, "grey" if here else "ink", "grey")

    @property
    def leader(self) -> str:
        """The leader under the cursor."""
        return self.query_one("#leaders", Rows).current

    @on(Input.Changed, "#wanted")
    def _typed(self) -> None:
        self._list()
        self.query_one("#leaders", Rows).action_first()

    @on(Rows.Moved, "#leaders")
    def _moved(self) -> None:
        leader = self.leader
        if leader == self._of:
            return
        self._of, self._preview, self._refused = leader, None, None
        self._draw()
        engine = self.app.live()
        if engine is None or not leader:
            return

        async def work() -> None:
            await asyncio.sleep(SETTLED)
            try:
                self._preview = await asyncio.to_thread(engine.wisdom.preview_move, self._agent.id, leader)
            except Refusal as refusal:
                self._refused = refusal
            except Exception as error:  # said here; Enter tries the move, which says it again
                log.exception("the preview of a move failed")
                self._refused = Refusal("failed", f"{type(error).__name__}: {error}", f"see {self.app.home.logs}")
            self._draw()

        _: Worker[None] = self.run_worker(work, group="preview", exclusive=True)

    def _draw(self) -> None:
        preview, refused, leader = self._preview, self._refused, self._of
        pane = self.query_one("#change", Drawn)
        if refused is not None:
            pane.show(lambda width: Content.styled(f"✗ {refused}", "$wrong").wrap(width))
        elif preview is not None:
            pane.show(lambda width: move_lines(preview, self._agent.id, leader, width))
        else:
            pane.show(lambda width: [Content.styled("Working out the preview…" if leader else "", "$grey")])
        self.query_one("#change-pane").scroll_home(animate=False)

    def action_up(self) -> None:
        self.query_one("#leaders", Rows).action_up()

    def action_down(self) -> None:
        self.query_one("#leaders", Rows).action_down()

    def action_page(self, by: int) -> None:
        pane = self.query_one("#change-pane", VerticalScroll)
        pane.scroll_to(y=pane.scroll_offset.y + by * max(1, pane.size.height - 1), animate=False)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Take the leader under the cursor, once what that changes was shown."""
        if self._preview is None or not self._of:
            self._say(
                "One moment: the preview is not ready yet." if self._refused is None else "It cannot be moved there."
            )
        elif self._of == self._agent.reports_to:
            self._say(f"{self._agent.id} is under {self._of} already")
        else:
            self.dismiss(self._of)

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(Content.styled(f"▲ {text}", "$wants"))

    def action_close(self) -> None:
        self.dismiss(None)

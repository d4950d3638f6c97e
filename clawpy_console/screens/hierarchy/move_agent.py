"""Where to move an agent: leaders to choose from, and what each would change (SPEC 1.4, 1.5)."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import words
from clawpy_console.dialogs.preview import PreviewDialog
from clawpy_console.fields import Document, Field
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.agent import moved
from clawpy_console.screens.hierarchy.organisation import OWNER, searched
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.rows import Row, Rows
from engine import dispatch
from engine.model import AgentView

SETTLED = 0.08
"""Seconds that the cursor rests on a leader before what changes is worked out."""


class MoveAgent(PreviewDialog[str | None]):
    """Gives the id of the leader that was chosen, None on Escape. Nothing is moved here."""

    BINDINGS = bindings("moving", "preview")
    AUTO_FOCUS = "#wanted"
    DEFAULT_CSS = """
    MoveAgent #leaders-pane { width: 32; margin: 0 1 0 0; }
    MoveAgent #pane { border-left: vkey $line; }
    MoveAgent #wanted { height: 3; }
    """

    def __init__(self, agent: AgentView, leaders: Sequence[AgentView]) -> None:
        """`leaders` are those it may be moved under, besides the owner."""
        super().__init__()
        self._agent = agent
        self._leaders = {OWNER: (OWNER, "")} | {one.id: (searched(one), f"{one.tier}") for one in leaders}
        self._leader = ""  # whose preview is shown, or worked out
        self._previewed = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content(f"Move {words.crop(self._agent.id, 40)} under …")
            frame.border_subtitle = Content(f"now under {words.crop(self._agent.reports_to, 40)}")
            with Horizontal(id="body"):
                with Vertical(id="leaders-pane"):
                    yield Input(placeholder="name, title, domain, tier 3", id="wanted")
                    yield Rows(id="leaders", empty="No match.", classes="-lit")
                with VerticalScroll(id="pane", can_focus=False):
                    yield Drawn(id="change")
            yield Static(id="said", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self._rows.can_focus = False
        self._list("")
        self._rows.select(self._agent.reports_to)

    @property
    def _rows(self) -> Rows:
        return self.query_one("#leaders", Rows)

    def _list(self, needle: str) -> None:
        self._rows.show(
            [
                Row(id, id, *(("●", tier, "grey") if id == self._agent.reports_to else (" ", tier, "ink")), "grey")
                for id, (text, tier) in self._leaders.items()
                if all(word in text for word in needle.lower().split())
            ]
        )
        self._moved()

    @on(Input.Changed, "#wanted")
    def _typed(self, event: Input.Changed) -> None:
        self._list(event.value)
        self._rows.action_first()

    @on(Rows.Moved, "#leaders")
    def _moved(self) -> None:
        leader = self._rows.current
        if leader == self._leader:
            return
        self._leader, self._previewed = leader, False
        self.show([Field("", "Working out the preview…", "grey")] if leader else [])
        if leader:
            asked = {"id": self._agent.id, "reportsTo": leader}
            self.preview(lambda engine: dispatch(engine, "guidance", asked), self._show, wait=SETTLED)

    def _show(self, document: Document) -> None:
        self._previewed = True
        self.say("")
        self.show([Field("", f"{self._agent.id} under {self._leader}", "title"), *moved(document)])

    def action_step(self, by: int) -> None:
        self._rows.action_step(by)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Take the leader under the cursor, once what that changes was shown."""
        if self._leader == self._agent.reports_to:
            self.say(f"▲ {self._agent.id} is under {self._leader} already.")
        elif self._previewed:
            self.dismiss(self._leader)

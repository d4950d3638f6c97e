"""A new agent: its name, what it is for, whom it reports to (SPEC 1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from engine.values import AgentView, Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

FIELDS = (
    ("id", "id: a lower-case letter, then a-z, 0-9, _ and -"),
    ("title", "title, in words"),
    ("archetype", "archetype, for its tier: lead, builder, junior … or nothing"),
    ("domain", "domain, in words: what it knows about"),
)


class NewAgent(Dialog[AgentView | None]):
    """Creates an agent under `leader`; gives it, or None. A refusal is said here, and nothing typed is lost."""

    BINDINGS = bindings("member")
    AUTO_FOCUS = "#id"

    app: ConsoleApp

    def __init__(self, leader: str) -> None:
        super().__init__()
        self._leader = leader

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(f"A new agent under {self._leader}")
            for name, hint in FIELDS:
                yield Input(placeholder=hint, id=name)
            yield Static(id="said", classes="note", markup=False)
            keys = Content.assemble(("^s", "$accent"), " create     ", ("esc", "$accent"), " cancel")
            yield Static(keys, classes="note", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.input.id == FIELDS[-1][0]:
            self.action_make()
        else:
            self.focus_next()

    def action_make(self) -> None:
        engine = self.app.live()
        if engine is None:
            return
        said = {name: self.query_one(f"#{name}", Input).value.strip() for name, _ in FIELDS}
        if not said["id"]:
            self._refused(Refusal("bad_id", "The id is missing.", "a lower-case letter, then a-z, 0-9, _ and -"))
            return
        self.app.ask(
            lambda: engine.hierarchy.add(
                said["id"],
                reports_to=self._leader,
                title=said["title"],
                archetype=said["archetype"],
                domain=said["domain"],
            ),
            self.dismiss,
            self._refused,
        )

    def _refused(self, refusal: Refusal) -> None:
        self.query_one("#said", Static).update(Content.styled(f"✗ {refusal}", "$wrong"))

    def action_close(self) -> None:
        self.dismiss(None)

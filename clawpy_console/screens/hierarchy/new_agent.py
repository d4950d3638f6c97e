"""A new agent: its name, what it is for, and its leader (SPEC 1.1)."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console.dialogs.base import Dialog
from clawpy_console.keys import bindings
from engine.model import AgentView, Refusal

ID = "a lower-case letter, then a-z, 0-9, _ and -"

FIELDS = {
    "id": f"id: {ID}",
    "title": "title, in words",
    "archetype": "archetype, sets its tier: lead, builder, junior … (optional)",
    "domain": "domain, in words: what it knows about",
}


class NewAgent(Dialog[AgentView | None]):
    """Creates an agent under `leader`; gives it, or None. After a refusal the fields keep what you typed."""

    BINDINGS = bindings("member")
    AUTO_FOCUS = "#id"

    def __init__(self, leader: str) -> None:
        super().__init__()
        self._leader = leader

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(f"A new agent under {self._leader}")
            for name, hint in FIELDS.items():
                yield Input(placeholder=hint, id=name)
            yield Static(id="said", classes="note", markup=False)
            keys = Content.assemble(("^s", "$accent"), " create     ", ("esc", "$accent"), " cancel")
            yield Static(keys, classes="note", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.input.id == [*FIELDS][-1]:
            self.action_make()
        else:
            self.focus_next()

    def action_make(self) -> None:
        said = {name: self.query_one(f"#{name}", Input).value.strip() for name in FIELDS}
        agent_id = said.pop("id")
        if not agent_id:
            self.refuse(Refusal("bad_id", "The id is missing.", ID))
        else:
            self.app.ask(
                lambda engine: engine.hierarchy.add(agent_id, reports_to=self._leader, **said),
                self.dismiss,
                self.refuse,
            )

"""Dialogs of the hierarchy screen: edit a leader's profile, move an agent, create an agent (SPEC 1.1, 1.4, 1.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static, TextArea

from clawpy_console.dialogs.base import Dialog, PreviewDialog
from clawpy_console.dialogs.edit import EditDialog
from clawpy_console.fields import Document, Field
from clawpy_console.fields.agent import edited_fields, moved_fields
from clawpy_console.formats import crop
from clawpy_console.keys import bindings
from clawpy_console.screens.agent_tree import OWNER, search_text
from clawpy_console.widgets.bars import KeyLine, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine import dispatch
from engine.model import AgentView, LeaderProfile, ProfileEdit, Refusal

if TYPE_CHECKING:
    from engine import Engine


TYPING_DEBOUNCE_S = 0.3
"""Seconds without a key before the preview of an edit is computed."""

CURSOR_DEBOUNCE_S = 0.08
"""Seconds that the cursor stays on a leader before the preview of a move is computed."""

ID_HINT = "a lower-case letter, then a-z, 0-9, _ and -"

NEW_AGENT_FIELDS = {
    "id": f"id: {ID_HINT}",
    "title": "title, in words",
    "archetype": "archetype, sets its tier: lead, builder, junior … (optional)",
    "domain": "domain, in words: what it knows about",
}
"""The fields of a new agent, each with its hint."""


class EditProfile(PreviewDialog[bool], EditDialog):  # styles come by the first base
    """Edits the profile of a leader. Gives True when it was saved."""

    BINDINGS = bindings("profile", "preview")
    DEFAULT_CLASSES = "-alone"
    DEFAULT_CSS = """
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    """

    def __init__(self, before: LeaderProfile, text: str) -> None:
        """`text` is the profile as it is edited."""
        super().__init__()
        self._before, self.original = before, text
        self._edits: tuple[ProfileEdit, ...] | None = ()  # None until their preview is shown

    def compose(self) -> ComposeResult:
        with self.frame(f"Guidance from {self._before.leader}", classes="-whole"):
            with Horizontal(id="body"):
                yield self.editor()
                with VerticalScroll(id="pane", can_focus=False):
                    yield ReflowingText(id="change")
            yield Static(id="status", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show([Field("", "Edit the text. The prompts that this changes are shown here.", "grey")])

    @on(TextArea.Changed)
    def _typed(self) -> None:
        self._edits, text = None, self.text
        self.preview(lambda engine: self._compute_edits(engine, text), self._show_edits, wait=TYPING_DEBOUNCE_S)

    def _compute_edits(self, engine: Engine, text: str) -> tuple[tuple[ProfileEdit, ...], Document]:
        edits = engine.profiles.parse_edits(self._before, text)
        preview = engine.cascade.preview_edits(self._before.leader, edits)
        prompts = [{"agents": change.agents, "changes": change.lines} for change in preview.changes]
        return edits, {"edits": edits, "fromSoul": preview.from_soul, "prompts": prompts}

    def _show_edits(self, result: tuple[tuple[ProfileEdit, ...], Document]) -> None:
        self._edits, document = result
        self.show_status("")
        self.show(edited_fields(document))

    def action_save(self) -> None:
        """Save the edits whose preview is shown."""
        leader, edits = self._before.leader, self._edits
        if edits is None:
            self.show_status("Not saved: what it changes is not shown yet.")
        elif not edits:
            self.show_status("Nothing has changed.", "$grey")
        else:
            self.app.call_engine(
                lambda engine: engine.profiles.edit(leader, edits),
                lambda _: self.dismiss(True),
                self.show_refusal,
            )


class MoveAgent(PreviewDialog[str | None]):
    """Asks for a leader to move an agent under. Gives the leader's id, None on Escape."""

    BINDINGS = bindings("moving", "preview")
    AUTO_FOCUS = "#leader-filter"
    DEFAULT_CSS = """
    MoveAgent #leaders-pane { width: 32; margin: 0 1 0 0; }
    MoveAgent #pane { border-left: vkey $line; }
    MoveAgent #leader-filter { height: 3; }
    """

    def __init__(self, agent: AgentView, leaders: Sequence[AgentView]) -> None:
        """`leaders`: the agents that it may be moved under, besides the owner."""
        super().__init__()
        self._agent = agent
        self._leaders = leaders
        self._leader_id = ""  # the leader under the cursor
        self._has_preview = False  # whether the preview of that leader is shown

    def compose(self) -> ComposeResult:
        title, subtitle = f"Move {crop(self._agent.id, 40)} under …", f"now under {crop(self._agent.reports_to, 40)}"
        with self.frame(title, subtitle, classes="-whole"):
            with Horizontal(id="body"):
                with Vertical(id="leaders-pane"):
                    yield Input(placeholder="name, title, domain, tier 3", id="leader-filter")
                    yield Rows(id="leaders", empty="No match.", classes="-lit")
                with VerticalScroll(id="pane", can_focus=False):
                    yield ReflowingText(id="change")
            yield Static(id="status", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self._rows.can_focus = False
        self._show_leaders("")
        self._rows.select(self._agent.reports_to)

    @property
    def _rows(self) -> Rows:
        return self.query_one("#leaders", Rows)

    def _show_leaders(self, needle: str) -> None:
        """List the leaders that have all words of `needle`."""
        candidates = [(OWNER, OWNER, "")]
        candidates += [(leader.id, search_text(leader), f"{leader.tier}") for leader in self._leaders]
        rows = []
        for id, text, tier in candidates:
            if has_words(text, needle.lower().split()):
                is_present = id == self._agent.reports_to
                rows.append(Row(id, id, "●" if is_present else " ", tier, "grey" if is_present else "ink", "grey"))
        self._rows.show(rows)
        self._leader_moved()

    @on(Input.Changed, "#leader-filter")
    def _typed(self, event: Input.Changed) -> None:
        self._show_leaders(event.value)
        self._rows.action_first()

    @on(Rows.Moved, "#leaders")
    def _leader_moved(self) -> None:
        leader_id = self._rows.current
        if leader_id == self._leader_id:
            return
        self._leader_id, self._has_preview = leader_id, False
        self.show([Field("", "Working out the preview…", "grey")] if leader_id else [])
        if leader_id:
            request = {"id": self._agent.id, "reportsTo": leader_id}
            self.preview(lambda engine: dispatch(engine, "guidance", request), self._show_move, wait=CURSOR_DEBOUNCE_S)

    def _show_move(self, document: Document) -> None:
        self._has_preview = True
        self.show_status("")
        self.show([Field("", f"{self._agent.id} under {self._leader_id}", "title"), *moved_fields(document)])

    def action_step(self, by: int) -> None:
        self._rows.action_step(by)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Choose the leader under the cursor, once its preview is shown."""
        if self._leader_id == self._agent.reports_to:
            self.show_status(f"▲ {self._agent.id} is under {self._leader_id} already.")
        elif self._has_preview:
            self.dismiss(self._leader_id)


class NewAgent(Dialog[AgentView | None]):
    """Creates an agent under `leader`, and gives it; None on Escape. After a refusal the fields keep their text."""

    BINDINGS = bindings("member")
    AUTO_FOCUS = "#id"

    def __init__(self, leader: str) -> None:
        super().__init__()
        self._leader = leader

    def compose(self) -> ComposeResult:
        with self.frame(f"A new agent under {self._leader}"):
            for name, hint in NEW_AGENT_FIELDS.items():
                yield Input(placeholder=hint, id=name)
            yield Static(id="status", classes="note", markup=False)
            keys = Content.assemble(("^s", "$accent"), " create     ", ("esc", "$accent"), " cancel")
            yield Static(keys, classes="note", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.input.id == [*NEW_AGENT_FIELDS][-1]:
            self.action_make()
        else:
            self.focus_next()

    def action_make(self) -> None:
        values = {name: self.query_one(f"#{name}", Input).value.strip() for name in NEW_AGENT_FIELDS}
        agent_id = values.pop("id")
        if not agent_id:
            self.show_refusal(Refusal("bad_id", "The id is missing.", ID_HINT))
        else:
            self.app.call_engine(
                lambda engine: engine.agents.add(agent_id, reports_to=self._leader, **values),
                self.dismiss,
                self.show_refusal,
            )

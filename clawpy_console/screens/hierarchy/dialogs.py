"""Dialogs of the hierarchy screen: a new agent, where to move one, the guidance of a leader (SPEC 1.1, 1.4, 1.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static, TextArea

from clawpy_console import words
from clawpy_console.dialogs.base import Dialog, PreviewDialog
from clawpy_console.fields import Document, Field
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.agent import edited_fields, moved_fields
from clawpy_console.screens.hierarchy.tree import OWNER, search_text
from clawpy_console.widgets.keyline import KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine import dispatch
from engine.model import AgentView, LeaderProfile, ProfileEdit, Refusal

if TYPE_CHECKING:
    from engine import Engine


TYPING_DEBOUNCE_S = 0.3
"""Seconds without a key before what the text changes is worked out."""


class EditProfile(PreviewDialog[bool]):
    """Edits a profile; True when it was saved."""

    BINDINGS = bindings("profile", "preview")
    DEFAULT_CLASSES = "-alone"
    AUTO_FOCUS = "#text"
    DEFAULT_CSS = """
    EditProfile #text { width: 1fr; height: 1fr; }
    EditProfile.-narrow #body { layout: vertical; }
    EditProfile.-narrow #text, EditProfile.-narrow #pane { width: 100%; height: 1fr; }
    """

    def __init__(self, before: LeaderProfile, text: str) -> None:
        """`text` is the profile as it is edited."""
        super().__init__()
        self._before, self._original = before, text
        self._edits: tuple[ProfileEdit, ...] | None = ()  # None until they are worked out and shown
        self._confirming_close = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -whole") as frame:
            frame.border_title = Content(f"Guidance from {self._before.leader}")
            with Horizontal(id="body"):
                yield TextArea(self._original, id="text", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
                with VerticalScroll(id="pane", can_focus=False):
                    yield ReflowingText(id="change")
            yield Static(id="said", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show([Field("", "Edit the text. The prompts that this changes are shown here.", "grey")])

    @on(TextArea.Changed, "#text")
    def _typed(self, event: TextArea.Changed) -> None:
        self._confirming_close, self._edits = False, None
        text = event.text_area.text
        self.preview(lambda engine: self._compute_edits(engine, text), self._show, wait=TYPING_DEBOUNCE_S)

    def _compute_edits(self, engine: Engine, text: str) -> tuple[tuple[ProfileEdit, ...], Document]:
        edits = engine.wisdom.profile_edits(self._before, text)
        preview = engine.wisdom.preview_profile(self._before.leader, edits)
        prompts = [{"agents": agents, "changes": lines} for agents, lines in preview.changes]
        return edits, {"edits": edits, "fromSoul": preview.from_soul, "prompts": prompts}

    def _show(self, result: tuple[tuple[ProfileEdit, ...], Document]) -> None:
        self._edits, document = result
        self.say("")
        self.show(edited_fields(document))

    def action_save(self) -> None:
        """Save what is shown beside the text, and nothing that was not shown."""
        leader, edits = self._before.leader, self._edits
        if edits is None:
            self.say("Not saved: what it changes is not shown yet.")
        elif not edits:
            self.say("Nothing has changed.", "$grey")
        else:
            self.app.ask(
                lambda engine: engine.wisdom.revise_profile(leader, edits), lambda _: self.dismiss(True), self.refuse
            )

    def action_close(self) -> None:
        if self.query_one("#text", TextArea).text == self._original or self._confirming_close:
            self.dismiss(False)
            return
        self._confirming_close = True
        self.say("▲ Not saved. Press the same key again to discard your edit.")


CURSOR_DEBOUNCE_S = 0.08
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
        self._leaders = {OWNER: (OWNER, "")} | {
            leader.id: (search_text(leader), f"{leader.tier}") for leader in leaders
        }
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
                    yield ReflowingText(id="change")
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
            request = {"id": self._agent.id, "reportsTo": leader}
            self.preview(lambda engine: dispatch(engine, "guidance", request), self._show, wait=CURSOR_DEBOUNCE_S)

    def _show(self, document: Document) -> None:
        self._previewed = True
        self.say("")
        self.show([Field("", f"{self._agent.id} under {self._leader}", "title"), *moved_fields(document)])

    def action_step(self, by: int) -> None:
        self._rows.action_step(by)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Take the leader under the cursor, once what that changes was shown."""
        if self._leader == self._agent.reports_to:
            self.say(f"▲ {self._agent.id} is under {self._leader} already.")
        elif self._previewed:
            self.dismiss(self._leader)


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
        values = {name: self.query_one(f"#{name}", Input).value.strip() for name in FIELDS}
        agent_id = values.pop("id")
        if not agent_id:
            self.refuse(Refusal("bad_id", "The id is missing.", ID))
        else:
            self.app.ask(
                lambda engine: engine.agents.add(agent_id, reports_to=self._leader, **values),
                self.dismiss,
                self.refuse,
            )

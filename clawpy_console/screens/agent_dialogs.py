"""The dialogs of the hierarchy: move an agent, create one, send findings up (SPEC 1.7, 9.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import formats
from clawpy_console.dialogs.base import Dialog, PreviewDialog, confirm
from clawpy_console.fields import Document, text_line
from clawpy_console.fields.agent import moved_fields
from clawpy_console.formats import crop
from clawpy_console.keys import bindings
from clawpy_console.screens.agent_tree import OWNER, search_text
from clawpy_console.widgets.frame import KeyLine, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine import dispatch
from engine.model import AgentView, Bubble, BubbleState, FlushReport, Refusal

if TYPE_CHECKING:
    from clawpy_console.console import Console

CURSOR_DEBOUNCE_S = 0.08
"""Seconds that the cursor stays on a leader before the preview of a move is computed."""


class MoveAgent(PreviewDialog[str | None]):
    """Asks for a leader to move an agent under. Gives the leader's id, None on Escape."""

    BINDINGS = bindings("moving", "preview")
    AUTO_FOCUS = "#leader-filter"
    DEFAULT_CSS = """
    MoveAgent #leaders-pane { width: 32; margin: 0 1 0 0; }
    MoveAgent #pane { border-left: vkey $line; }
    MoveAgent #leader-filter { height: 3; }
    """

    _rows = getters.query_one("#leaders", Rows)

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

    def _show_leaders(self, text: str) -> None:
        """List the leaders that have all words of `text`."""
        words, candidates = text.lower().split(), [(OWNER, OWNER, "")]
        candidates += [(leader.id, search_text(leader), f"{leader.tier}") for leader in self._leaders]
        rows = []
        for id, searched, tier in candidates:
            if has_words(searched, words):
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
        self.show([text_line("Working out the preview…", "grey")] if leader_id else [])
        if leader_id:
            request = {"id": self._agent.id, "reportsTo": leader_id}
            self.preview(lambda engine: dispatch(engine, "guidance", request), self._show_move, wait=CURSOR_DEBOUNCE_S)

    def _show_move(self, document: Document) -> None:
        self._has_preview = True
        self.show_status("")
        self.show([text_line(f"{self._agent.id} under {self._leader_id}", "title"), *moved_fields(document)])

    def action_step(self, by: int) -> None:
        self._rows.action_step(by)

    @on(Rows.Opened, "#leaders")
    def action_move(self) -> None:
        """Choose the leader under the cursor, once its preview is shown."""
        if self._leader_id == self._agent.reports_to:
            self.show_status(f"▲ {self._agent.id} is under {self._leader_id} already.")
        elif self._has_preview:
            self.dismiss(self._leader_id)


ID_HINT = "a lower-case letter, then a-z, 0-9, _ and -"

NEW_AGENT_FIELDS = {
    "id": f"id: {ID_HINT}",
    "title": "title, in words",
    "archetype": "archetype, sets its tier: lead, builder, junior … (optional)",
    "domain": "domain, in words: what it knows about",
}
"""The fields of a new agent, each with its hint."""


class NewAgent(Dialog[AgentView | None]):
    """Creates an agent under `leader`, and gives it; None on Escape. After a refusal the fields keep their text."""

    BINDINGS = bindings("new_agent")
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
            self.action_create()
        else:
            self.focus_next()

    def action_create(self) -> None:
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


# Findings that wait to be sent up (SPEC 1.7)


MAX_LISTED = 6
"""Maximum number of findings that the question lists."""


def send_findings(app: Console) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""

    def send() -> None:
        app.call_engine(lambda engine: engine.bubbles.flush(), lambda report: _report_sent(app, report))

    app.load_for_dialog(
        lambda engine: engine.bubbles.list(state=BubbleState.QUEUED),
        lambda queued: confirm(app, "Send these findings up now?", _findings_question(queued), "send up", send),
    )


def _findings_question(queued: Sequence[Bubble]) -> str:
    """The findings that would be sent up, and their effect."""
    ready = [finding for finding in queued if finding.may_guide]
    lines = [
        crop(f"▸ {finding.learning.agent} → {finding.leader}: {finding.learning.text}", 70)
        for finding in ready[:MAX_LISTED]
    ]
    if len(ready) > MAX_LISTED:
        lines.append(f"  and {len(ready) - MAX_LISTED:,} more")
    if len(ready) < len(queued):
        quotes = formats.count(len(queued) - len(ready), "quote")
        lines.append(f"  Not included: {quotes} that you have not approved yet (see “waiting for you”)")
    if not lines:
        return "Nothing is waiting. Findings of the last sessions are checked now."
    if ready:
        lines.append(
            "\nEach becomes a pattern of its leader and goes into the prompts of all agents below. To undo that, edit "
            "the guidance of the leader."
        )
    return "\n".join(lines)


def _report_sent(app: Console, report: FlushReport) -> None:
    up = sum(len(ids) for ids in report.flushed.values())
    remainder = f", {report.waiting:,} still waiting" if report.waiting else ""
    app.show_toast(f"{formats.count(up, 'finding')} sent up{remainder}")
    if report.failed:
        app.show_toast(f"The shared leadership could not be reached: {report.failed}. It is synced later.", "warning")
    app.reload(["agents", "changes"])

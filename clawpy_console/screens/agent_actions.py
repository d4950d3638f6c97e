"""What the operator can do with agents: the actions of the hierarchy screen, and their dialogs (SPEC 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from clawpy_console import external_programs, formats
from clawpy_console.dialogs.base import Answer, Dialog, PreviewDialog, Question, confirm
from clawpy_console.dialogs.edit import EditProfile, edit_file
from clawpy_console.fields import Document, text_line
from clawpy_console.fields.agent import find_broken_file, make_move_fields
from clawpy_console.formats import crop
from clawpy_console.keys import bindings
from clawpy_console.screens.agent_tree import OWNER, Node, Tree, collect_ids_below, make_search_text
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.widgets.frame import KeyLine, TabLine, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine import dispatch
from engine.model import AgentView, Bubble, BubbleState, FlushReport, LeaderProfile, Refusal, TeachingResult

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine


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
        with self.make_frame(title, subtitle, classes="-whole"):
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
        words = text.lower().split()
        tiers = {OWNER: ""} if has_words(OWNER, words) else {}
        tiers |= {leader.id: f"{leader.tier}" for leader in self._leaders if has_words(make_search_text(leader), words)}
        rows = []
        for id, tier in tiers.items():
            is_present = id == self._agent.reports_to
            rows.append(Row(id, id, "●" if is_present else " ", tier, "grey" if is_present else "ink", "grey"))
        self._rows.show(rows)
        self._on_leader_moved()

    @on(Input.Changed, "#leader-filter")
    def _on_typed(self, event: Input.Changed) -> None:
        self._show_leaders(event.value)
        self._rows.action_first()

    @on(Rows.Moved, "#leaders")
    def _on_leader_moved(self) -> None:
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
        self.show([text_line(f"{self._agent.id} under {self._leader_id}", "title"), *make_move_fields(document)])

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
        with self.make_frame(f"A new agent under {self._leader}"):
            for name, hint in NEW_AGENT_FIELDS.items():
                yield Input(placeholder=hint, id=name)
            yield Static(id="status", classes="note", markup=False)
            keys = Content.assemble(("^s", "$accent"), " create     ", ("esc", "$accent"), " cancel")
            yield Static(keys, classes="note", markup=False)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == [*NEW_AGENT_FIELDS][-1]:
            self.action_create()
        else:
            self.focus_next()

    def action_create(self) -> None:
        values = {name: self.query_one(f"#{name}", Input).value.strip() for name in NEW_AGENT_FIELDS}
        if agent_id := values.pop("id"):
            self.app.call_engine(
                lambda engine: engine.agents.add(agent_id, reports_to=self._leader, **values),
                self.dismiss,
                self.show_refusal,
            )
        else:
            self.show_refusal(Refusal("bad_id", "The id is missing.", ID_HINT))


# Findings that wait to be sent up (SPEC 1.7)


MAX_LISTED_FINDINGS = 6
"""Maximum number of findings that the question lists."""


def send_findings(app: Console) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""

    def send() -> None:
        app.call_engine(lambda engine: engine.bubbles.flush(), lambda report: _report_sent(app, report))

    app.load_for_dialog(
        lambda engine: engine.bubbles.list(state=BubbleState.QUEUED),
        lambda queued: confirm(app, "Send these findings up now?", _make_findings_question(queued), "send up", send),
    )


def _make_findings_question(queued: Sequence[Bubble]) -> str:
    """The findings that would be sent up, and their effect."""
    ready = [finding for finding in queued if finding.may_guide]
    lines = [
        crop(f"▸ {finding.learning.agent} → {finding.leader}: {finding.learning.text}", 70)
        for finding in ready[:MAX_LISTED_FINDINGS]
    ]
    if len(ready) > MAX_LISTED_FINDINGS:
        lines.append(f"  and {len(ready) - MAX_LISTED_FINDINGS:,} more")
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


TIER_ANSWERS = (
    Answer("1", "1", "core identity: leads and guides those below"),
    Answer("2", "2", "senior executive: leads"),
    Answer("3", "3", "junior leader: leads"),
    Answer("4", "4", "worker: receives guidance, sends findings up"),
    Answer("5", "5", "junior worker: receives guidance, sends findings up"),
    Answer("a", "auto", "set by archetype, name or default"),
)
"""The answers to the question for a tier."""

ASSIGNED_RULE = "tier_assignments"
"""The rule of a tier that the operator set begins with this."""

TEACHING_RESULTS = ("taught", "unchanged", "skipped")


class AgentActions(ConsoleScreen):
    """Base of the screen: the keys that change the agent under the cursor. The last change can be undone."""

    _last_change: tuple[str, Callable[[Engine], object]] | None = None
    """The message of the last change, and the call that undoes it."""

    _tree = getters.query_one("#tree", Tree)

    @property
    def node(self) -> Node | None:
        """The node under the cursor."""
        return self._tree.node

    @property
    def agent(self) -> AgentView | None:
        """The agent under the cursor, which may be retired."""
        return self.node.agent if self.node is not None else None

    @property
    def shows_profile(self) -> bool:
        """Whether the profile of a leader is shown."""
        raise NotImplementedError

    def show(self, agent_id: str) -> None:
        """Put the cursor on an agent, now or as soon as it is in the tree."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing here are not offered."""
        agent = self.agent if self.ready else None
        active = agent is not None and agent.activity.state != "retired"
        match action:
            case "tab":
                return self.ready and len(self.query_one(TabLine).tabs) > 1
            case "move":
                return agent is not None and active and not agent.broken
            case "edit" | "editor":
                return active and bool(self._file)
            case "tier" | "retire":
                return active
            case "restore":
                return agent is not None and not active
            case "undo":
                return self._last_change is not None
        return super().check_action(action, parameters)

    # Place and tier

    def action_move(self) -> None:
        """Move the agent under another leader, after a preview of what that changes."""
        agent = self.agent
        if agent is None:
            return

        def move(leader: str) -> None:
            self._change(
                f"{agent.id} reports to {leader} now",
                lambda engine: engine.agents.move(agent.id, leader),
                lambda engine, _: engine.agents.move(agent.id, agent.reports_to),
                select=agent.id,
            )

        subtree = {agent.id, *collect_ids_below(self.state.agents, agent.id)}
        leaders = [other for other in self.state.agents if not other.broken and other.id not in subtree]
        self.app.ask(MoveAgent(agent, leaders), move)

    def action_tier(self) -> None:
        """Set the tier of the agent, or let the rules decide."""
        agent = self.agent
        if agent is None:
            return
        before = agent.tier if agent.tier_rule.startswith(ASSIGNED_RULE) else None

        def set_tier(answer: Answer) -> None:
            tier = int(answer.label) if answer.label.isdigit() else None
            if tier != before:
                self._change(
                    f"{agent.id} is now tier {tier}" if tier else f"{agent.id}: tier set by the rules again",
                    lambda engine: engine.agents.assign_tier(agent.id, tier),
                    lambda engine, _: engine.agents.assign_tier(agent.id, before),
                )

        title = f"Which tier is {crop(agent.id, 40)}? Now {agent.tier}, by {crop(agent.tier_rule, 60)}"
        self.app.ask(Question(crop(title, 70), TIER_ANSWERS, present=str(before or "auto")), set_tier)

    # Files of an agent

    @property
    def _file(self) -> str:
        """The name of the file to edit: that of a broken agent that needs mending, "" when no file can mend it."""
        return find_broken_file(self.agent.broken) if self.agent and self.agent.broken else "soul.md"

    def action_edit(self) -> None:
        """Edit the profile of a leader where it is shown, else the file."""
        agent, name = self.agent, self._file
        if agent is None or not name:
            return
        if self.shows_profile and not agent.broken:
            self._edit_profile(agent.id)
        else:
            edit_file(self.app, agent.id, name, lambda: self.app.reload(["agents"]))

    def _edit_profile(self, leader: str) -> None:
        def read_profile(engine: Engine) -> tuple[LeaderProfile, str]:
            profile = engine.profiles.get(leader)
            return profile, engine.profiles.format(profile)

        def on_saved(_: bool) -> None:
            self._on_changed(f"Saved the guidance from {leader}", lambda engine: engine.profiles.undo(leader))

        self.app.load_for_dialog(read_profile, lambda result: self.app.ask(EditProfile(*result), on_saved))

    def action_editor(self) -> None:
        """Edit the file in the operator's own editor; what is saved there is shown by itself."""
        engine, agent, name = self.app.engine, self.agent, self._file
        if engine is not None and agent is not None and name:
            external_programs.open_editor(self.app, str(engine.agent_files.folder / agent.id / name))

    # Create and retire

    def action_new(self) -> None:
        """Create an agent below the one under the cursor."""
        agent = self.agent
        leader = agent.id if agent is not None and not agent.broken and agent.activity.state != "retired" else OWNER

        def on_created(new: AgentView) -> None:
            self._on_changed(f"Created {new.id}", lambda engine: engine.agents.retire(new.id), select=new.id)

        self.app.ask(NewAgent(leader), on_created)

    def action_retire(self) -> None:
        """Retire the agent, after a question; a reason against it is shown first."""
        if (agent := self.agent) is None:
            return
        title = f"Retire {crop(agent.id, 40)}?"
        question = "It runs nothing any more. Its folder and memory are kept. To restore it: the retired agents, below."

        def retire() -> None:
            self._change(
                f"{agent.id} is retired",
                lambda engine: engine.agents.retire(agent.id),
                lambda engine, name: engine.agents.restore(name),
            )

        self.app.load_for_dialog(
            lambda engine: engine.agents.check_retire(agent.id),
            lambda _: confirm(self.app, title, question, "retire", retire),
        )

    def action_restore(self) -> None:
        """Restore a retired agent."""
        agent = self.agent
        if agent is not None:
            agent_id = agent.id.partition(".")[0]
            self._change(
                f"{agent_id} is back under {agent.reports_to}",
                lambda engine: engine.agents.restore(agent.id),
                lambda engine, _: engine.agents.retire(agent_id),
                select=agent_id,
            )

    # Guidance and findings

    def action_teach(self) -> None:
        """Write guidance into the soul.md of every worker, after a question."""

        def on_taught(agents: list[TeachingResult]) -> None:
            counts = {result: sum(agent.outcome == result for agent in agents) for result in TEACHING_RESULTS}
            text = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
            self.app.report(text or "No workers.", "agents")

        question = (
            "The guidance of its leaders is written into the section “Inherited Wisdom” of every worker's soul.md. "
            "The rest of each file stays as it is; edits inside that section are overwritten."
        )

        def teach() -> None:
            self.app.call_engine(lambda engine: engine.teaching.teach_workers(), on_taught)

        confirm(self.app, "Teach every worker now?", question, "teach", teach)

    def action_flush(self) -> None:
        """Send findings that passed all gates to their leaders, after a question."""
        send_findings(self.app)

    # Change and undo

    def action_undo(self) -> None:
        """Undo the last change."""
        if self._last_change is None:
            return
        message, undo = self._last_change

        def on_undone(_: object) -> None:
            self._last_change = None
            self.app.report(f"Undone: {message}", "agents")
            self.refresh_bindings()

        self.app.call_engine(undo, on_undone)

    def _change(
        self,
        message: str,
        act: Callable[[Engine], Any],
        undo: Callable[[Engine, Any], object],
        *,
        select: str = "",
    ) -> None:
        """Call `act`, whose result `undo` gets; then put the cursor on the agent `select`, "" to leave it."""
        self.app.call_engine(
            act, lambda result: self._on_changed(message, lambda engine: undo(engine, result), select=select)
        )

    def _on_changed(self, message: str, undo: Callable[[Engine], object], *, select: str = "") -> None:
        self._last_change = message, undo
        self.app.report(f"{message}. Undo: {self.key_of('hierarchy.undo')}", "agents")
        if select:
            self.show(select)
        self.refresh_bindings()

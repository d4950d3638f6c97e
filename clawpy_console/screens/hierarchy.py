"""Screen 3, hierarchy: the tree of agents left, the agent under the cursor right (SPEC 1).

`agent_tree` has the tree, and `agent_changes` what keys do to the agent under the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import Field, text_line
from clawpy_console.fields import agent as agent_fields
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import bindings
from clawpy_console.screens import CURSOR_DEBOUNCE_S, ConsoleScreen
from clawpy_console.screens.agent_changes import (
    CHANGES,
    AgentChanges,
    can_change,
    find_editable_file,
    send_findings,
    teach_workers,
)
from clawpy_console.screens.agent_dialogs import edit_file, open_in_editor
from clawpy_console.screens.agent_tree import (
    AGENT_STATES,
    FOLD_PREFIX,
    GROUP_PREFIX,
    OWNER,
    FoldState,
    Node,
    Tree,
    find_leaders_above,
    make_tree_nodes,
)
from clawpy_console.screens.prompt_dialogs import PromptLines
from clawpy_console.widgets import Pane, Row, Rows, ScrollPane, group_rows
from clawpy_console.widgets.frame import TabLine
from clawpy_console.widgets.session import make_session_row
from clawpy_console.widgets.texts import Filter, Heading, ReflowingText
from engine import dispatch, document
from engine.frozen import frozen
from engine.model import AgentView, Bubble, BubbleState, PromptPart, SourceKind

if TYPE_CHECKING:
    from engine import Engine
    from engine.model import Guidance, SessionView

TABS = ("who", "guidance", "findings", "teaching", "work")
"""The tabs of an agent, in their order."""


@frozen
class AgentDetail:
    """What the tabs of an agent show, or those of the owner. There is no tab for what is None. `dict` is a document of
    the operation of the same name."""

    id: str
    who: Sequence[Field]
    guidance: dict[str, Any] | None = None
    guidance_block: Guidance | None = None
    """The guidance as it stands in the agent's prompts."""
    findings: Sequence[Bubble] | None = None
    """Its own findings and those that were sent up to it."""
    sessions: Sequence[SessionView] | None = None
    """Its sessions, newest first, in the tab "work"."""

    @property
    def tabs(self) -> list[str]:
        """The names of its tabs, from left to right."""
        contents = {
            "guidance": self.guidance,
            "findings": self.findings,
            "teaching": self.guidance,
            "work": self.sessions,
        }
        return [name for name in TABS if name == "who" or contents[name] is not None]


class HierarchyScreen(ConsoleScreen):
    """The tree left, the agent under its cursor right. All is read in threads. `AgentChanges` changes agents."""

    MODE = "hierarchy"
    PURPOSE = "Your agents: who leads whom, and the guidance, findings and cost of each."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#tree"
    BINDINGS = bindings("hierarchy", "filter")
    PANES = {"tree": "left", "items": "right", "story": "right", "block": "right"}
    FILTER_PANE = "tree"
    OWN_TOPICS = frozenset({"agents", "memory"})

    _tree = getters.query_one("#tree", Tree)
    _items = getters.query_one("#items", Rows)
    _story = getters.query_one("#story", ScrollPane)

    def __init__(self) -> None:
        super().__init__()
        self._changes = AgentChanges(self.app, self._on_agents_changed)
        self._folds = FoldState()
        self._chosen_tab = TABS[0]  # the tab that was chosen last, which not every agent has
        self._detail: AgentDetail | None = None  # None for a row that is no agent
        self._agent_to_select = ""  # as soon as it is in the tree

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with Pane(id="left"):
                yield Heading(id="tree-title")
                yield Filter("name, title, domain, channel, state, tier 4")
                yield Tree(id="tree", empty="Loading…")
            with Pane(id="right"):
                yield TabLine()
                yield Rows(id="items")
                with ScrollPane(id="story"):
                    yield ReflowingText(id="detail")
                yield PromptLines(id="block")

    def on_screen_resume(self) -> None:
        self.app.reload(["agents"])

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        if not changed or changed & {"agents", "retired"}:
            self._draw_tree()
            self.read_again()

    def draw_times(self) -> None:
        if self.tab == "work":
            self._draw_items()

    def apply_filter(self) -> None:
        self._draw_tree()
        rows = self._tree
        matches = [node.id for node in rows.nodes.values() if node.agent and node.matches]
        if self.filter_words and matches and rows.current not in matches:
            rows.select(matches[0])

    def _draw_tree(self) -> None:
        state, agent_id = self.state, self._agent_to_select
        agent = next((agent for agent in state.agents if agent.id == agent_id), None)
        if agent is not None:
            self._folds = self._folds.unfold_to(agent, [OWNER, *find_leaders_above(state.agents, [agent_id])])
        nodes = make_tree_nodes(state.agents, state.retired, folds=self._folds, words=self.filter_words)
        self._tree.show_nodes(nodes, empty=self.describe_empty_list("No agents yet."))
        if agent is not None:
            self._tree.select(agent_id)
            self._agent_to_select = ""
        self._draw_tree_title(sum(node.agent is not None and node.matches for node in nodes))

    def _draw_tree_title(self, match_count: int) -> None:
        """Draw how many agents there are, how many match the filter, and how many are running, waiting and broken."""
        state, badges = self.state, []
        total = f"{len(state.agents):,}"
        if self.filter_words:
            total = f"{match_count:,} of {total}"
        for status in ("running", "waiting", "broken"):
            label = AGENT_STATES[status]
            if count := sum(agent.activity.state == status for agent in state.agents):
                badges.append((f"  {count} {label.words}", f"${label.tone}"))
        self.show_content("#tree-title", Content.assemble("ORGANISATION  ", (total, "$grey"), *badges))

    @property
    def tab(self) -> str:
        """The tab that is shown."""
        return self._chosen_tab if self._chosen_tab in self._tabs else TABS[0]

    @property
    def _tabs(self) -> Sequence[str]:
        return self._detail.tabs if self._detail else ()

    def _draw_detail(self) -> None:
        """Draw the tab that is chosen."""
        self._draw_tab_line()
        self._draw_items()
        self._draw_guidance_block()
        self._draw_story()
        self.set_class(self.tab == "work", "-tab-work")
        if self.focused is not None and not self.focused.display:
            self._go_to_detail()
        self.draw_columns()
        self.refresh_bindings()

    def _draw_tab_line(self) -> None:
        counts = {
            "findings": len(self._detail.findings or ()) if self._detail else 0,
            "work": self.agent.activity.sessions if self.agent else 0,
        }
        names = self._tabs or (self.tab,)
        labels = [(name, f"{name} {counts.get(name) or ''}".rstrip()) for name in names]
        self.query_one(TabLine).show(labels, self.tab)

    def _draw_guidance_block(self) -> None:
        """Show the agent's guidance as it stands in its prompts, on the tab "guidance" only."""
        block = self.query_one("#block", PromptLines)
        guidance = self._detail.guidance_block if self._detail and self.tab == "guidance" else None
        block.display = guidance is not None and bool(guidance.lines)
        self.set_class(block.display, "-block")
        if guidance and block.display and block.prompt_text != guidance.block:
            block.show([PromptPart("leadership-guidance", guidance.lines, tokens=guidance.tokens)])
            block.seek(SourceKind.LEADER)

    def _draw_items(self) -> None:
        groups: dict[str, list[Row]] = {}
        if self._detail and self.tab == "findings":
            groups = self._make_finding_groups(self._detail)
        elif self._detail and self.tab == "work" and self.agent is not None:
            activity = self.agent.activity
            session_count, cost = formats.count(activity.sessions, "session"), formats.money(activity.total_cost)
            title = f"{session_count}  {activity.total_tokens:,} tokens  {cost}"
            groups = {
                title: [
                    make_session_row(session, self.now, self.state.make_place_prefix(session.workspace))
                    for session in self._detail.sessions or ()
                ]
            }
        rows = group_rows(groups)
        self._items.show(rows)
        self._items.display = bool(rows)

    def _make_finding_groups(self, detail: AgentDetail) -> dict[str, list[Row]]:
        """The findings of an agent itself, and those that others sent up to it, by their headings."""
        findings = detail.findings or ()
        own = [finding for finding in findings if finding.learning.agent == detail.id]
        others = [finding for finding in findings if finding.learning.agent != detail.id]
        titles = {"FOUND BY IT": own, "SENT UP TO IT" if self.agent else "ON THEIR WAY UP": others}
        return {
            f"{title}  {len(group)}": [_make_finding_row(finding, self.now) for finding in group]
            for title, group in titles.items()
        }

    def _draw_story(self) -> None:
        self.show_fields("#detail", self._make_tab_fields())
        self._story.display = self.tab != "work" or not (self._detail and self._detail.sessions)

    def _make_tab_fields(self) -> Iterable[Field]:
        """The fields of the tab that is shown."""
        detail = self._detail
        if detail is None:  # folded agents, or the heading of a group
            text = self.node.text if self.node is not None and self.node.agent is None else ""
            return [
                text_line(text),
                text_line(f"{self.key_of('tree.unfold')} shows these agents", "grey"),
            ]
        match self.tab:
            case "guidance" if detail.guidance is not None:
                return agent_fields.make_guidance_fields(detail.guidance)
            case "teaching" if detail.guidance is not None:
                return agent_fields.make_teaching_fields(detail.guidance["teaching"], self.now)
            case "findings":
                selected_id = self._items.current
                finding = next((finding for finding in detail.findings or () if finding.id == selected_id), None)
                return agent_fields.make_finding_fields(document(finding), self.now)
            case "work":
                return [text_line("No sessions yet.", "grey")]
            case _:
                return detail.who

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "organisation", "right": crop(self.agent.id if self.agent else OWNER, 40)}

    # Reading

    def read_again(self, wait: float = 0.0) -> None:
        """Read the detail of the row under the cursor, after `wait` seconds."""
        node = self.node
        if node is None or self.app.engine is None:
            return
        if node.agent is None and node.id != OWNER:
            self.workers.cancel_group(self, "detail")  # that of the row before
            self._show_detail(None)
        else:
            self.read(lambda engine: read_agent(engine, node.id), self._show_detail, group="detail", wait=wait)

    def _show_detail(self, detail: AgentDetail | None) -> None:
        is_other_agent = (self._detail and self._detail.id) != (detail and detail.id)
        self._detail = detail
        self._draw_detail()
        if is_other_agent:
            self._story.scroll_home(animate=False)

    # Moving about

    @property
    def node(self) -> Node | None:
        """The node under the cursor."""
        return self._tree.node

    @property
    def agent(self) -> AgentView | None:
        """The agent under the cursor, which may be retired."""
        return self.node.agent if self.node is not None else None

    def show(self, agent_id: str) -> None:
        """Put the cursor on an agent, now or as soon as it is in the tree."""
        self._agent_to_select = agent_id
        self.filter.close()
        self._draw_tree()

    @on(Rows.Moved, "#tree")
    def _on_row_moved(self) -> None:
        self.draw_columns()
        self.refresh_bindings()
        self.read_again(CURSOR_DEBOUNCE_S)

    @on(Tree.Fold)
    def _fold(self, message: Tree.Fold) -> None:
        node = self._tree.nodes.get(message.row_id)
        can_fold = node is not None and (node.open is not None or node.id.startswith(FOLD_PREFIX))
        if node is not None and can_fold and message.unfold in (None, not node.open):
            self._folds = replace(self._folds, toggled=self._folds.toggled ^ {node.id})
        self._draw_tree()

    def action_everyone(self) -> None:
        """Show agents that never worked, or fold them again."""
        show_all = not self._folds.show_all
        folded = frozenset(id for id in self._folds.toggled if not id.startswith(FOLD_PREFIX))
        self._folds = FoldState(self._folds.toggled if show_all else folded, show_all)
        self._draw_tree()
        self.app.show_toast("Showing all agents." if show_all else "Agents that have not worked yet are folded.")

    @on(Rows.Opened, "#tree")
    def _on_row_opened(self, message: Rows.Opened) -> None:
        if message.row_id.startswith((FOLD_PREFIX, GROUP_PREFIX)):
            self.post_message(Tree.Fold(message.row_id))
        else:
            self._go_to_detail()

    def _go_to_detail(self) -> None:
        """Go to the first pane of the tab."""
        self.go_to_first(("block", "story") if self.tab == "guidance" else ("items", "story"))

    def action_show_tab(self, name: str) -> None:
        """Show the tab `name`."""
        self._chosen_tab = name
        had_focus = self.pane not in ("tree", "")
        self._draw_detail()
        self._story.scroll_home(animate=False)
        if had_focus:
            self._go_to_detail()

    def action_tab(self, by: int) -> None:
        """Show the next tab, or with -1 the previous one."""
        names = self._tabs or (self.tab,)
        self.action_show_tab(names[(names.index(self.tab) + by) % len(names)])

    @on(Rows.Moved, "#items")
    def _on_item_moved(self) -> None:
        if self.tab == "findings":
            self._draw_story()

    @on(Rows.Opened, "#items")
    def _on_item_opened(self, message: Rows.Opened) -> None:
        if self.tab == "findings":
            self.go_to("story")
        elif any(session.id == message.row_id for session in self.state.sessions):
            self.app.open("work", message.row_id)
        else:
            self.app.show_toast("This session is older than those listed in work.", "warning")

    @on(PromptLines.Opened)
    def _on_line_opened(self, message: PromptLines.Opened) -> None:
        """Go from a line of the guidance to the leader that gives it."""
        if message.source.kind is SourceKind.LEADER:
            self.show(message.source.ref.partition("#")[0])
            self.go_to("tree")

    def leave(self) -> bool:
        return self.pane not in ("tree", "") and self.go_to("tree")

    def copy_text(self) -> str:
        return self.agent.id if self.agent else ""

    # Changes

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that can do nothing here are not offered."""
        match action:
            case "tab":
                return len(self._tabs) > 1
            case "change":
                return self.ready and self.agent is not None and can_change(self.agent, str(parameters[0]))
            case "edit" | "editor":
                return self.ready and bool(find_editable_file(self.agent))
            case "undo":
                return self._changes.can_undo
        return True

    def _on_agents_changed(self, agent_id: str) -> None:
        if agent_id:
            self.show(agent_id)
        self.refresh_bindings()

    def action_change(self, name: str) -> None:
        """Make the change `name` of the agent under the cursor."""
        if (agent := self.agent) is not None:
            CHANGES[name](self._changes, agent)

    def action_new(self) -> None:
        """Create an agent below the one under the cursor."""
        self._changes.create(self.agent)

    def action_edit(self) -> None:
        """Edit the profile of a leader where it is shown, else the file."""
        agent, name = self.agent, find_editable_file(self.agent)
        guidance = self._detail.guidance if self._detail else None
        if agent is None or not name:
            return
        if self.tab == "guidance" and guidance is not None and "profile" in guidance and not agent.broken:
            self._changes.edit_profile(agent.id)
        else:
            edit_file(self.app, agent.id, name, lambda: self.app.reload(["agents"]))

    def action_editor(self) -> None:
        """Edit the file in the operator's own editor; what is saved there is shown by itself."""
        if self.agent is not None and (name := find_editable_file(self.agent)):
            open_in_editor(self.app, self.agent.id, name)

    def action_teach(self) -> None:
        teach_workers(self.app)

    def action_flush(self) -> None:
        send_findings(self.app)

    def action_undo(self) -> None:
        """Undo the last change."""
        self._changes.undo()


def _make_finding_row(finding: Bubble, now: datetime) -> Row:
    label = agent_fields.FINDING_STATES[finding.state]
    if finding.refused_by:
        state, state_style = f"gate {finding.refused_by.number}", label.tone
    else:
        state, state_style = label.words, "grey"
    right = f"{state:<8} {formats.age(now - finding.at):>4}"
    return Row(finding.id, one_line(finding.learning.text), label.sign, right, "ink", label.tone, state_style)


MAX_ITEMS = 200
"""Maximum number of findings, and of sessions, of an agent that are listed."""


def read_agent(engine: Engine, id: str) -> AgentDetail:
    """The detail of an agent or of the owner. Blocking. Raises `Refusal` `unknown_agent`."""
    if id == OWNER:
        queued = engine.bubbles.list(state=BubbleState.QUEUED, limit=MAX_ITEMS)
        problems = agent_fields.make_problem_fields(dispatch(engine, "agents", {})["problems"])
        return AgentDetail(id, [Field("folder", str(engine.home.agents)), *problems], findings=queued)
    agent = dispatch(engine, "agents", {"action": "show", "id": id})
    detail = AgentDetail(id, [*agent_fields.make_agent_fields(agent)])
    if agent.get("retired"):
        return detail
    if not agent["agent"]["broken"]:
        guidance = dispatch(engine, "guidance", {"id": id})
        detail = replace(detail, guidance=guidance, guidance_block=engine.cascade.guidance(id))
    findings = engine.bubbles.list(agent=id, limit=MAX_ITEMS)
    return replace(detail, findings=findings, sessions=engine.sessions.list_newest(agent=id, limit=MAX_ITEMS))

"""Screen 3, hierarchy: the tree of agents left, the agent under the cursor right (SPEC 1).

`agent_tree` has the tree, and `agent_changes` what keys do to the agent under the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import Field, text_line
from clawpy_console.fields import agent as agent_fields
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.screens import CURSOR_DEBOUNCE_S, FilteredScreen
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
    OWNER_ID,
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

FIRST_TAB = "who"
"""The tab that is shown at first, and for an agent without the tab that was chosen."""


@frozen
class AgentDetail:
    """An agent, or the owner, as the tabs show it."""

    id: str
    contents: Mapping[str, Any]
    """What each tab shows, from left to right; see `TABS`. There is no tab for what is not there."""
    guidance_block: Guidance | None = None
    """The guidance as it stands in the agent's prompts."""


class HierarchyScreen(FilteredScreen):
    """The tree left, the agent under its cursor right. All is read in threads. `AgentChanges` changes agents."""

    MODE = "hierarchy"
    PURPOSE = "Your agents: who leads whom, and the guidance, findings and cost of each."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#tree"
    BINDINGS = make_bindings("hierarchy", "filter")
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
        self._chosen_tab = FIRST_TAB  # the tab that was chosen last, which not every agent has
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
        if not changed or changed & {"agents", "retired_agents"}:
            self._draw_tree()
            self.read_again()

    def draw_times(self) -> None:
        self._draw_items()

    def apply_filter(self) -> None:
        self._draw_tree()
        rows = self._tree
        matches = [node.id for node in rows.nodes.values() if node.agent and node.is_match]
        if self.filter_words and matches and rows.current not in matches:
            rows.select(matches[0])

    def _draw_tree(self) -> None:
        state = self.state
        agent_id = self._agent_to_select
        agent = next((agent for agent in state.agents if agent.id == agent_id), None)
        if agent is not None:
            self._folds = self._folds.unfold_to(agent, [OWNER_ID, *find_leaders_above(state.agents, [agent_id])])
        nodes = make_tree_nodes(state.agents, state.retired_agents, folds=self._folds, words=self.filter_words)
        self._tree.show_nodes(nodes, empty=self.describe_empty_list("No agents yet."))
        if agent is not None:
            self._tree.select(agent_id)
            self._agent_to_select = ""
        self._draw_tree_title(sum(node.agent is not None and node.is_match for node in nodes))

    def _draw_tree_title(self, match_count: int) -> None:
        """Draw how many agents there are, how many match the filter, and how many are running, waiting and broken."""
        state = self.state
        badges = []
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
        return self._chosen_tab if self._chosen_tab in self._tabs else FIRST_TAB

    @property
    def _tabs(self) -> Sequence[str]:
        return [*self._detail.contents] if self._detail else ()

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
        contents = self._detail.contents if self._detail else {self.tab: ()}
        labels = [
            (name, f"{name} {TABS[name].count_items(content, self)}".rstrip()) for name, content in contents.items()
        ]
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
        rows = group_rows(TABS[self.tab].make_groups(self._detail.contents[self.tab], self) if self._detail else {})
        self._items.show(rows)
        self._items.display = bool(rows)

    def _draw_story(self) -> None:
        fields = [*self._make_tab_fields()]
        self.show_fields("#detail", fields)
        self._story.display = bool(fields)

    def _make_tab_fields(self) -> Iterable[Field]:
        """The fields of the tab that is shown."""
        if self._detail is not None:
            return TABS[self.tab].make_fields(self._detail.contents[self.tab], self)
        # folded agents, or the heading of a group
        text = self.node.text if self.node is not None and self.node.agent is None else ""
        return [text_line(text), text_line(f"{self.key_of('tree.unfold')} shows these agents", "grey")]

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "organisation", "right": crop(self.agent.id if self.agent else OWNER_ID, 40)}

    # Reading

    def read_again(self, wait: float = 0.0) -> None:
        """Read the detail of the row under the cursor, after `wait` seconds."""
        node = self.node
        if node is None or self.app.engine is None:
            return
        if node.agent is None and node.id != OWNER_ID:
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
    def item_id(self) -> str:
        """The id under the cursor of the list on the right, "" for none."""
        return self._items.current

    @property
    def node(self) -> Node | None:
        """The node under the cursor."""
        return self._tree.node

    @property
    def detail_id(self) -> str:
        """The id of the agent that the tabs show, which is read after the cursor moved; "" for none."""
        return self._detail.id if self._detail else ""

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
        can_fold = node is not None and (node.is_open is not None or node.id.startswith(FOLD_PREFIX))
        if node is not None and can_fold and message.unfold in (None, not node.is_open):
            self._folds = replace(self._folds, toggled=self._folds.toggled ^ {node.id})
        self._draw_tree()

    def action_everyone(self) -> None:
        """Show agents that never worked, or fold them again."""
        show_all = not self._folds.show_all
        folded = frozenset(row_id for row_id in self._folds.toggled if not row_id.startswith(FOLD_PREFIX))
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
        self.go_to_first(("block", "items", "story"))

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
        self._draw_story()

    @on(Rows.Opened, "#items")
    def _on_item_opened(self, message: Rows.Opened) -> None:
        """Go to the text of a finding, or open a session, which has no text here."""
        if self.go_to("story"):
            return
        if any(session.id == message.row_id for session in self.state.sessions):
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

    def find_text_to_copy(self) -> str:
        return self.agent.id if self.agent else ""

    # Changes

    def offers(self, action: str, *parameters: object) -> bool:
        """Keys that can do nothing here are not offered."""
        match action:
            case "tab":
                return len(self._tabs) > 1
            case "change":
                return self.is_ready and self.agent is not None and can_change(self.agent, str(parameters[0]))
            case "edit" | "editor":
                return self.is_ready and bool(find_editable_file(self.agent))
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
        agent = self.agent
        name = find_editable_file(self.agent)
        if agent is None or not name:
            return
        if self.tab == "guidance" and self._detail and "profile" in self._detail.contents["guidance"]:
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


MAX_ITEMS = 200
"""Maximum number of findings, and of sessions, of an agent that are listed."""


class Tab(NamedTuple):
    """How a tab shows its content: as fields, and as rows below headings; and the number of its items, "" for none."""

    make_fields: Callable[[Any, HierarchyScreen], Iterable[Field]]
    make_groups: Callable[[Any, HierarchyScreen], Mapping[str, Sequence[Row]]] = lambda content, screen: {}
    count_items: Callable[[Any, HierarchyScreen], object] = lambda content, screen: ""


def _make_finding_groups(findings: Sequence[Bubble], screen: HierarchyScreen) -> Mapping[str, Sequence[Row]]:
    """The findings of an agent itself, and those that others sent up to it, by their headings."""
    agent_id = screen.detail_id
    own = [finding for finding in findings if finding.learning.agent == agent_id]
    others = [finding for finding in findings if finding.learning.agent != agent_id]
    titles = {"FOUND BY IT": own, "ON THEIR WAY UP" if agent_id == OWNER_ID else "SENT UP TO IT": others}
    return {
        f"{title}  {len(group)}": [_make_finding_row(finding, screen.now) for finding in group]
        for title, group in titles.items()
    }


def _make_finding_row(finding: Bubble, now: datetime) -> Row:
    label = agent_fields.FINDING_STATES[finding.state]
    if finding.refused_by:
        state = f"gate {finding.refused_by.number}"
        state_style = label.tone
    else:
        state = label.words
        state_style = "grey"
    right = f"{state:<8} {formats.age(now - finding.at):>4}"
    return Row(finding.id, one_line(finding.learning.text), label.sign, right, "ink", label.tone, state_style)


def _make_finding_fields(findings: Sequence[Bubble], screen: HierarchyScreen) -> Iterable[Field]:
    """The finding under the cursor."""
    finding = next((finding for finding in findings if finding.id == screen.item_id), None)
    return agent_fields.make_finding_fields(document(finding), screen.now)


def _count_findings(findings: Sequence[Bubble], _: HierarchyScreen) -> str:
    more = "+" if len(findings) == MAX_ITEMS else ""
    return f"{len(findings) or ''}{more}"


def _make_session_groups(sessions: Sequence[SessionView], screen: HierarchyScreen) -> Mapping[str, Sequence[Row]]:
    """The sessions of an agent, below the sums of all of them."""
    if screen.agent is None:
        return {}
    activity = screen.agent.activity
    prefix = screen.state.make_place_prefix
    session_count = formats.count(activity.sessions, "session")
    cost = formats.money(activity.total_cost)
    title = f"{session_count}  {activity.total_tokens:,} tokens  {cost}"
    return {title: [make_session_row(session, screen.now, prefix(session.workspace)) for session in sessions]}


TABS: Mapping[str, Tab] = {
    "who": Tab(lambda fields, _: fields),
    "guidance": Tab(lambda guidance, _: agent_fields.make_guidance_fields(guidance)),
    "findings": Tab(_make_finding_fields, _make_finding_groups, _count_findings),
    "teaching": Tab(lambda teaching, screen: agent_fields.make_teaching_fields(teaching, screen.now)),
    "work": Tab(
        lambda sessions, _: [] if sessions else [text_line("No sessions yet.", "grey")],
        _make_session_groups,
        lambda _, screen: (screen.agent.activity.sessions if screen.agent else 0) or "",
    ),
}
"""The tabs by their names, from left to right. The contents are fields, the document of `guidance`, findings newest
first, its part `teaching`, and sessions newest first."""


def read_agent(engine: Engine, agent_id: str) -> AgentDetail:
    """The detail of an agent or of the owner. Blocking. Raises `Refusal` `unknown_agent`."""
    if agent_id == OWNER_ID:
        queued = engine.bubbles.list_bubbles(state=BubbleState.QUEUED, limit=MAX_ITEMS)
        problems = agent_fields.make_problem_fields(dispatch(engine, "agents", {})["problems"])
        return AgentDetail(agent_id, {"who": [Field("folder", str(engine.home.agents)), *problems], "findings": queued})
    agent = dispatch(engine, "agents", {"action": "show", "id": agent_id})
    contents: dict[str, Any] = {"who": [*agent_fields.make_agent_fields(agent)]}
    if agent.get("retired"):
        return AgentDetail(agent_id, contents)
    block = None
    if not agent["agent"]["broken"]:
        guidance = dispatch(engine, "guidance", {"id": agent_id})
        block = engine.cascade.guidance(agent_id)
        contents |= {"guidance": guidance, "teaching": guidance["teaching"]}
    contents["findings"] = engine.bubbles.list_bubbles(agent=agent_id, limit=MAX_ITEMS)
    contents["work"] = engine.sessions.list_newest(agent=agent_id, limit=MAX_ITEMS)
    return AgentDetail(agent_id, {name: contents[name] for name in TABS if name in contents}, block)

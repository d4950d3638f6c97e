"""The agents as a tree whose rows can be folded (SPEC 1.1).

Below the owner are the agents, each below its leader. Below that is a group of agents whose chain does not reach the
owner: a leader is missing, they are in a circle, or their folder cannot be read.

`Tree` is the left half of the hierarchy screen; `make_tree_nodes` is pure. The dialogs that change agents ask here who
is above and below an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.message import Message

from clawpy_console import formats
from clawpy_console.fields import LABELS
from clawpy_console.formats import has_words, one_line
from clawpy_console.keys import make_bindings
from clawpy_console.widgets import Row, Rows
from engine.frozen import frozen
from engine.model import AgentView

OWNER_ID = "owner"
"""The id of the root of the tree: the operator."""

FOLD_PREFIX = "+"
"""The prefix of the id of a row for folded agents; the id of their leader follows. No agent's id begins with it."""

GROUP_PREFIX = "="
"""The prefix of the id of a group's heading; its title follows."""

RETIRED_ID = f"{GROUP_PREFIX}retired"
"""The id of the heading of the retired agents."""

LEAD_CELLS = 3
"""Cells before the indentation: the cursor, the sign of the state, a space."""

MAX_INDENT_LEVELS = 12
"""Maximum depth that is indented, so that names stay in sight."""

FOLD_MARKS = {None: "  ", True: "▾ ", False: "▸ "}
"""The mark before a name, by `Node.is_open`."""

AGENT_STATES = LABELS["agent"]
"""The label of each state of an agent."""


@frozen
class Node:
    """A row of the tree."""

    id: str
    depth: int
    agent: AgentView | None = None
    """None for the owner, for folded agents and for the heading of a group."""
    is_open: bool | None = None
    """Whether the rows below are shown, None when there are none."""
    text: str = ""
    """Why an agent is not below its leader; for a row without an agent its whole text."""
    is_match: bool = True
    """Whether the filter matches; a leader of a match is shown without matching itself."""
    parent_id: str = ""
    """The id of the row above it in the tree, "" for none."""


@frozen
class FoldState:
    """The rows that the operator folded and unfolded."""

    toggled: frozenset[str] = frozenset()
    """The rows that are not as they are at first: retired agents and those never used folded, all others unfolded."""
    show_all: bool = False
    """Whether all unused agents are shown."""

    def is_open(self, row_id: str) -> bool:
        """Whether the rows below a row are shown."""
        starts_folded = row_id.startswith((FOLD_PREFIX, RETIRED_ID))
        return starts_folded == (row_id in self.toggled)

    def unfold_to(self, agent: AgentView, leaders: Iterable[str]) -> FoldState:
        """With the rows of its `leaders` unfolded, so that an agent is shown."""
        unused = () if was_used(agent) else [f"{FOLD_PREFIX}{leader}" for leader in leaders]
        return replace(self, toggled=self.toggled.difference(leaders).union(unused))


def make_tree_nodes(
    agents: Sequence[AgentView], retired: Sequence[AgentView] = (), *, folds: FoldState, words: Sequence[str] = ()
) -> list[Node]:
    """The rows of the tree. With `words`, in lower case, only the agents that match them, and their leaders."""
    return _TreeBuilder(agents, retired, folds, words).build()


MAX_UNFOLDED_AGENTS = 8
"""With more agents than this, those that never worked are folded (SPEC 6)."""

MAX_NAMES = 12
"""Maximum number of folded agents that are named on their row."""


class _TreeBuilder:
    """Makes the rows of the tree; see `make_tree_nodes`."""

    def __init__(
        self, agents: Sequence[AgentView], retired: Sequence[AgentView], folds: FoldState, words: Sequence[str]
    ) -> None:
        self._folds = folds
        self._is_filtered = bool(words)
        self._below, self._reasons = _place_agents(agents, retired)
        self._matching = {agent.id for agent in (*agents, *retired) if has_words(make_search_text(agent), words)}
        shown = self._matching if words else {agent.id for agent in agents if was_used(agent)}
        self._visible = shown.union(find_leaders_above(agents, shown))  # the others are folded or do not match
        self._folds_unused = not words and not folds.show_all and len(agents) > MAX_UNFOLDED_AGENTS

    def build(self) -> list[Node]:
        """The rows from the top: the owner with the agents below it, then the groups."""
        nodes: list[Node] = []
        groups = [name for name in self._below if name.startswith(GROUP_PREFIX)]
        pending = [
            Node(name, 0, text=f"{name.removeprefix(GROUP_PREFIX)} ({len(self._below[name])})")
            for name in reversed(groups)
        ]
        pending.append(Node(OWNER_ID, 0, text="you"))
        while pending:  # no recursion: a chain may be as long as there are agents
            node = pending.pop()
            children = self._make_children(node)
            if node.id.startswith(GROUP_PREFIX) and not children:
                continue
            if children or node.id == OWNER_ID:
                node = replace(node, is_open=self._is_filtered or self._folds.is_open(node.id))
            nodes.append(node)
            if node.is_open:
                pending += reversed(children)
        return nodes

    def _make_children(self, node: Node) -> list[Node]:
        """The rows directly below a row; those of agents that never worked are one row while they are folded."""
        if node.id.startswith(FOLD_PREFIX) or (node.agent and node.agent.activity.state == "retired"):
            return []
        members = [
            agent for agent in self._below.get(node.id, ()) if not self._is_filtered or agent.id in self._visible
        ]
        folded = [] if self._shows_unused(node) else self._collect_unused_ids(members)
        if len(folded) < 2:
            return [self._make_agent_node(agent, node) for agent in members]
        names = ", ".join(folded[:MAX_NAMES]) + (" …" if len(folded) > MAX_NAMES else "")
        folded_row = Node(
            f"{FOLD_PREFIX}{node.id}", node.depth + 1, text=f"{len(folded):,} not used yet: {names}", parent_id=node.id
        )
        return [*(self._make_agent_node(agent, node) for agent in members if agent.id in self._visible), folded_row]

    def _make_agent_node(self, agent: AgentView, parent: Node) -> Node:
        reason = self._reasons.get(agent.id, "")
        is_match = agent.id in self._matching
        return Node(agent.id, parent.depth + 1, agent, text=reason, is_match=is_match, parent_id=parent.id)

    def _shows_unused(self, node: Node) -> bool:
        """Whether agents below a row are shown although they never worked."""
        if not self._folds_unused or node.id.startswith(GROUP_PREFIX):
            return True
        is_unused = node.agent is not None and node.id not in self._visible
        return is_unused or self._folds.is_open(f"{FOLD_PREFIX}{node.id}")

    def _collect_unused_ids(self, members: Sequence[AgentView]) -> list[str]:
        """The ids of the members that never worked, each followed by those of all agents below it."""
        unused = [agent.id for agent in members if agent.id not in self._visible]
        ids: list[str] = []
        for agent_id in unused:
            ids += [agent_id, *sorted(_collect_reached_ids(self._below, agent_id))]
        return ids


def find_leaders_above(agents: Iterable[AgentView], ids: Iterable[str]) -> list[str]:
    """The existing leaders above the agents `ids`; those of a single agent in order, its direct leader first."""
    leader_of = {agent.id: agent.reports_to for agent in agents}
    chain: dict[str, None] = {}
    for agent_id in ids:
        leader = leader_of.get(agent_id, "")
        while leader in leader_of and leader not in chain:
            chain[leader] = None
            leader = leader_of[leader]
    return list(chain)


def collect_ids_below(agents: Iterable[AgentView], agent_id: str) -> set[str]:
    """The ids of all agents below an agent."""
    return _collect_reached_ids(_group_by_leader(agents), agent_id)


def was_used(agent: AgentView) -> bool:
    """Whether an agent has anything to show: it worked, works, or is broken."""
    return bool(agent.activity.sessions or agent.broken or agent.activity.state not in ("idle", "retired"))


def make_search_text(agent: AgentView) -> str:
    """The text of an agent that the filter searches."""
    state = agent.activity.state
    parts = (agent.id, agent.title, agent.domain, f"tier {agent.tier}", state, AGENT_STATES[state].words,
             *agent.channels, agent.archetype, agent.broken)  # fmt: skip
    return " ".join(parts)


def _group_by_leader(agents: Iterable[AgentView]) -> dict[str, list[AgentView]]:
    """The agents by the id of their direct leader."""
    reports: dict[str, list[AgentView]] = {}
    for agent in agents:
        reports.setdefault(agent.reports_to, []).append(agent)
    return reports


def _collect_reached_ids(agents_by_leader: Mapping[str, Sequence[AgentView]], leader: str) -> set[str]:
    """The ids of all agents below `leader`."""
    reached: set[str] = set()
    pending = [leader]
    while pending:
        new = [agent.id for agent in agents_by_leader.get(pending.pop(), ()) if agent.id not in reached]
        reached.update(new)
        pending += new
    return reached


def _place_agents(
    agents: Sequence[AgentView], retired: Sequence[AgentView]
) -> tuple[dict[str, list[AgentView]], dict[str, str]]:
    """The agents below each row, and the reasons of those whose chain does not reach the owner."""
    ids = {agent.id for agent in agents}
    reached = _collect_reached_ids(_group_by_leader(agents), OWNER_ID)
    under = _group_by_leader(agent for agent in agents if agent.id in reached)
    lost = [agent for agent in agents if agent.id not in reached]
    reasons = {
        agent.id: f"reports to {agent.reports_to}{'' if agent.reports_to in ids else ', which does not exist'}"
        for agent in lost
        if not agent.broken
    }
    groups = {"not below you": lost, "retired": [*retired]}
    return under | {f"{GROUP_PREFIX}{title}": members for title, members in groups.items() if members}, reasons


class Tree(Rows):
    """The rows of the tree. Posts `Fold` when the operator folds or unfolds a row."""

    BINDINGS = make_bindings("tree")

    @dataclass
    class Fold(Message):
        """Fold or `unfold` the row of `row_id`; None does the one that it is not."""

        row_id: str
        unfold: bool | None = None

    nodes: dict[str, Node]

    def show_nodes(self, nodes: Sequence[Node], *, empty: str) -> None:
        """Show `nodes`. The cursor stays on the same agent."""
        self.nodes = {node.id: node for node in nodes}
        self.show([make_node_row(node) for node in nodes], empty=empty)

    @property
    def node(self) -> Node | None:
        """The node under the cursor."""
        return self.nodes.get(self.current) if self.current else None

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if number >= len(self.rows):
            return
        node = self.nodes[self.rows[number].id]
        mark = LEAD_CELLS + 2 * min(node.depth, MAX_INDENT_LEVELS)
        if node.id.startswith((FOLD_PREFIX, GROUP_PREFIX)) or (node.is_open is not None and mark <= event.x < mark + 2):
            event.prevent_default()  # a click on the mark folds; it opens nothing
            self.cursor = number
            self.post_message(self.Fold(node.id))

    def action_fold(self) -> None:
        """Fold the row under the cursor; a row that is folded already goes to its leader."""
        node = self.node
        if node is not None and node.is_open:
            self.post_message(self.Fold(node.id, unfold=False))
        elif node is not None and node.parent_id:
            self.select(node.parent_id)

    def action_unfold(self) -> None:
        """Unfold the row under the cursor; a row that is unfolded already goes to the first row below."""
        node = self.node
        if node is not None and (node.is_open is False or node.id.startswith(FOLD_PREFIX)):
            self.post_message(self.Fold(node.id, unfold=True))
        elif node is not None and node.is_open:
            self.action_step(1)

    def action_toggle_fold(self) -> None:
        if self.current:
            self.post_message(self.Fold(self.current))


def make_node_row(node: Node) -> Row:
    """The row of a node: sign of the state, fold mark, tier and name; at the right the state and the tokens used."""
    agent = node.agent
    if agent is None:
        return _make_row_without_agent(node)
    label = AGENT_STATES[agent.activity.state]
    text = f"{_indent(node)}{FOLD_MARKS[node.is_open]}{agent.tier} {agent.id}  {one_line(node.text)}"
    tokens = agent.activity.total_tokens
    used = f" {formats.tokens(tokens):>6}" if tokens else ""
    needs_attention = agent.activity.state in ("queued", "waiting", "broken")
    right_style = label.tone if needs_attention else "grey"
    right = f"{label.words}{used}"
    style = _choose_agent_style(node, agent)
    return Row(node.id, text, label.sign, right, style, label.tone, right_style)


def _make_row_without_agent(node: Node) -> Row:
    """The row of the owner, of folded agents, or of the heading of a group."""
    mark = FOLD_MARKS[node.is_open]
    if node.id == OWNER_ID:
        return Row(node.id, f"{mark}{OWNER_ID}", "●", node.text, "ink", "accent", "grey")
    style = "wants" if node.id.startswith(GROUP_PREFIX) and node.id != RETIRED_ID else "faint"
    return Row(node.id, f"{_indent(node)}{'+ ' if node.is_open is None else mark}{node.text}", " ", "", style)


def _indent(node: Node) -> str:
    return "  " * min(node.depth, MAX_INDENT_LEVELS)


def _choose_agent_style(node: Node, agent: AgentView) -> str:
    """The style of an agent's name."""
    if agent.broken:
        return "wrong"
    if node.text:  # its chain does not reach the owner
        return "wants"
    if not node.is_match or agent.activity.state == "retired":
        return "faint"
    return "ink" if was_used(agent) else "grey"

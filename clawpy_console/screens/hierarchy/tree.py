"""The organisation as rows of a tree that folds: who is below whom, and whose chain is broken (SPEC 1.1).

Below the owner stand the agents, each below its leader. Agents whose chain does not reach the owner stand in groups
below that: their leader is missing, they are in a circle, or their folder cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from textual import events
from textual.message import Message

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.widgets.rows import Row, Rows
from engine.frozen import frozen
from engine.model import AgentView

OWNER = "owner"
FOLD = "+"
"""The id of a row for folded agents: this, then their leader's id. No agent's id begins with it."""

GROUP = "="
"""The id of the heading of a group: this, then its title."""

RETIRED = f"{GROUP}retired"

FOLD_ABOVE = 8
"""In an organisation of more agents than this, agents that never worked are folded (SPEC 6)."""

MAX_NAMES = 12
"""Maximum number of folded agents that are named on their row."""

STATES: Mapping[str, tuple[str, str, str]] = {
    "idle": ("○", "faint", ""), "queued": ("○", "accent", "waiting"), "running": ("◐", "accent", "working"),
    "waiting": ("▲", "wants", "waiting"), "broken": ("✗", "wrong", "broken"), "retired": ("·", "faint", "retired"),
}  # fmt: skip
"""Sign, colour and word of each state of an agent."""


@frozen
class Node:
    """A row of the tree. `agent` is None for the owner, for folded agents and for the heading of a group.

    `open` is None where nothing is below. `text` stands beside an agent's name and says why it is not below its
    leader; of the other rows it is the whole text. `matches` is False for a leader that the filter does not find.
    """

    id: str
    depth: int
    agent: AgentView | None = None
    open: bool | None = None
    text: str = ""
    matches: bool = True
    above: str = ""


@frozen
class Folds:
    """Rows that you folded (`closed`), and leaders whose unused agents are `shown`.

    `everyone` shows unused agents everywhere; `kept` are agents that stay in sight.
    """

    closed: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    everyone: bool = False
    kept: frozenset[str] = frozenset()


def tree_nodes(
    agents: Sequence[AgentView], retired: Sequence[AgentView] = (), *, folds: Folds, needle: Sequence[str] = ()
) -> list[Node]:
    """The rows. With `needle` (words in lower case) only agents that have all of them, and their leaders."""
    below, why = _places(agents, retired)
    matching = {agent.id for agent in (*agents, *retired) if all(word in search_text(agent) for word in needle)}
    visible = matching if needle else {agent.id for agent in agents if is_busy(agent) or agent.id in folds.kept}
    visible = visible.union(leaders(agents, visible))
    folding = not needle and not folds.everyone and len(agents) > FOLD_ABOVE

    def is_open(id: str) -> bool:
        return bool(needle) or (id in folds.shown if id == RETIRED else id not in folds.closed)

    def children(node: Node) -> list[Node]:
        if node.id.startswith(FOLD) or (node.agent and node.agent.state == "retired"):
            return []
        members = [agent for agent in below.get(node.id, ()) if not needle or agent.id in visible]
        rows = [
            Node(member.id, node.depth + 1, member, None, why.get(member.id, ""), member.id in matching, node.id)
            for member in members
        ]
        unused = [member for member in members if member.id not in visible]
        hidden = sum(1 + len(ids_reached(below, agent.id)) for agent in unused) if folding else 0
        with_all = node.id in folds.shown or (node.agent is not None and node.id not in visible)
        if hidden < 2 or with_all or node.id.startswith(GROUP):
            return rows
        names = ", ".join(agent.id for agent in unused[:MAX_NAMES]) + (" …" if len(unused) > MAX_NAMES else "")
        fold = Node(f"{FOLD}{node.id}", node.depth + 1, text=f"{hidden:,} not used yet: {names}", above=node.id)
        return [*(row for row in rows if row.id in visible), fold]

    rows: list[Node] = []
    groups = [Node(name, 0, text=f"{name[1:]} ({len(below[name])})") for name in below if name.startswith(GROUP)]
    todo = [*reversed(groups), Node(OWNER, 0, text="you")]
    while todo:  # no recursion: a chain may be as long as there are agents
        node = todo.pop()
        members = children(node)
        if members or node.id == OWNER:
            node = replace(node, open=is_open(node.id))
        elif node.id.startswith(GROUP):
            continue
        rows.append(node)
        todo += reversed(members) if node.open else ()
    return rows


def leaders(agents: Iterable[AgentView], ids: Iterable[str]) -> list[str]:
    """All leaders above these agents that exist: of one agent from the direct one upward."""
    leader = {agent.id: agent.reports_to for agent in agents}
    chain: dict[str, None] = {}
    for id in ids:
        at = leader.get(id, "")
        while at in leader and at not in chain:
            chain[at] = None
            at = leader[at]
    return list(chain)


def ids_below(agents: Iterable[AgentView], agent_id: str) -> set[str]:
    """Everyone below an agent."""
    return ids_reached(group_by_leader(agents), agent_id)


def is_busy(agent: AgentView) -> bool:
    """Whether an agent has anything to show: it worked, works, or is broken."""
    return bool(agent.sessions or agent.broken or agent.state not in ("idle", "retired"))


def search_text(agent: AgentView) -> str:
    """The text that a filter searches."""
    parts = (agent.id, agent.title, agent.domain, f"tier {agent.tier}", agent.state, STATES[agent.state][2],
             *agent.channels, agent.archetype, agent.broken)  # fmt: skip
    return " ".join(parts).lower()


def group_by_leader(agents: Iterable[AgentView]) -> dict[str, list[AgentView]]:
    reports: dict[str, list[AgentView]] = {}
    for agent in agents:
        reports.setdefault(agent.reports_to, []).append(agent)
    return reports


def ids_reached(under: Mapping[str, Sequence[AgentView]], leader: str) -> set[str]:
    reached: set[str] = set()
    todo = [leader]
    while todo:
        new = [agent.id for agent in under.get(todo.pop(), ()) if agent.id not in reached]
        reached.update(new)
        todo += new
    return reached


def _places(
    agents: Sequence[AgentView], retired: Sequence[AgentView]
) -> tuple[dict[str, list[AgentView]], dict[str, str]]:
    """The agents below each row, and for those whose chain does not reach the owner why."""
    by_id, under = {agent.id: agent for agent in agents}, group_by_leader(agents)
    groups: dict[str, list[AgentView]] = {"leader missing": [], "in a circle": [], "broken": [], "retired": [*retired]}
    why: dict[str, str] = {}
    reached = ids_reached(under, OWNER)

    def place(group: str, head: AgentView, reason: str) -> None:
        groups[group].append(head)
        why[head.id] = reason
        reached.update({head.id} | ids_reached(under, head.id))

    for agent in agents:
        if agent.id not in reached and agent.reports_to not in by_id:
            missing = f"reports to {agent.reports_to}, which does not exist"
            place("broken" if agent.broken else "leader missing", agent, "" if agent.broken else missing)
    for agent in agents:
        if agent.id not in reached:
            above = leaders(agents, [agent.id])
            circle = above[above.index(by_id[above[-1]].reports_to) :]
            head = by_id[min(circle)]
            under[head.reports_to].remove(head)
            whom = "itself" if head.reports_to == head.id else f"{head.reports_to}, whom it leads"
            place("in a circle", head, f"reports to {whom}: a circle")
    return under | {f"{GROUP}{title}": heads for title, heads in groups.items() if heads}, why


MAX_INDENT = 12
"""Rows deeper than this are not indented further, so that names stay in sight."""

MAX_MARKED = 3
"""Cells before the indentation: the cursor, the sign of the state, a space."""


class Tree(Rows):
    """Rows of the organisation. Posts `Fold` when what is below a row is to be shown or hidden."""

    BINDINGS = bindings("tree")

    class Fold(Message):
        """Show (`open`), hide, or toggle (None) what is below the row of `row_id`."""

        def __init__(self, row_id: str, open: bool | None) -> None:
            super().__init__()
            self.row_id, self.open = row_id, open

    nodes: dict[str, Node]

    def show_nodes(self, nodes: Sequence[Node], *, empty: str = "") -> None:
        """Show the organisation. The cursor stays on the same agent."""
        self.nodes = {node.id: node for node in nodes}
        self.show([node_row(node) for node in nodes], empty=empty)

    @property
    def node(self) -> Node | None:
        """The row under the cursor."""
        return self.nodes.get(self.current) if self.current else None

    def action_fold(self) -> None:
        """Fold what is below; where nothing is unfolded, go to the leader."""
        node = self.node
        if node is not None and node.open:
            self.post_message(self.Fold(node.id, False))
        elif node is not None and node.above:
            self.select(node.above)

    def action_unfold(self) -> None:
        """Unfold what is below; where it is unfolded, go into it."""
        node = self.node
        if node is not None and (node.open is False or node.id.startswith(FOLD)):
            self.post_message(self.Fold(node.id, True))
        elif node is not None and node.open:
            self.action_step(1)

    def action_toggle_fold(self) -> None:
        if self.current:
            self.post_message(self.Fold(self.current, None))

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if number >= len(self._rows):
            return
        node = self.nodes[self._rows[number].id]
        at = MAX_MARKED + 2 * min(node.depth, MAX_INDENT)
        if node.id.startswith((FOLD, GROUP)) or (node.open is not None and at <= event.x < at + 2):
            event.prevent_default()  # a click on the mark folds; it opens nothing
            self.cursor = number
            self.post_message(self.Fold(node.id, None))


def node_row(node: Node) -> Row:
    """A row: state, indentation, fold mark, tier, name; at the right the state in a word, and the tokens used."""
    agent = node.agent
    indent = "  " * min(node.depth, MAX_INDENT)
    mark = "  " if node.open is None else "▾ " if node.open else "▸ "
    if agent is None:
        if node.id == OWNER:
            return Row(node.id, f"{mark}{OWNER}", "●", node.text, "ink", "accent", "grey")
        style = "wants" if node.id.startswith(GROUP) and node.id != RETIRED else "faint"
        return Row(node.id, f"{indent}{'+ ' if node.open is None else mark}{node.text}", " ", "", style)
    sign, colour, word = STATES[agent.state]
    text = f"{indent}{mark}{agent.tier} {agent.id}  {words.one_line(node.text)}"
    used = f" {words.tokens(agent.used):>6}" if agent.used else ""
    if agent.broken or node.text:
        style = "wrong" if agent.broken else "wants"
    elif not node.matches or agent.state == "retired":
        style = "faint"
    else:
        style = "ink" if is_busy(agent) else "grey"
    wants = agent.state in ("queued", "waiting", "broken")
    return Row(node.id, text, sign, f"{word}{used}", style, colour, colour if wants else "grey")

"""The organisation as a list of rows that fold: with keys, and with a click on the mark before a name."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.organisation import FOLD, GROUP, OWNER, STATES, Node
from clawpy_console.widgets.rows import Row, Rows
from engine.values import AgentView

MARKS = {
    "idle": ("○", "faint"), "queued": ("○", "accent"), "running": ("◐", "accent"), "waiting": ("▲", "wants"),
    "broken": ("✗", "wrong"), "retired": ("·", "faint"),
}  # fmt: skip
"""Glyph and colour of a state; the word stands at the right of the row."""

DEEPEST = 12
"""Rows deeper than this are indented no further, so that names stay in sight."""

MARKED = 3
"""Cells before the indentation: the cursor, the mark of the state, a space."""


class Tree(Rows):
    """Rows of the organisation. Posts `Fold` when what is below a row is to be shown or not."""

    BINDINGS = bindings("tree")

    class Fold(Message):
        """Show (`open`), hide, or the other way round (None) what is below the row of `row_id`."""

        def __init__(self, row_id: str, open: bool | None) -> None:
            super().__init__()
            self.row_id, self.open = row_id, open

    def __init__(self, *, id: str | None = None, empty: str = "") -> None:
        super().__init__(id=id, empty=empty)
        self._by_id: dict[str, Node] = {}
        self._above: dict[str, str] = {}

    def show_nodes(self, nodes: Sequence[Node], *, empty: str = "") -> None:
        """Show the organisation; the cursor stays with whom it is on."""
        self._by_id = {one.id: one for one in nodes}
        self._above = {}
        trail: list[Node] = []
        for one in nodes:
            while trail and trail[-1].depth >= one.depth:
                trail.pop()
            if trail:
                self._above[one.id] = trail[-1].id
            trail.append(one)
        wide = max((len(_word(one)) for one in nodes), default=0)
        self.show([row(one, wide) for one in nodes], empty=empty)

    @property
    def node(self) -> Node | None:
        """The row under the cursor."""
        return self._by_id.get(self.current)

    def has(self, row_id: str) -> bool:
        """Whether this row is in sight, or can be scrolled to."""
        return row_id in self._by_id

    def is_match(self, row_id: str) -> bool:
        """Whether a row is one that was looked for, rather than a leader above it."""
        node = self._by_id.get(row_id)
        return node is not None and node.agent is not None and node.matches

    @property
    def first_match(self) -> str:
        """The first row that was looked for, "" when there is none."""
        return next((row_id for row_id in self._by_id if self.is_match(row_id)), "")

    def action_fold(self) -> None:
        """Fold what is below; where nothing is, go to whom it is below."""
        node = self.node
        if node is not None and node.open:
            self.post_message(self.Fold(node.id, False))
        elif node is not None and node.id in self._above:
            self.select(self._above[node.id])

    def action_unfold(self) -> None:
        """Unfold what is below; where it is unfolded, go into it."""
        node = self.node
        if node is not None and (node.open is False or node.id.startswith(FOLD)):
            self.post_message(self.Fold(node.id, True))
        elif node is not None and node.open:
            self.action_down()

    def action_toggle_fold(self) -> None:
        if self.node is not None:
            self.post_message(self.Fold(self.current, None))

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        row_id = self._rows[number].id if number < len(self._rows) else ""
        node = self._by_id.get(row_id)
        if node is None:
            return
        at = MARKED + 2 * min(node.depth, DEEPEST)
        if row_id.startswith((FOLD, GROUP)) or (node.open is not None and at <= event.x < at + 2):
            event.prevent_default()  # a click on the mark folds; it opens nothing
            self.cursor = number
            self.post_message(self.Fold(row_id, None))


def row(node: Node, wide: int = 7) -> Row:
    """A row: state, indentation, fold mark, tier, name; at the right the state in a word, in `wide` cells, and the
    tokens used."""
    mark = "  " if node.open is None else "▾ " if node.open else "▸ "
    indent = "  " * min(node.depth, DEEPEST)
    agent = node.agent
    if agent is None:
        if node.id.startswith(FOLD):
            return Row(node.id, f"{indent}+ {node.text}", " ", "", "faint")
        if node.id.startswith(GROUP):
            return Row(node.id, f"{mark}{node.text}", " ", "", "grey" if node.text.startswith("retired") else "wants")
        return Row(node.id, f"{mark}{OWNER}", "●", _right(node, wide, node.used), "ink", "accent", "grey")
    glyph, colour = MARKS.get(agent.state, ("○", "faint"))
    said = f"  {words.one_line(node.text)}" if node.text else ""
    text = f"{indent}{mark}{agent.tier} {words.one_line(agent.id)}{said}"
    right = _right(node, wide, agent.used)
    return Row(node.id, text, glyph, right, _style(node, agent), colour, _right_style(agent, colour))


def _word(node: Node) -> str:
    """The state in a word; idle is the rule, and its mark says it."""
    if node.agent is None:
        return node.text if node.id == OWNER else ""
    return "" if node.agent.state == "idle" else STATES.get(node.agent.state, node.agent.state)


def _right(node: Node, wide: int, used: int) -> str:
    return f"{_word(node):<{wide}} {words.tokens(used) if used else '–':>6}"


def _style(node: Node, agent: AgentView) -> str:
    if agent.broken or node.text:
        return "wrong" if agent.broken else "wants"
    if not node.matches or agent.state == "retired":
        return "faint"
    return "ink" if agent.sessions or agent.channels or agent.state != "idle" else "grey"


def _right_style(agent: AgentView, colour: str) -> str:
    return "grey" if agent.state in ("idle", "running", "retired") else colour

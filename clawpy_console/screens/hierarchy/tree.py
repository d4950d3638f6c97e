"""The organisation as a list of rows that fold: with keys, and with a click on the mark before a name."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.screens.hierarchy.organisation import FOLD, GROUP, OWNER, RETIRED, STATES, Node, busy
from clawpy_console.widgets.rows import Row, Rows

DEEPEST = 12
"""Rows deeper than this are not indented further, so that names stay in sight."""

MARKED = 3
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
        self.nodes = {one.id: one for one in nodes}
        self.show([row(one) for one in nodes], empty=empty)

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
        at = MARKED + 2 * min(node.depth, DEEPEST)
        if node.id.startswith((FOLD, GROUP)) or (node.open is not None and at <= event.x < at + 2):
            event.prevent_default()  # a click on the mark folds; it opens nothing
            self.cursor = number
            self.post_message(self.Fold(node.id, None))


def row(node: Node) -> Row:
    """A row: state, indentation, fold mark, tier, name; at the right the state in a word, and the tokens used."""
    agent = node.agent
    indent = "  " * min(node.depth, DEEPEST)
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
        style = "ink" if busy(agent) else "grey"
    wants = agent.state in ("queued", "waiting", "broken")
    return Row(node.id, text, sign, f"{word}{used}", style, colour, colour if wants else "grey")

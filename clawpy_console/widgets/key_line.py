"""The line at the bottom of a screen or a dialog: the keys that can be pressed now."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import Reactive, reactive
from textual.widget import Widget

from clawpy_console.keys import BY_ID, LINE_ORDER, shown_key

GAP_CELLS = 2
"""Cells between two keys."""

LAST_ACTIONS = ("app.help", "app.quit")
"""They stand at the right end of the line, however many others there are: all keys, and the way out."""


class KeyLine(Widget):
    """Shows the active bindings that have a label, those of the focus first. A click presses the key."""

    DEFAULT_CSS = "KeyLine { dock: bottom; height: 1; padding: 0 1; background: $background; }"

    auto_links = Reactive(False)
    keys: reactive[tuple[tuple[str, str, str], ...]] = reactive(())

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.update_keys())
        self.call_after_refresh(self.update_keys)

    def update_keys(self) -> None:
        """Take over the bindings that are active now."""
        if not self.is_attached or not self.screen.is_current:
            return
        keymap = getattr(self.app, "keymap", {})
        keys_by_id: dict[str, tuple[str, str, str]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            action = BY_ID.get(binding.id or "")
            if action is not None and action.label and enabled and action.id not in keys_by_id:
                keys_by_id[action.id] = (action.id, shown_key(action.id, keymap), action.label)
        place = {action_id: number for number, action_id in enumerate(BY_ID)}
        self.keys = tuple(
            sorted(keys_by_id.values(), key=lambda item: (LINE_ORDER.index(item[0].partition(".")[0]), place[item[0]]))
        )

    def render(self) -> Content:
        """The keys that fit, and those of `LAST_ACTIONS` at the right end."""
        shown = [(id, _pressed(id, key, label)) for id, key, label in self.keys if id != "app.stop"]  # that is on top
        ends = Content("").join(piece for id, piece in shown if id in LAST_ACTIONS)
        room = self.size.width - ends.cell_length
        line = Content("")
        for id, piece in shown:
            if line.cell_length + piece.cell_length > room:
                break
            if id not in LAST_ACTIONS:
                line += piece
        return (line + " " * (room + GAP_CELLS - line.cell_length) + ends).rstrip()


def _pressed(action_id: str, key: str, label: str) -> Content:
    """A key and what it does, and the gap after it; a click presses it."""
    piece = Content.assemble((key, "$accent"), " ", (label, "$grey")).stylize(f"@click=screen.press('{action_id}')")
    return piece + " " * GAP_CELLS

"""The key line below every screen: what can be pressed here and now, made from the table of actions."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console.actions import BY_ID, shown_key

ORDER = (
    "stack", "details", "prompt", "reply", "asked", "xray", "edit", "recalled", "moving", "member", "work", "hierarchy",
    "tree", "memory", "deciding", "candidates", "learnings", "safety", "rails", "insights", "queue", "rows", "lines",
    "panes", "app",
)  # fmt: skip
"""Groups of actions, those that matter most first."""


class KeyLine(Widget):
    """Shows the active bindings that have a label, those of the focus first. A click presses the key."""

    DEFAULT_CSS = "KeyLine { dock: bottom; height: 1; padding: 0 1; background: $background; }"

    keys: reactive[tuple[tuple[str, str, str], ...]] = reactive(())

    def __init__(self) -> None:
        super().__init__()
        self._places: list[tuple[int, int, str]] = []  # first cell, end, action: where a click lands

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.look())
        self.call_after_refresh(self.look)

    def look(self) -> None:
        """Take over the bindings that are active now."""
        if not self.is_attached or not self.screen.is_current:
            return
        keymap = getattr(self.app, "keymap", {})
        found: dict[str, tuple[str, str, str]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            action = BY_ID.get(binding.id or "")
            if action is not None and action.label and enabled and action.id not in found:
                found[action.id] = (action.id, shown_key(action.id, keymap), action.label)
        place = {action_id: number for number, action_id in enumerate(BY_ID)}
        self.keys = tuple(
            sorted(found.values(), key=lambda one: (ORDER.index(one[0].partition(".")[0]), place[one[0]]))
        )

    def render(self) -> Content:
        width, used = self.size.width, 0
        parts: list[Content | str | tuple[str, str]] = []
        self._places = []
        for action_id, key, label in self.keys:
            if action_id == "app.stop":
                continue  # it stands in the status line, always
            size = cell_len(key) + 1 + cell_len(label) + 2
            if used + size > width:
                break
            self._places.append((used, used + size - 2, action_id))
            used += size
            parts += [(key, "$accent"), " ", (label, "$grey"), "  "]
        return Content.assemble(*parts)

    async def on_click(self, event: events.Click) -> None:
        x = event.x - self.content_region.x + self.region.x
        for start, end, action_id in self._places:
            if start <= x < end:
                await self.run_action(f"screen.press('{action_id}')")

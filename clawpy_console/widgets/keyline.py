"""The key line below every screen: what can be pressed here and now, made from the table of actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Offset
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console.keys import BY_ID, shown_key

ORDER = (
    "zoom", "stack", "details", "prompt", "reply", "asked", "diff", "changes", "xray", "edit", "profile", "recalled",
    "moving", "member", "work", "hierarchy", "tree", "memory", "deciding", "preview", "candidates", "learnings",
    "learning", "safety", "insights", "queue", "mission", "filter", "columns", "rows", "lines", "panes", "app",
)  # fmt: skip
"""Groups of actions, those that matter most first."""

GAP = 2
"""Cells between two keys."""

LAST = ("app.help", "app.quit")
"""They stand at the right end of the line, however many others there are: all keys, and the way out."""


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
        """The keys that fit, and those of `LAST` at the right end."""
        self._places = []
        last = [one for one in self.keys if one[0] in LAST]
        room = self.size.width - sum(_cells(one) for one in last)
        used = 0
        parts: list[Content | str | tuple[str, str]] = []
        for one in self.keys:
            if one[0] == "app.stop" or one in last:
                continue  # the stop stands in the status line, always
            if used + _cells(one) > room:
                break
            parts += self._drawn(one, used)
            used += _cells(one)
        at = max(used, room + GAP)
        parts.append(" " * (at - used))
        for one in last:
            parts += self._drawn(one, at)
            at += _cells(one)
        return Content.assemble(*parts[:-1])  # without the gap after the last

    def _drawn(self, one: tuple[str, str, str], at: int) -> list[Content | str | tuple[str, str]]:
        """A key at cell `at` of the line, where a click presses it."""
        action_id, key, label = one
        self._places.append((at, at + _cells(one) - GAP, action_id))
        return [(key, "$accent"), " ", (label, "$grey"), " " * GAP]

    @property
    def spots(self) -> list[tuple[Offset, Callable[[], object]]]:
        """The keys, and what a click on each does."""
        left, top = self.gutter.left, self.gutter.top
        return [(Offset(start + left, top), partial(self._press, action_id)) for start, _, action_id in self._places]

    async def _press(self, action_id: str) -> None:
        await self.run_action(f"screen.press('{action_id}')")

    async def on_click(self, event: events.Click) -> None:
        x = event.x - self.content_region.x + self.region.x
        for start, end, action_id in self._places:
            if start <= x < end:
                await self._press(action_id)


def _cells(one: tuple[str, str, str]) -> int:
    """What a key takes of the line, with the gap after it."""
    _, key, label = one
    return cell_len(key) + 1 + cell_len(label) + GAP

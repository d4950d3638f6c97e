"""What a session asks to be allowed: what exactly, why, since when, and the keys that answer (SPEC 9.3).

A key answers the request that is on screen, and none for a moment after that one changed: who was typing something
else allows nothing by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from clawpy_console import words
from clawpy_console.keys import shown_key
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.lines import LinesView
from engine.model import PermissionRequest

STEADY = 0.6
"""Seconds after the request on screen changed in which no key answers it."""

DETAIL, SHARE, OTHERS = 12, 60, 9
"""Lines of the detail at most; per cent of the screen's height, all in all; rows of the rest: frame, head, keys."""

KEYS = (
    ("asked.once", "allow once"),
    ("asked.session", "allow for this session"),
    ("asked.deny", "deny"),
    ("asked.never", "deny for this session"),
)


DIFF = {"added": "+", "removed": "-", "": " "}
"""The sign before a line of a diff, by its kind."""


class Asked(Vertical):
    """Shows one request of a session at a time; hidden when there is none."""

    DEFAULT_CSS = """
    Asked { height: auto; max-height: 60%; display: none; border: round $wants; padding: 0 1; margin: 0 1;
        border-title-color: $wants; border-title-style: bold; border-subtitle-color: $grey;
        &.-shown { display: block; }
        & > Drawn { height: auto; }
        & > LinesView { height: auto; max-height: 12; margin: 0 0 0 1; }
    }
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.clock = clock
        self.requests: tuple[PermissionRequest, ...] = ()
        """Those of the session under the cursor."""
        self._wanted = ""
        self._shown = ""
        self._changed_at = float("-inf")
        self._lines = 0  # of the detail

    def compose(self) -> ComposeResult:
        yield Drawn(id="asked-head")
        yield LinesView(id="asked-detail", gutter=DIFF, cap=60_000, tail=False)
        yield Drawn(id="asked-keys")

    @property
    def current(self) -> PermissionRequest | None:
        """The request on screen."""
        chosen = next((one for one in self.requests if one.id == self._wanted), None)
        return chosen or (self.requests[0] if self.requests else None)

    @property
    def settled(self) -> PermissionRequest | None:
        """What a key answers now; None in the moment after it changed."""
        one = self.current
        steady = one is not None and one.id == self._shown and self.clock() - self._changed_at >= STEADY
        return one if steady else None

    def show(self, requests: Sequence[PermissionRequest], now: datetime, keymap: Mapping[str, str]) -> None:
        """The requests of the session under the cursor. The one on screen stays there while it is among them."""
        self.requests = tuple(requests)
        one = self.current
        self.set_class(one is not None, "-shown")
        if one is None:
            self._shown = self._wanted = ""
            return
        self._wanted = one.id
        number = self.requests.index(one) + 1
        many = f"  {number} of {len(self.requests)}" if len(self.requests) > 1 else ""
        self.border_title = Content(f"▲ {one.agent} asks{many}")
        self.border_subtitle = Content(f"{one.tool} · waits {words.duration(now - one.asked_at)} · {one.id}")
        if one.id != self._shown:
            self._shown = one.id
            self._changed_at = self.clock()
            self._show_detail(one)
        hidden = self._fit()
        self.query_one("#asked-head", Drawn).show(lambda width: _head(one, width, hidden))
        self.query_one("#asked-keys", Drawn).show(lambda width: _keys(keymap, len(self.requests), width))

    def _show_detail(self, one: PermissionRequest) -> None:
        view = self.query_one("#asked-detail", LinesView)
        view.clear()
        view.display = bool(one.detail.strip()) and one.detail.strip() != one.title
        is_diff = one.detail.startswith(("@@", "--- ", "diff "))
        lines = list(diff_lines(one.detail)) if is_diff else [("output", line) for line in one.detail.splitlines()]
        view.extend(lines)
        self._lines = len(lines) if view.display else 0

    def _fit(self) -> int:
        """Give the detail the room that head and keys leave it, so that these are always in sight; returns how many of
        its lines are not."""
        room = max(1, min(DETAIL, self.screen.size.height * SHARE // 100 - OTHERS))
        self.query_one("#asked-detail", LinesView).styles.height = max(1, min(room, self._lines))
        return max(0, self._lines - room)

    def next(self) -> None:
        """Show the next of several."""
        if (one := self.current) is not None:
            place = self.requests.index(one)
            self._wanted = self.requests[(place + 1) % len(self.requests)].id


def _head(one: PermissionRequest, width: int, hidden: int) -> list[Content]:
    why = Content.assemble(("why  ", "$faint"), (words.one_line(one.reason), "$grey"))
    lines = [*Content.styled(words.one_line(one.title), "bold $ink").wrap(width)[:2], *why.wrap(width)[:2]]
    if hidden:
        told = f"▼ {words.count(hidden, 'line')} more below: ⇥ goes there, then scroll"
        lines.append(Content.styled(words.crop(told, width), "$wants"))
    return lines


def _keys(keymap: Mapping[str, str], many: int, width: int) -> list[Content]:
    pairs = [
        Content.assemble((shown_key(action, keymap), "bold $wants"), (f" {label}", "$grey")) for action, label in KEYS
    ]
    if many > 1:
        pairs.append(Content.assemble((shown_key("asked.next", keymap), "$accent"), (" next", "$grey")))
    lines: list[Content] = []
    for pair in pairs:
        if lines and lines[-1].cell_length + 3 + pair.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "   ", pair)
        else:
            lines.append(pair)
    return lines


def diff_lines(text: str) -> Iterable[tuple[str, str]]:
    """A unified diff as lines with their kinds."""
    for line in text.splitlines():
        if line.startswith("@@"):
            yield "hunk", line
        elif line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file", "similarity", "rename ")):
            continue  # the file is named above, in words
        elif line.startswith("+"):
            yield "added", line[1:]
        elif line.startswith("-"):
            yield "removed", line[1:]
        else:
            yield "same", line[1:]

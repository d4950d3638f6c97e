"""The permission that a session asks for: its detail, and the keys that answer it (SPEC 9.3).

A key answers the request that is on screen. For a moment after another request appeared no key answers, so that text
which the operator was typing allows nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from clawpy_console import formats
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import shown_key
from clawpy_console.screens.base import next_choice
from clawpy_console.widgets.lines import LinesView
from clawpy_console.widgets.reflowing_text import ReflowingText
from engine.model import PermissionRequest

GUARD_S = 0.6
"""Seconds after the request on screen changed in which no key answers it."""

HUNK_HEADER = r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@"

MAX_DETAIL_LINES = 12
"""Maximum number of lines of the detail that are in sight."""

MAX_HEIGHT_PERCENT = 60
"""Maximum height of the pane, in per cent of the screen's height."""

OTHER_LINES = 9
"""Lines of the pane besides the detail: frame, head and keys."""

ANSWER_KEYS = (
    ("asked.once", "allow once"),
    ("asked.session", "allow for this session"),
    ("asked.deny", "deny"),
    ("asked.never", "deny for this session"),
)
"""Ids of the actions that answer a request, with their labels."""

DIFF_SIGNS = {"added": "+", "removed": "-", "": " "}
"""The sign before a line of a diff, by its kind."""


class PermissionPane(Vertical):
    """Shows one request of a session at a time; hidden when there is none."""

    DEFAULT_CSS = """
    PermissionPane { height: auto; max-height: 60%; display: none; border: round $wants; padding: 0 1; margin: 0 1;
        border-title-color: $wants; border-title-style: bold; border-subtitle-color: $grey;
        &.-shown { display: block; }
        & > ReflowingText { height: auto; }
        & > LinesView { height: auto; max-height: 12; margin: 0 0 0 1; }
    }
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.clock = clock
        self.requests: tuple[PermissionRequest, ...] = ()
        """The requests of the session under the cursor."""
        self._selected_id = ""  # of the request that is to be shown
        self._shown_id = ""  # of the request that is on screen
        self._changed_at = float("-inf")  # when another request came on screen
        self._detail_line_count = 0

    def compose(self) -> ComposeResult:
        yield ReflowingText(id="asked-head")
        yield LinesView(id="asked-detail", signs=DIFF_SIGNS, max_lines=60_000, follow_end=False)
        yield ReflowingText(id="asked-keys")

    @property
    def current(self) -> PermissionRequest | None:
        """The request on screen."""
        selected = next((request for request in self.requests if request.id == self._selected_id), None)
        return selected or next(iter(self.requests), None)

    @property
    def answerable(self) -> PermissionRequest | None:
        """The request that a key answers now; None for `GUARD_S` after another one came on screen."""
        request = self.current
        if request is None or request.id != self._shown_id or self.clock() - self._changed_at < GUARD_S:
            return None
        return request

    def show(self, requests: Sequence[PermissionRequest], now: datetime, keymap: Mapping[str, str]) -> None:
        """Show one of `requests`, those of the session under the cursor. The one on screen stays while it is among
        them."""
        self.requests = tuple(requests)
        request = self.current
        self.set_class(request is not None, "-shown")
        if request is None:
            self._shown_id = self._selected_id = ""
            return
        self._selected_id = request.id
        number = self.requests.index(request) + 1
        position = f"  {number} of {len(self.requests)}" if len(self.requests) > 1 else ""
        self.border_title = Content(f"▲ {request.agent} asks{position}")
        self.border_subtitle = Content(
            f"{request.tool} · waits {formats.duration(now - request.asked_at)} · {request.id}"
        )
        if request.id != self._shown_id:
            self._shown_id = request.id
            self._changed_at = self.clock()
            self._show_detail(request)
        hidden_count = self._fit_detail()
        self.query_one("#asked-head", ReflowingText).show(lambda width: _head_lines(request, width, hidden_count))
        self.query_one("#asked-keys", ReflowingText).show(lambda width: _key_lines(keymap, len(self.requests), width))

    def _show_detail(self, request: PermissionRequest) -> None:
        view = self.query_one("#asked-detail", LinesView)
        view.clear()
        view.display = bool(request.detail.strip()) and request.detail.strip() != request.title
        if request.detail.startswith(("@@", "--- ", "diff ")):
            lines = list(diff_lines(request.detail))
        else:
            lines = [("output", line) for line in request.detail.splitlines()]
        view.extend(lines)
        self._detail_line_count = len(lines) if view.display else 0

    def _fit_detail(self) -> int:
        """Give the detail the room that head and keys leave, so that these are always in sight. Returns the number of
        its lines that are out of sight."""
        room = max(1, min(MAX_DETAIL_LINES, self.screen.size.height * MAX_HEIGHT_PERCENT // 100 - OTHER_LINES))
        self.query_one("#asked-detail", LinesView).styles.height = max(1, min(room, self._detail_line_count))
        return max(0, self._detail_line_count - room)

    def select_next(self) -> None:
        """Select the next of several requests; the next `show` draws it."""
        if (request := self.current) is not None:
            self._selected_id = next_choice(self.requests, request).id


def _head_lines(request: PermissionRequest, width: int, hidden_count: int) -> list[Content]:
    why = Content.assemble(("why  ", "$faint"), (one_line(request.reason), "$grey"))
    lines = [*Content.styled(one_line(request.title), "bold $ink").wrap(width)[:2], *why.wrap(width)[:2]]
    if hidden_count:
        hint = f"▼ {formats.count(hidden_count, 'line')} more below: ⇥ goes there, then scroll"
        lines.append(Content.styled(crop(hint, width), "$wants"))
    return lines


def _key_lines(keymap: Mapping[str, str], request_count: int, width: int) -> list[Content]:
    pairs = [
        Content.assemble((shown_key(action, keymap), "bold $wants"), (f" {label}", "$grey"))
        for action, label in ANSWER_KEYS
    ]
    if request_count > 1:
        pairs.append(Content.assemble((shown_key("asked.next", keymap), "$accent"), (" next", "$grey")))
    lines: list[Content] = []
    for pair in pairs:
        if lines and lines[-1].cell_length + 3 + pair.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "   ", pair)
        else:
            lines.append(pair)
    return lines


def diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """Every line of a unified diff, as kind and text. None is left out: the text may be a command that only looks like
    a diff.

    The counts of a hunk say which lines belong to it, so that a removed line "-- x" is not taken for a header.
    """
    old_count = new_count = 0  # lines of the hunk that are still to come
    for line in text.splitlines():
        if old_count > 0 or new_count > 0:
            kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
            old_count -= kind != "added" and not line.startswith("\\")
            new_count -= kind != "removed" and not line.startswith("\\")
            yield kind, line[1:]
        else:
            if match := re.match(HUNK_HEADER, line):
                old_count, new_count = (1 if count is None else int(count) for count in match.groups())
            yield "hunk", line

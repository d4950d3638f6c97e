"""The pane with the permission that a session asks for, and its answer by a key (SPEC 9.3).

The work screen shows it while the session under the cursor waits for an answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import WORDS
from clawpy_console.formats import crop, one_line
from clawpy_console.keys import format_key
from clawpy_console.screens import find_next_choice
from clawpy_console.widgets.texts import ReflowingText, limit_lines
from clawpy_console.widgets.transcript import LinesView, find_row_starts
from engine.model import PermissionAnswer, PermissionRequest, Refusal

if TYPE_CHECKING:
    from clawpy_console.console import Console

REQUEST_GUARD_S = 0.6
"""Seconds after the request on screen changed in which no key answers it."""

MAX_HEIGHT_PERCENT = 60
"""Maximum height of the pane, in per cent of the screen's height."""

MAX_HEAD_LINES = 2
"""Maximum number of lines of the title, and of the reason."""

MAX_DETAIL_LINES = 12
"""Maximum number of lines of the detail that are in sight."""

LINES_AROUND_DETAIL = 2 + 2 * MAX_HEAD_LINES + 1 + 2
"""The lines that the frame, title and reason, the hint that there is more, and the keys may take."""

ANSWER_LABELS = WORDS["permission"]
"""The actions that answer a request, each with its label."""

OWN_VERBS = frozenset({"run", "fetch"})
"""First words of titles whose other words are the whole of what is asked for."""

DIFF_KINDS = {"+": "added", "-": "removed", "@": "hunk"}
"""The kind of a line of a diff, by its first character."""


class PermissionPane(Vertical):
    """Shows one permission request of a session at a time; hidden when there is none.

    A key answers the request that is on screen. For a moment after another one appeared no key answers, so that text
    which the operator was typing allows nothing.
    """

    DEFAULT_CSS = """
    PermissionPane { height: auto; display: none; border: round $wants; padding: 0 1; margin: 0 1;
        border-title-color: $wants; border-title-style: bold; border-subtitle-color: $grey;
        &.-shown { display: block; }
        & > ReflowingText { height: auto; }
        & > LinesView { margin: 0 0 0 1; }
    }
    """

    _detail = getters.query_one("#asked-detail", LinesView)

    app: Console
    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        super().__init__(id="asked")
        self.styles.max_height = f"{MAX_HEIGHT_PERCENT}%"
        self.requests: tuple[PermissionRequest, ...] = ()
        """The requests of the session under the cursor."""
        self._selected_id = ""  # of the request that is to be shown
        self._shown_id = ""  # of the request that is on screen
        self._changed_at = float("-inf")  # when another request came on screen
        self._width = 80  # of the lines
        self._hidden_rows = 0  # of the detail, below those in sight

    def compose(self) -> ComposeResult:
        yield ReflowingText(id="asked-head")
        yield LinesView(id="asked-detail", signs={"": " "}, max_lines=60_000, follow_end=False)
        yield ReflowingText(id="asked-keys")

    def on_resize(self) -> None:
        self._width = self.content_size.width
        if (request := self.current) is not None:
            self._lay_out_detail(request)
            self.show(self.requests)

    @property
    def current(self) -> PermissionRequest | None:
        """The request that is selected, else the first."""
        selected = (request for request in self.requests if request.id == self._selected_id)
        return next(selected, None) or next(iter(self.requests), None)

    def show(self, requests: Sequence[PermissionRequest]) -> None:
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
        total = len(self.requests)
        self.border_title = Content(f"▲ {request.agent} asks{f'  {number} of {total}' if total > 1 else ''}")
        waits = formats.duration(self.app.now() - request.asked_at)
        self.border_subtitle = Content(f"{request.tool} · waits {waits} · {request.id}")
        if request.id != self._shown_id:
            self._shown_id = request.id
            self._changed_at = self.clock()
            self._show_detail(request.detail)
            self._lay_out_detail(request)
        self.query_one("#asked-head", ReflowingText).show(lambda width: self._make_head_lines(request, width))
        self.query_one("#asked-keys", ReflowingText).show(self._make_key_lines)

    def select_next(self) -> None:
        """Select the next of several requests; the next `show` draws it."""
        if (request := self.current) is not None:
            self._selected_id = find_next_choice(self.requests, request).id

    def answer(self, answer: PermissionAnswer) -> None:
        """Answer the request on screen, unless it came only just now."""
        request = self.current
        app = self.app
        is_new = self.clock() - self._changed_at < REQUEST_GUARD_S
        if request is None or request.id != self._shown_id or is_new:
            return

        def on_refusal(refusal: Refusal) -> None:
            app.show_toast(refusal, "warning")
            app.reload(["permissions"])

        app.call_engine(
            lambda engine: engine.permissions.answer(request.id, answer),
            lambda _: app.report(f"{answer.words}: {request.title}", "permissions", "sessions"),
            on_refusal,
        )

    # Drawing

    def _show_detail(self, detail: str) -> None:
        self._detail.clear()
        is_diff = detail.startswith(("@@", "--- ", "diff "))  # or looks like one: every line is shown whole
        self._detail.extend(
            (DIFF_KINDS.get(line[:1], "same") if is_diff else "output", line) for line in detail.splitlines()
        )

    def _lay_out_detail(self, request: PermissionRequest) -> None:
        """Hide the detail if the title shows all of it; else give it the room that the other lines leave, so that
        these are always in sight."""
        title = one_line(request.title)
        detail = request.detail.strip()
        verb, _, subject = title.partition(" ")
        shown_texts = (title, subject) if verb in OWN_VERBS else (title,)  # an agent may hide a command among words
        self._detail.display = bool(detail) and (cell_len(title) > self._width or detail not in shown_texts)
        row_width = max(8, self._width - 3)  # without the margin, the sign and the scrollbar
        row_count = sum(len(find_row_starts(line, row_width)) for line in request.detail.splitlines())
        max_height = self.screen.size.height * MAX_HEIGHT_PERCENT // 100
        room = max(1, min(MAX_DETAIL_LINES, max_height - LINES_AROUND_DETAIL))
        self._detail.styles.height = max(1, min(room, row_count))
        self._hidden_rows = max(0, row_count - room) if self._detail.display else 0

    def _make_head_lines(self, request: PermissionRequest, width: int) -> list[Content]:
        """The title, the reason, and that there is more of the detail below."""
        title = Content.styled(one_line(request.title), "bold $ink")
        why = Content.assemble(("why  ", "$faint"), (one_line(request.reason), "$grey"))
        lines = [line for text in (title, why) for line in limit_lines(text.wrap(width), MAX_HEAD_LINES, width)]
        if self._hidden_rows:
            key = format_key("panes.next", self.app.keymap)
            hint = f"▼ {formats.count(self._hidden_rows, 'line')} more below: {key} goes there, then scroll"
            lines.append(Content.styled(crop(hint, width), "$wants"))
        return lines

    def _make_key_lines(self, width: int) -> list[Content]:
        keymap = self.app.keymap
        keys = [
            Content.assemble((format_key(action, keymap), "bold $wants"), (f" {label}", "$grey"))
            for action, label in ANSWER_LABELS.items()
        ]
        if len(self.requests) > 1:
            keys.append(Content.assemble((format_key("asked.next", keymap), "$accent"), (" next", "$grey")))
        return Content("   ").join(keys).wrap(width)

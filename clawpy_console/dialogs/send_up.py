"""Sending findings up to their leaders, from mission control and the hierarchy screen (SPEC 1.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console import words
from engine.model import Bubble, BubbleState, FlushReport

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def send_up(app: ConsoleApp) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""

    def ask(queued: Sequence[Bubble]) -> None:
        def send() -> None:
            app.ask(lambda engine: engine.wisdom.flush(), lambda report: _sent(app, report))

        app.confirm("Send these findings up now?", question(queued), "send up", send)

    app.look_up(lambda engine: engine.wisdom.bubbles(state=BubbleState.QUEUED), ask)


def question(queued: Sequence[Bubble]) -> str:
    """What would be sent up, and what becomes of it."""
    ready = [one for one in queued if one.may_guide]
    lines = [words.crop(f"▸ {one.learning.agent} → {one.leader}: {one.learning.text}", 70) for one in ready[:6]]
    if len(ready) > 6:
        lines.append(f"  and {len(ready) - 6:,} more")
    if len(ready) < len(queued):
        quotes = words.count(len(queued) - len(ready), "quote")
        lines.append(f"  Not included: {quotes} that you have not approved yet (see “waiting for you”)")
    return "\n".join(lines or ["Nothing is waiting. Findings of the last sessions are checked now."]) + (
        "\n\nIt becomes a pattern of its leader and goes into the prompts of all agents below. To undo it, edit the "
        "guidance of that leader."
    )


def _sent(app: ConsoleApp, report: FlushReport) -> None:
    up = sum(len(ids) for ids in report.flushed.values())
    left = f", {report.waiting:,} still waiting" if report.waiting else ""
    app.say(f"{words.count(up, 'finding')} sent up{left}")
    if report.failed:
        app.say(f"The shared leadership could not be reached: {report.failed}. It is synced later.", "warning")
    app.renew(["agents", "changes"])

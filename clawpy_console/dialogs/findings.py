"""The findings that wait to be sent up to leaders: shown, and sent once you confirm (SPEC 1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console import formats
from clawpy_console.dialogs.question import confirm
from clawpy_console.formats import crop
from engine.model import Bubble, BubbleState, FlushReport

if TYPE_CHECKING:
    from clawpy_console.console import Console

MAX_LISTED = 6
"""Maximum number of findings that the question lists."""


def send_findings(app: Console) -> None:
    """Show the findings that passed all gates, and send them up once you confirm."""

    def send() -> None:
        app.call_engine(lambda engine: engine.bubbles.flush(), lambda report: _show_report(app, report))

    app.load_for_dialog(
        lambda engine: engine.bubbles.list(state=BubbleState.QUEUED),
        lambda queued: confirm(app, "Send these findings up now?", _question(queued), "send up", send),
    )


def _question(queued: Sequence[Bubble]) -> str:
    """The findings that would be sent up, and their effect."""
    ready = [finding for finding in queued if finding.may_guide]
    lines = [
        crop(f"▸ {finding.learning.agent} → {finding.leader}: {finding.learning.text}", 70)
        for finding in ready[:MAX_LISTED]
    ]
    if len(ready) > MAX_LISTED:
        lines.append(f"  and {len(ready) - MAX_LISTED:,} more")
    if len(ready) < len(queued):
        quotes = formats.count(len(queued) - len(ready), "quote")
        lines.append(f"  Not included: {quotes} that you have not approved yet (see “waiting for you”)")
    if not lines:
        return "Nothing is waiting. Findings of the last sessions are checked now."
    if ready:
        lines.append(
            "\nEach becomes a pattern of its leader and goes into the prompts of all agents below. To undo that, edit "
            "the guidance of the leader."
        )
    return "\n".join(lines)


def _show_report(app: Console, report: FlushReport) -> None:
    up = sum(len(ids) for ids in report.flushed.values())
    remainder = f", {report.waiting:,} still waiting" if report.waiting else ""
    app.show_toast(f"{formats.count(up, 'finding')} sent up{remainder}")
    if report.failed:
        app.show_toast(f"The shared leadership could not be reached: {report.failed}. It is synced later.", "warning")
    app.reload(["agents", "changes"])

"""Opens and dismisses the items of the queue “waiting for you” (SPEC 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clawpy_console.formats import one_line
from engine.model import Layer, Waiting

if TYPE_CHECKING:
    from clawpy_console.card_controller import CardConsole
    from engine import Engine

# The dialogs are imported when they are opened: not before the first frame.


def open_item(app: CardConsole, waiting: Waiting) -> None:
    """Open the screen where the item is decided, or ask for the decision here."""
    match waiting.kind:
        case "fact":
            app.open("memory", Layer.PARA, waiting.id)
        case "candidate" | "learning":
            app.open("learning", waiting.id)
        case "bubble" if waiting.text:
            _confirm_approval(app, waiting)
        case "bubble":
            from clawpy_console.dialogs.question import send_findings

            send_findings(app)
        case "notification":
            _confirm_retry(app, waiting)
        case _:
            change = next((change for change in app.state.changes if change.id == waiting.id), None)
            if session_id := waiting.session_id or (change.session_id if change else ""):
                app.open("work", session_id)


def _confirm_approval(app: CardConsole, waiting: Waiting) -> None:
    """Question whether a quote may be used as guidance; it goes up only with the operator's approval (SPEC 6.8)."""
    from clawpy_console.dialogs.question import confirm

    hostile = f"▲ hostile: {one_line(waiting.hostile)}\n\n" if waiting.hostile else ""
    question = (
        f"{hostile}{one_line(waiting.text)}\n\nThis text comes from tools, files or agents. "
        "If you approve it, it becomes a pattern of a leader and goes into the prompts of all agents below."
    )

    def approve() -> None:
        app.call_engine(
            lambda engine: engine.bubbles.approve(waiting.id),
            lambda finding: app.report(f"Approved. It reaches {finding.leader} with the next round.", "changes"),
        )

    confirm(app, "Use it as guidance?", question, "approve", approve, risky=bool(hostile))


def _confirm_retry(app: CardConsole, waiting: Waiting) -> None:
    """Question whether to send a notification again; one that is out of date by then is not sent."""
    from clawpy_console.dialogs.question import confirm

    question = f"{one_line(waiting.title)}\n\nOnce it is fixed, `clawpy notify test` checks it."

    def retry() -> None:
        app.call_engine(lambda engine: engine.notify.retry_waiting(waiting.id), lambda _: app.reload(["changes"]))

    confirm(app, "Try again?", question, "try again", retry)


DISMISSALS: dict[str, Callable[[Engine, str], object]] = {
    "notification": lambda engine, id: engine.notify.dismiss_waiting(id),
    "interrupted": lambda engine, id: engine.acknowledge(id),
}
"""The call that dismisses an item, by its kind; others need a decision."""


def dismiss(app: CardConsole, waiting: Waiting) -> None:
    """Dismiss a notification or an interrupted session."""
    call = DISMISSALS.get(waiting.kind)
    if call is None:
        app.show_toast("Only interrupted sessions can be dismissed here. ⏎ opens what needs a decision.", "warning")
    else:
        app.call_engine(lambda engine: call(engine, waiting.id), lambda _: app.reload(["changes"]))

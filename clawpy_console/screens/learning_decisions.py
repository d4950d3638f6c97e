"""The decisions about a candidate or a learning: which are possible, their questions, their calls (SPEC 5, 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input

from clawpy_console.dialogs.base import PreviewDialog, confirm
from clawpy_console.fields import Field
from clawpy_console.fields import learning as fields
from clawpy_console.formats import crop
from clawpy_console.keys import bindings
from clawpy_console.widgets.frame import KeyLine
from clawpy_console.widgets.reflowing_text import ReflowingText, render_fields
from engine import document
from engine.frozen import frozen
from engine.model import LearningEntry, LearningKind, LearningScope, LearningView
from engine.model.adaptation import CANDIDATE_MOVES, Candidate, CandidateView

if TYPE_CHECKING:
    from clawpy_console.console import Console
    from engine import Engine

View = CandidateView | LearningView

UNWRAPPED_CELLS = 10_000
"""A width at which no line wraps: the dialog wraps the text itself."""


@frozen
class Decision:
    """A decision about a candidate or a learning."""

    question: str
    """Asked before, "" for no question."""
    message: str
    """Shown when it is done."""
    takes_reason: bool = False
    verb: str = ""
    """The answer that confirms it, where no reason is asked for."""


DECISIONS = {
    "approve": Decision("Activate it?", "Active now", verb="activate"),
    "reject": Decision("Reject it?", "Rejected", takes_reason=True),
    "roll back": Decision("Roll it back?", "Rolled back: its changes are removed", takes_reason=True),
    "retract": Decision("Retract it?", "Retracted", takes_reason=True),
    "keep": Decision("", "It stays valid"),
    "promote": Decision("Apply it in all projects?", "It now applies in all projects", verb="apply everywhere"),
}
"""The decisions by their name in the table of keys."""


class DecisionDialog(PreviewDialog[str | None]):
    """Asks for the reason of a decision. Gives the reason, "" for none; None on Escape.

    Enter does nothing and says so, because one key too many would decide.
    """

    BINDINGS = bindings("deciding", "preview")
    AUTO_FOCUS = "#reason"
    DEFAULT_CSS = """
    DecisionDialog .dialog { width: 100; }
    DecisionDialog #pane { height: auto; max-height: 60vh; padding: 0; }
    DecisionDialog #reason { height: 3; margin: 1 0 0 0; }
    DecisionDialog KeyLine { dock: none; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, preview: list[Field]) -> None:
        """`preview`: what the decision changes."""
        super().__init__()
        self._title, self._preview = title, preview

    def compose(self) -> ComposeResult:
        with self.frame(self._title):
            with VerticalScroll(id="pane", can_focus=False):
                yield ReflowingText(id="change")
            yield Input(placeholder="Reason, in a few words (kept with it)", id="reason", max_length=400)
            yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._preview)

    @on(Input.Submitted)
    def _explain_enter(self) -> None:
        self.show_enter_hint(f"{self.key_of('deciding.decide')} confirms")

    def action_decide(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())


def subject_of(view: View) -> Candidate | LearningEntry:
    """The candidate or the learning that `view` is about."""
    return view.candidate if isinstance(view, CandidateView) else view.entry


def is_possible(name: str, view: View) -> bool:
    """Whether the decision `name` can be made about it now."""
    if isinstance(view, CandidateView):
        return (view.candidate.status, name) in CANDIDATE_MOVES
    entry = view.entry
    match name:
        case "retract":
            return entry.active
        case "keep":
            return entry.active and bool(entry.review)
        case "promote":
            return entry.active and entry.scope is LearningScope.PROJECT and entry.kind is not LearningKind.PROXY
    return False


def ask(app: Console, name: str, view: View, decide: Callable[[str], object]) -> None:
    """Ask whether to carry out the decision `name`, and show what it changes. `decide` gets the reason, "" for none."""
    decision, subject = DECISIONS[name], subject_of(view)
    text = subject.text if isinstance(subject, LearningEntry) else ""
    title = f"{decision.question} {crop(fields.short_title(subject.title, text), 60)}"
    if not decision.question:
        decide("")
    elif decision.takes_reason:
        app.ask(DecisionDialog(title, list(_preview_fields(name, view))), decide)
    else:
        preview = Content("\n").join(render_fields(_preview_fields(name, view), UNWRAPPED_CELLS))
        confirm(app, title, preview, decision.verb, partial(decide, ""))


def _preview_fields(name: str, view: View) -> Iterator[Field]:
    """The effect of the decision `name`."""
    if name == "retract":
        return fields.retraction_fields(document(view))
    if name == "promote":
        return fields.promotion_fields(document(view))
    return fields.decision_fields(document(view), name)


def carry_out(engine: Engine, name: str, id: str, reason: str) -> object:
    """Carry out the decision `name`. Blocking. Raises the engine's refusals."""
    service = engine.adaptation if name in ("approve", "reject", "roll back") else engine.learnings
    call: Callable[..., object] = getattr(service, name.replace(" ", "_"))
    return call(id, reason) if DECISIONS[name].takes_reason else call(id)

"""Screen 7, insights: the quality of the predictions, their calibration, training (SPEC 8, 9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from clawpy_console.fields import Document, Field, heading, predictions, text_line
from clawpy_console.formats import one_line, workspace_name
from clawpy_console.keys import bindings
from clawpy_console.screens.base import ConsoleScreen, find_next_choice
from clawpy_console.screens.dialog import confirm, show_text
from clawpy_console.widgets.rows import ScrollPane
from clawpy_console.widgets.texts import ReflowingText
from engine import document
from engine.model import Insights, Refusal, TrainingOffer

if TYPE_CHECKING:
    from engine import Engine

PERIODS: tuple[int | None, ...] = (7, 30, 90, None)
"""The periods in days, None for all time."""

NO_TABLES = "No cards yet."
"""Shown in place of the tables."""


class InsightsScreen(ConsoleScreen):
    """Plots left, tables in the middle, training right.

    On a terminal of normal width the last two columns share a place; the one in focus is shown.
    """

    MODE = "insights"
    PURPOSE = "How useful the cards are to you, and how far you can trust their confidence."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#left"
    BINDINGS = bindings("insights", "columns")
    PANES = {name: name for name in ("left", "right", "third")}
    OWN_TOPICS = frozenset({"cards", "phase", "costs", "settings", "changes", "training"})
    READ_DEBOUNCE_S = 1.0  # reports come in bursts

    def __init__(self) -> None:
        super().__init__()
        self._days: int | None = 30
        self._workspace = ""  # "" for all
        self._insights: Insights | None = None

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            for pane in self.PANES:
                with ScrollPane(id=pane, classes="pane"):
                    yield ReflowingText(id=f"{pane}-text")

    # Reading

    def draw_times(self) -> None:
        if self._insights is not None and self._insights.training.active is not None:
            self.read_again()  # the state of a run at its provider changes without an event

    def read_again(self, wait: float = 0.0) -> None:
        """Read the figures of the chosen period and workspace, after `wait` seconds."""
        days, workspace = self._days, self._workspace
        self.read(lambda engine: engine.insights.read(days, workspace), self._show, group="insights", wait=wait)

    def _show(self, insights: Insights) -> None:
        self._insights = insights
        self.draw(frozenset())

    # Drawing

    def on_resize(self, event: events.Resize) -> None:
        if self.ready:
            self.draw(frozenset())

    def draw(self, changed: frozenset[str]) -> None:
        columns: list[list[Field]] = [[text_line("Loading…", "faint")], [], []]
        if self._insights is not None:
            figures = document(self._insights)
            columns = [
                self._make_plot_fields(self._insights, figures),
                self._make_table_fields(figures),
                self._make_training_fields(self._insights),
            ]
        elif self.app.engine is not None:
            self.read_again()
        for pane, fields in zip(self.PANES, columns, strict=True):
            self.show_fields(f"#{pane}-text", fields)
        self.refresh_bindings()

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "approval and calibration", "right": "tables", "third": "training"}

    def _make_plot_fields(self, insights: Insights, figures: Document) -> list[Field]:
        """The left column: decisions over time, calibration and drift. `figures` is the document of `insights`."""
        scope = workspace_name(insights.workspace) if insights.workspace else "all workspaces"
        fields = [text_line(f"Cards of {scope}", "title"), *predictions.make_summary_fields(figures)]
        if not figures["approved"] + figures["rejected"]:
            fields.append(text_line(explain_no_figures(insights, self.key_of), "grey"))
        fields += predictions.make_daily_fields(figures)
        fields += predictions.make_calibration_fields(figures)
        fields += predictions.make_drift_fields(figures["drift"])
        return fields

    def _make_table_fields(self, figures: Document) -> list[Field]:
        """The middle column."""
        fields = list(predictions.make_table_fields(figures, ("sources", "channels", "kinds", "partsOfDay")))
        fields += predictions.make_hourly_fields(figures)
        return [heading(f"tables{self._make_key_hint(1, 'training')}"), *(fields or [text_line(NO_TABLES, "faint")])]

    def _make_training_fields(self, insights: Insights) -> list[Field]:
        """The right column: what the engine may do by itself, and the training."""
        title = f"acting by itself{self._make_key_hint(2, 'tables')}"
        fields = [heading(title), text_line(one_line(insights.earning), "grey")]
        fields += predictions.make_training_fields(insights.training, self.now, self.key_of)
        return fields

    def _make_key_hint(self, presses: int, column: str) -> str:
        """The key that leads to a column, where the last two share a place; else ""."""
        return f"   {self.key_of('panes.next') * presses} {column}" if self.has_class("-normal") else ""

    # Period and workspace

    def action_period(self) -> None:
        """Show the figures of the next period."""
        self._days = find_next_choice(PERIODS, self._days)
        self.read_again()

    def action_workspace(self) -> None:
        """Show the figures of the next workspace; after the last, of all."""
        self._workspace = find_next_choice(["", *self.state.workspaces], self._workspace)
        self.read_again()

    # Training

    def offers(self, action: str, *parameters: object) -> bool:
        if action == "swap":
            view = self._insights.training if self._insights is not None else None
            return view is not None and view.active is None and view.swappable_run is not None
        if action == "workspace":
            return len(self.state.workspaces) > 1
        return True

    def action_train(self) -> None:
        """Start a training, or stop the one that runs, after a question that says what that means."""
        if (insights := self._insights) is None:
            return
        if (run := insights.training.active) is not None:
            stop = partial(self._call, lambda engine: engine.training.cancel(), "the training is stopped")
            confirm(self.app, "Stop the training?", predictions.make_stop_question(run), "stop it", stop, risky=True)
            return

        def ask(offer: TrainingOffer) -> None:
            question = predictions.make_training_question(offer, insights.training, self.key_of)
            launch = partial(self._call, lambda engine: engine.training.launch(), "the training has started")
            confirm(self.app, "Train a Twin model?", question, "send and train", launch, risky=True)

        self.app.load_for_dialog(lambda engine: engine.training.offer(), ask, self._explain_refusal)

    def _explain_refusal(self, refusal: Refusal) -> None:
        show_text(self.app, "No training yet", f"{refusal.message}\n\n{refusal.fix}")

    def action_swap(self) -> None:
        """Use the model that was trained last, or go back to the previous one. The engine reports the result."""
        insights = self._insights
        if insights is None or (run := insights.training.swappable_run) is None:
            return
        title, question = predictions.make_swap_question(run, insights.training)

        def swap(engine: Engine) -> object:
            return engine.training.adopt() if run.state == "kept_old" else engine.training.restore_former()

        confirm(self.app, title, question, "swap", partial(self._call, swap))

    def _call(self, call: Callable[[Engine], object], message: str = "") -> None:
        def on_done(_: object) -> None:
            if message:
                self.app.show_toast(message)
            self.read_again()

        self.app.call_engine(call, on_done)

    def copy_text(self) -> str:
        return "" if self._insights is None else self._insights.drift.words


def explain_no_figures(insights: Insights, key_of: Callable[[str], str]) -> str:
    """Why there are no figures, and how to get some. `key_of` gives the key of an action."""
    mission = f"On mission control ({key_of('app.mission')}),"
    decide = f"{mission} {key_of('stack.approve')} approves and {key_of('stack.dismiss')} dismisses."
    if number := insights.metrics.cannot_run:
        lacking = f"{number:,} could not run, so {'it counts' if number == 1 else 'they count'} in no rate."
        return f"{lacking} {decide}"
    if insights.metrics.total:
        own = ", only prompts of your own" if insights.metrics.own and insights.phase.decisions else ""
        return f"You have not decided any of these cards{own}. {decide}"
    longer = f"in this period; {key_of('insights.period')} selects a longer one"
    when = "yet" if insights.days is None else longer
    return f"No cards {when}. {mission} {key_of('mission.predict')} checks for cards now."

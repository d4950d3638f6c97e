"""Screen 7, insights: the quality of the predictions, their calibration, training (SPEC 8, 9.1).

The engine makes all figures; `fields.cards` words them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from clawpy_console import formats
from clawpy_console.fields import WORDS, Document, Field, Fields, draw_bar, heading, text_line
from clawpy_console.fields import cards as card_fields
from clawpy_console.formats import one_line, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens import ConsoleScreen, find_next_choice
from clawpy_console.screens.dialog import confirm, show_text
from clawpy_console.widgets import ScrollPane
from clawpy_console.widgets.texts import ReflowingText
from engine import document
from engine.model import Insights, Refusal, TrainingOffer, TrainingView

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
    BINDINGS = make_bindings("insights", "columns")
    PANES = {name: name for name in ("left", "right", "third")}
    OWN_TOPICS = frozenset({"cards", "phase", "costs", "settings", "changes", "training"})
    READ_DEBOUNCE_S = 1.0  # reports come in bursts

    _days: int | None = 30
    _workspace = ""  # "" for all
    _insights: Insights | None = None

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
        days = self._days
        workspace = self._workspace
        self.read(lambda engine: engine.insights.read(days, workspace), self._show, group="insights", wait=wait)

    def _show(self, insights: Insights) -> None:
        self._insights = insights
        self.draw(frozenset())

    # Drawing

    def on_resize(self, event: events.Resize) -> None:
        if self.is_ready:
            self.draw(frozenset())

    def draw(self, changed: frozenset[str]) -> None:
        columns: list[list[Field]] = [[text_line("Loading…", "faint")], [], []]
        if (insights := self._insights) is not None:
            figures = document(insights)
            tables = [
                *card_fields.make_table_fields(figures, ("sources", "channels", "kinds", "partsOfDay")),
                *card_fields.make_hourly_fields(figures),
            ]
            columns = [
                self._make_plot_fields(insights, figures),
                [heading(f"tables{self._make_key_hint(1, 'training')}"), *(tables or [text_line(NO_TABLES, "faint")])],
                [
                    heading(f"acting by itself{self._make_key_hint(2, 'tables')}"),
                    text_line(one_line(insights.earning), "grey"),
                    *_make_training_view_fields(insights.training, self.now, self.key_of),
                ],
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
        fields = [text_line(f"Cards of {scope}", "title"), *card_fields.make_summary_fields(figures)]
        if not figures["approved"] + figures["rejected"]:
            fields.append(text_line(explain_no_figures(insights, self.key_of), "grey"))
        fields += card_fields.make_daily_fields(figures)
        fields += card_fields.make_calibration_fields(figures)
        fields += card_fields.make_drift_fields(figures["drift"])
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
            state = card_fields.TRAINING_STATES[run.state].words
            question = (
                f"{run.id}: {run.records:,} {METHOD_NAMES[run.method]} at {run.provider}, {state}.\n\n"
                "It is also cancelled at the provider, which may still charge for work done. The model in use stays; "
                "no pair is used up."
            )
            confirm(self.app, "Stop the training?", question, "stop it", stop, risky=True)
            return

        def confirm_training(offer: TrainingOffer) -> None:
            question = _make_training_question(offer, insights.training, self.key_of)
            launch = partial(self._call, lambda engine: engine.training.launch(), "the training has started")
            confirm(self.app, "Train a Twin model?", question, "send and train", launch, risky=True)

        self.app.load_for_dialog(lambda engine: engine.training.offer(), confirm_training, self._explain_refusal)

    def _explain_refusal(self, refusal: Refusal) -> None:
        show_text(self.app, "No training yet", f"{refusal.message}\n\n{refusal.fix}")

    def action_swap(self) -> None:
        """Use the model that was trained last, or go back to the previous one. The engine reports the result."""
        insights = self._insights
        if insights is None or (run := insights.training.swappable_run) is None:
            return
        measured = f"\n\nMeasured: {one_line(run.note)}" if run.note else ""
        if run.state == "kept_old":
            question = f"{run.model} replaces {insights.training.model or 'none'} immediately.{measured}"
            swap = partial(self._call, lambda engine: engine.training.adopt())
            confirm(self.app, "Use this model?", question, "swap", swap)
        else:
            back = run.former_model or "no model: only the built-in Twin"
            question = f"{run.model} is no longer used. In use again: {back}.{measured}"
            swap = partial(self._call, lambda engine: engine.training.restore_former())
            confirm(self.app, "Go back to the previous model?", question, "swap", swap)

    def _call(self, call: Callable[[Engine], object], message: str = "") -> None:
        def on_done(_: object) -> None:
            if message:
                self.app.show_toast(message)
            self.read_again()

        self.app.call_engine(call, on_done)

    def find_text_to_copy(self) -> str:
        return "" if self._insights is None else self._insights.drift.words


def explain_no_figures(insights: Insights, key_of: Callable[[str], str]) -> str:
    """Why there are no figures, and how to get some. `key_of` gives the key of an action."""
    mission = f"On mission control ({key_of('app.mission')}),"
    if insights.metrics.total:
        decide = f"{mission} {key_of('stack.approve')} approves and {key_of('stack.dismiss')} dismisses."
        return f"None of these cards counts as decided; what could not run counts in no rate. {decide}"
    longer = f"in this period; {key_of('insights.period')} selects a longer one"
    when = "yet" if insights.days is None else longer
    return f"No cards {when}. {mission} {key_of('mission.predict')} checks for cards now."


METHOD_NAMES = WORDS["method"]
"""The examples of a training, by its method."""


def _make_training_view_fields(view: TrainingView, now: datetime, key_of: Callable[[str], str]) -> Fields:
    """The pairs until the next training, the model in use, the newest trainings; and the keys that train and swap.
    `key_of` gives the key of an action."""
    yield heading("training")
    yield Field("pairs", f"{draw_bar(view.pairs / max(1, view.needed))} {view.pairs:,} of {view.needed} new")
    if view.active is None:
        automatic = "; it starts by itself when it is due" if view.automatic else ""
        yield Field("next", f"{view.words or 'the next training is due'}{automatic}")
        yield Field(key_of("insights.train"), "train; first shows what is sent and where", "accent")
    off = "" if view.enabled or not view.model else f", off: twinModelEnabled ({key_of('app.safety')})"
    yield Field("Twin model", f"{view.model or 'none: only the built-in Twin'}{off}")
    for run in view.runs:
        label = card_fields.TRAINING_STATES[run.state]
        cost = f" · {formats.money(run.cost)}" if run.cost else ""
        examples = f"{run.records:,} {METHOD_NAMES[run.method]}"
        text = f"{formats.moment(run.created_at, now)} · {examples}{cost}"
        yield Field(f"{label.sign} {label.words}", text, label.tone)
        if run.note:
            yield text_line(one_line(run.note), "faint")
    if (newest := view.swappable_run) is not None:
        swap = f"go back to the previous model: {newest.former_model or 'none'}"
        if newest.state == "kept_old":
            swap = f"switch to {newest.model}"
        yield Field(key_of("insights.swap"), swap, "accent")


def _make_training_question(offer: TrainingOffer, view: TrainingView, key_of: Callable[[str], str]) -> str:
    """The question before a training: what is sent where, its cost and its result. `key_of` gives the key of an
    action, such as that which stops the training again."""
    provider = f"{offer.provider} ({offer.base_url})" if offer.base_url else offer.provider
    safety = key_of("app.safety")
    off_note = (
        "" if view.enabled else f" It predicts cards only while twinModelEnabled is on ({safety}), which is off now."
    )
    baseline = f"{offer.current_model} does" if offer.current_model else "a coin toss would"
    size = f"{offer.size / 1000:,.0f} kB" if offer.size < 1_000_000 else f"{offer.size / 1_000_000:.1f} MB"
    return (
        f"{offer.records:,} {METHOD_NAMES[offer.method]}, {size}, go to {provider}, which trains "
        f"{offer.base_model} on them.\n\n"
        "What is sent: the context of each card (names of files and branches, titles of tasks, the last "
        "test result), prompts you approved and dismissed with their channels; the text of imported conversations. "
        "Known secrets are removed.\n\n"
        f"What stays here: {offer.held_back:,} decisions, to measure the new model. It is used only if it agrees with "
        f"them at least as often as {baseline}.{off_note}\n\n"
        f"Cost: what the provider charges. {formats.money(offer.cost_cap)} is reserved within your caps "
        f"(training.costCap); the final price is known at the end. {key_of('insights.train')} stops the training."
    )

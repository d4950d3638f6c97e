"""Screen 7, insights: how good the predictions are, what their confidence is worth, training (SPEC 8, 9.1)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer

from clawpy_console import words
from clawpy_console.dialogs.ask import confirm, tell
from clawpy_console.fields import Field
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.insights import figures
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.row_view import ScrollPane
from engine import document
from engine.model import Insights, Refusal, TrainingOffer

if TYPE_CHECKING:
    from engine import Engine

PERIODS: tuple[int | None, ...] = (7, 30, 90, None)

MOVES = frozenset({"cards", "phase", "costs", "settings", "changes", "training"})
"""What the engine reports before figures may be others."""

DEBOUNCE_S = 1.0
"""Seconds after a report before the figures are read again: reports come in bursts, and while agents work in a row."""

NO_TABLES = "No cards yet."


class InsightsScreen(ConsoleScreen):
    """Plots left, tables in the middle, drift and training right.

    On a middling terminal the last two share a place, on a narrow one all three: the pane in focus is the one that is
    seen. Figures are read in a thread, whole; nothing is counted here.
    """

    MODE = "insights"
    PURPOSE = "How useful the cards are to you, and how far you can trust their confidence."
    CSS_PATH = ["../columns.tcss", "insights.tcss"]
    AUTO_FOCUS = "#left"
    BINDINGS = bindings("insights", "columns")
    PANES = {name: name for name in ("left", "right", "third")}
    COLUMNS = PANES

    def __init__(self) -> None:
        super().__init__()
        self._days: int | None = 30
        self._workspace = ""
        self._read: Insights | None = None
        self._debounce_timer: Timer | None = None
        self._requested = False  # figures were asked for once

    def body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            for pane in self.PANES:
                with ScrollPane(id=pane, classes="pane"):
                    yield ReflowingText(id=f"{pane}-told")

    # Reading

    def on_screen_resume(self) -> None:
        self.read_again()

    def engine_moved(self, topics: frozenset[str]) -> None:
        if topics & MOVES and self._debounce_timer is None:
            self._debounce_timer = self.set_timer(DEBOUNCE_S, self._on_debounce, name="debounce")

    def _on_debounce(self) -> None:
        """Read now; after the reading that is under way, however often something is reported meanwhile."""
        under_way = any(worker.group == "insights" and worker.is_running for worker in self.workers)
        self._debounce_timer = self.set_timer(DEBOUNCE_S, self._on_debounce, name="debounce") if under_way else None
        if not under_way and self.is_current:
            self.read_again()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready and self.is_current and self._read is not None and self._read.training.active is not None:
            self.read_again()  # how a run stands at its provider is no event

    def read_again(self) -> None:
        """Read the figures of the time and place chosen."""
        days, workspace, self._requested = self._days, self._workspace, self.app.engine is not None
        self.read(lambda engine: engine.insights.read(days, workspace), self._take, group="insights")

    def _take(self, read: Insights) -> None:
        self._read = read
        if self.ready:
            self.draw(frozenset())

    # Drawing

    def on_resize(self, event: events.Resize) -> None:
        if self.ready:
            self.draw(frozenset())

    def draw(self, changed: frozenset[str]) -> None:
        if not self._requested and self.app.engine is not None and self.is_current:
            self.read_again()
        read, now = self._read, self.app.now()
        loading = "Loading…" if self.app.engine is not None else "Starting the engine…"
        parts = self._parts(read, now) if read else [[Field("", loading, "faint")], [], []]
        for pane, fields in zip(self.PANES, parts, strict=True):
            self.show_fields(f"#{pane}-told", fields)
        self.refresh_bindings()

    def columns(self) -> Mapping[str, str]:
        return {"left": "approval and calibration", "right": "tables", "third": "training"}

    def _parts(self, read: Insights, now: datetime) -> list[list[Field]]:
        """What stands in each column; nothing in the tables while there is no card."""
        insights = document(read)
        place = words.workspace_name(read.workspace) if read.workspace else "all workspaces"
        plots = [Field("", f"Cards of {place}", "title"), *figures.head_fields(insights)]
        if not insights["approved"] + insights["rejected"]:
            plots.append(Field("", empty_message(read), "grey"))
        plots += [
            *figures.over_time_fields(insights, now),
            *figures.calibration_fields(insights),
            *figures.drift_fields(insights["drift"]),
        ]
        aside = self.has_class("-normal")  # the last two columns share a place
        next_key = shown_key("panes.next", self.app.keymap)
        tables = [
            *figures.table_fields(insights, ("sources", "channels", "kinds", "partsOfDay")),
            *figures.hours_fields(insights),
        ]
        keys = [shown_key(f"insights.{name}", self.app.keymap) for name in ("train", "swap")]
        back = f"   {next_key * 2} tables" if aside else ""
        third = [
            Field("", f"acting by itself{back}", "heading"),
            Field("", words.one_line(read.earning), "grey"),
        ]
        third += figures.training_fields(read.training, now, *keys)
        more = f"   {next_key} training" if aside else ""
        return [plots, [Field("", f"tables{more}", "heading"), *(tables or [Field("", NO_TABLES, "faint")])], third]

    # What is looked at

    def action_period(self) -> None:
        """The next time span."""
        self._days = words.next_choice(PERIODS, self._days)
        self.read_again()

    def action_workspace(self) -> None:
        """The figures of the next workspace, then of all."""
        self._workspace = words.next_choice(["", *self.state.workspaces], self._workspace)
        self.read_again()

    # Training

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "swap":
            return (
                self._read is not None and self._read.training.active is None and self._read.training.swap is not None
            )
        if action == "workspace":
            return len(self.state.workspaces) > 1
        return super().check_action(action, parameters)

    def action_train(self) -> None:
        """Start a training, or stop the one under way: after its consequences were read and a second key."""
        if (read := self._read) is None:
            return
        if (run := read.training.active) is None:
            self.app.look_up(lambda engine: engine.training.offer(), self._offered, self._not_yet)
            return

        def stop() -> None:
            self.app.ask(lambda engine: engine.training.cancel(), lambda _: self._moved("the training is stopped"))

        confirm(self.app, "Stop the training?", figures.stop_question(run), "stop it", stop, risky=True)

    def _offered(self, offer: TrainingOffer) -> None:
        if (read := self._read) is None:
            return

        def train() -> None:
            self.app.ask(lambda engine: engine.training.launch(), lambda run: self._moved(f"training: {run.state}"))

        key = shown_key("insights.train", self.app.keymap)
        question = figures.training_question(offer, read.training, key)
        confirm(self.app, "Train a Twin model?", question, "send and train", train, risky=True)

    def _not_yet(self, refusal: Refusal) -> None:
        tell(self.app, "No training yet", f"{refusal.message}\n\n{refusal.fix}")

    def action_swap(self) -> None:
        """Use the model that was trained last, or again the one before it."""
        read = self._read
        if read is None or (run := read.training.swap) is None:
            return
        title, question = figures.swap_title_and_question(run, read.training)

        def swap(engine: Engine) -> object:
            return engine.training.adopt() if run.state == "kept_old" else engine.training.restore_former()

        # The engine's report says the rest.
        confirm(self.app, title, question, "swap", lambda: self.app.ask(swap, lambda _: self.read_again()))

    def _moved(self, message: str) -> None:
        self.app.say(message)
        self.read_again()

    def copy_text(self) -> str:
        return "" if self._read is None else self._read.drift.words


def empty_message(read: Insights) -> str:
    """Why there is no figure, and how to get one."""
    if read.metrics.total:
        return "You have not decided any of them. On mission control (1), → approves and ← dismisses."
    when = "yet" if read.days is None else "in this period; p selects a longer one"
    return f"No cards {when}. On mission control (1), p checks for cards now."

"""Screen 7, insights: how good the predictions are, what their confidence is worth, training (SPEC 8, 9.1)."""

from __future__ import annotations

from datetime import datetime

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.insights import lines as lines
from clawpy_console.screens.insights import plots
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.scrolled import Scrolled
from clawpy_console.widgets.tab_line import Columns
from engine.values import Insights, Refusal, TrainingOffer

PERIODS: tuple[int | None, ...] = (7, 30, 90, None)

MOVES = frozenset({"cards", "phase", "costs", "settings", "changes", "training"})
"""What the engine reports before figures may be others."""

SETTLED = 1.0
"""Seconds after a report before the figures are read again: reports come in bursts, and while agents work in a row."""

MOST_ROWS = 28
"""Of the plot of approvals, however high the terminal is."""

WORDS = {"left": "approval and calibration", "right": "tables", "third": "drift and training"}
"""For the columns, where one is shown."""


class InsightsScreen(ConsoleScreen):
    """Plots left, tables in the middle, drift and training right.

    On a middling terminal the last two share a place, on a narrow one all three: the pane in focus is the one that is
    seen. Figures are read in a thread, whole; nothing is counted here.
    """

    MODE = "insights"
    CSS_PATH = "insights.tcss"
    AUTO_FOCUS = "#left"
    BINDINGS = bindings("insights")
    PANES = {"left": "left", "right": "right", "third": "third"}
    COLUMNS = {"left": "left", "right": "right", "third": "third"}

    def __init__(self) -> None:
        super().__init__()
        self._days: int | None = 30
        self._workspace = ""
        self._read: Insights | None = None
        self._settling: Timer | None = None
        self._begun = False  # figures were asked for once

    def body(self) -> ComposeResult:
        yield Drawn(id="head")
        yield Columns(id="tabs")
        with Horizontal(id="columns"):
            with Scrolled(id="left", classes="pane"):
                yield Static(id="approval-title", classes="heading", markup=False)
                yield Drawn(id="approval")
                yield Static(id="calibration-title", classes="heading", markup=False)
                yield Drawn(id="calibration")
            with Scrolled(id="right", classes="pane"):
                yield Static(id="tables-title", classes="heading", markup=False)
                yield Drawn(id="tables")
            with Scrolled(id="third", classes="pane"):
                yield Static(id="drift-title", classes="heading", markup=False)
                yield Drawn(id="drift")
                yield Static("ACTING BY ITSELF", classes="heading", markup=False)
                yield Drawn(id="acting")
                yield Static("TRAINING", classes="heading", markup=False)
                yield Drawn(id="training")
                yield Static("WHEN", id="when-title", classes="heading", markup=False)
                yield Drawn(id="when")

    # Reading

    def on_screen_resume(self) -> None:
        self.read_again()

    def engine_moved(self, topics: frozenset[str]) -> None:
        if topics & MOVES and self._settling is None:
            self._settling = self.set_timer(SETTLED, self._settled, name="settling")

    def _settled(self) -> None:
        """Read now; after the reading that is under way, however often something is reported meanwhile."""
        under_way = any(one.group == "insights" and one.is_running for one in self.workers)
        self._settling = self.set_timer(SETTLED, self._settled, name="settling") if under_way else None
        if not under_way and self.is_current:
            self.read_again()

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready and self.is_current and self._read is not None and self._read.training.active is not None:
            self.read_again()  # how a run stands at its provider is no event

    def read_again(self) -> None:
        """Read the figures of the time and place chosen."""
        engine, days, workspace = self.app.engine, self._days, self._workspace
        if engine is not None:
            self._begun = True
            self.read(lambda: engine.insights.read(days, workspace), self._take, group="insights")

    def _take(self, read: Insights) -> None:
        self._read = read
        if self.ready:
            self.draw(frozenset())

    # Drawing

    def on_resize(self, event: events.Resize) -> None:
        if self.ready:
            self.draw(frozenset())

    def draw(self, changed: frozenset[str]) -> None:
        if not self._begun and self.app.engine is not None and self.is_current:
            self.read_again()
        read, now = self._read, self.app.now()
        self._draw_tabs()
        shared = 100 <= self.size.width < 160  # the last two panes share a place
        next_key = shown_key("panes.next", self.app.keymap)
        asides = (f"   {next_key} drift and training", f"   {next_key} {next_key} tables") if shared else ("", "")
        for title, words, aside in zip(("#tables-title", "#drift-title"), ("TABLES", "DRIFT"), asides, strict=True):
            self.put(title, Content.assemble(words, (aside, "not bold $faint")))
        self.put("#approval-title", Content("APPROVAL RATE"))
        self.put("#calibration-title", Content.assemble("CALIBRATION  ", plots.legend()))
        if read is None:
            said = [Content.styled("Loading…" if self.app.engine is not None else "Starting the engine…", "$faint")]
            self.query_one("#head", Drawn).show(lambda width: said)
            return
        roomy = self.size.width >= 160 and self.size.height >= 50  # what else stands at the end of the tables

        def approval(width: int) -> list[Content]:
            rows = self.size.height - 14 - len(lines.calibrated(read, width))
            return lines.approval(read, width, min(MOST_ROWS, max(4, rows)))

        keys = (shown_key("insights.train", self.app.keymap), shown_key("insights.swap", self.app.keymap))
        self.query_one("#head", Drawn).show(lambda width: lines.head(read, width))
        self.query_one("#approval", Drawn).show(approval)
        self.query_one("#calibration", Drawn).show(lambda width: lines.calibrated(read, width))
        most = 16 if roomy else 8
        self.query_one("#tables", Drawn).show(lambda width: lines.tables(read, width, most, whens=not roomy))
        self.query_one("#when", Drawn).show(lambda width: lines.when(read, width, 8) if roomy else [])
        self.query_one("#when-title").display = roomy and bool(read.metrics.parts)
        self.query_one("#drift", Drawn).show(lambda width: lines.drift(read.drift, width))
        self.query_one("#acting", Drawn).show(lambda width: lines.acting(read, width))
        self.query_one("#training", Drawn).show(lambda width: lines.training(read.training, width, now, keys))
        self.refresh_bindings()

    def _draw_tabs(self) -> None:
        self.show_columns(WORDS)

    def on_descendant_focus(self) -> None:
        super().on_descendant_focus()
        if self.ready:
            self._draw_tabs()

    # What is looked at

    def action_period(self) -> None:
        """The next time span."""
        self._days = PERIODS[(PERIODS.index(self._days) + 1) % len(PERIODS)]
        self.read_again()

    def action_workspace(self) -> None:
        """The figures of the next workspace, then of all."""
        places = ["", *self.known.workspaces]
        here = places.index(self._workspace) if self._workspace in places else 0
        self._workspace = places[(here + 1) % len(places)]
        self.read_again()

    # Training

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "swap":
            return (
                self._read is not None and self._read.training.active is None and self._read.training.swap is not None
            )
        if action == "workspace":
            return len(self.known.workspaces) > 1
        return super().check_action(action, parameters)

    def action_train(self) -> None:
        """Start a training, or stop the one under way: after its consequences were read and a second key."""
        engine, read = self.app.live(), self._read
        if engine is None or read is None:
            return
        if (run := read.training.active) is None:
            self.app.look_up(engine.training.offer, self._offered, self._not_yet)
            return

        def stop() -> None:
            self.app.ask(engine.training.cancel, lambda _: self._moved("the training is stopped"))

        self.app.confirm("Stop the training?", lines.stopping(run), "stop it", stop, risky=True)

    def _offered(self, offer: TrainingOffer) -> None:
        engine, read = self.app.engine, self._read
        if engine is None or read is None:
            return

        def train() -> None:
            self.app.ask(engine.training.launch, lambda run: self._moved(f"training: {run.state}"))

        key = shown_key("insights.train", self.app.keymap)
        question = lines.question(offer, read.training, key)
        self.app.confirm("Train a Twin model?", question, "send and train", train, risky=True)

    def _not_yet(self, refusal: Refusal) -> None:
        self.app.tell("No training yet", f"{refusal.message}\n\n{refusal.fix}")

    def action_swap(self) -> None:
        """Use the model that was trained last, or again the one before it."""
        engine, read = self.app.live(), self._read
        if engine is None or read is None or (run := read.training.swap) is None:
            return
        title, question = lines.swapping(run, read.training)
        swap = engine.training.adopt if run.state == "kept_old" else engine.training.put_back

        # The engine's report says the rest.
        self.app.confirm(title, question, "swap", lambda: self.app.ask(swap, lambda _: self.read_again()))

    def _moved(self, said: str) -> None:
        self.app.say(said)
        self.read_again()

    def copy_text(self) -> str:
        return "" if self._read is None else self._read.drift.words

"""Screen 6, safety: the rails as a pipeline, caps, the state machine, holds, what was blocked and why (SPEC 3, 7)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings, shown_key
from clawpy_console.screens.filtering import Filtering
from clawpy_console.screens.safety import gauges, machine, pipeline
from clawpy_console.screens.safety import lines as lines
from clawpy_console.screens.safety.pipeline import Pipeline
from clawpy_console.state import Logged
from clawpy_console.widgets.drawn import Drawn
from clawpy_console.widgets.filter import Filter
from clawpy_console.widgets.rows import Rows
from clawpy_console.widgets.tab_line import Columns

MOVE_THE_RAILS = frozenset({"log", "blocked", "costs", "holds", "autonomy", "switches", "autonomies", "sessions"})
"""Fields of `Known` whose change makes what is read of the rails old."""

READ_EVERY = timedelta(minutes=1)
"""Windows slide and waits end without an event: so often the rails are read again while they are looked at."""

DND = timedelta(hours=2)

SWITCH_WORDS = {
    "crossPollEnabled": "New cards appear again and approved work runs.",
    "autonomousModeEnabled": "When you are inactive, the engine may start work without asking: only what the "
    "rails allow, only kinds you have often approved and items of a heartbeat.md that you wrote to `run`, only in "
    "workspaces set to `act`, never in quiet hours. It never lands a change and never pushes.",
    "twinModelEnabled": "A model predicts which cards you want. It costs money, within the caps.",
    "dpoExportEnabled": "Your decisions are written to dpo-pairs.jsonl every day.",
}
AUTONOMY = (
    ("o", "off", "no cards, nothing runs"),
    ("c", "cards", "cards; nothing runs by itself"),
    ("A", "act", "may act by itself within the rails"),
)


class SafetyScreen(Filtering):
    """What keeps the engine in bounds, and how it stands.

    Three columns below the pipeline: how things stand, what was blocked, what can be switched. On a middling terminal
    the last two share a place, on a narrow one all three: the pane in focus is the one that is seen.
    """

    MODE = "safety"
    CSS_PATH = "safety.tcss"
    AUTO_FOCUS = "#blocked"
    BINDINGS = bindings("safety")
    PANES = {"rails": "pipeline", "blocked": "blocked", "switches": "switches"}
    COLUMNS = {"rails": "left", "blocked": "right", "switches": "third"}
    FILTERED = "blocked"

    _beat: Timer | None = None
    _read_at: datetime | None = None

    def body(self) -> ComposeResult:
        yield Pipeline(id="pipeline")
        yield Drawn(id="said")
        yield Columns(id="tabs")
        with Horizontal(id="columns"):
            with VerticalScroll(id="left", classes="pane", can_focus=False):
                yield Static(id="cost-title", classes="heading", markup=False)
                yield Drawn(id="gauges")
                yield Static("STATE", classes="heading", markup=False)
                yield Drawn(id="machine")
                yield Static("HOLDS", classes="heading", markup=False)
                yield Drawn(id="holds")
            with Vertical(id="right", classes="pane"):
                yield Static(id="blocked-title", classes="heading", markup=False)
                yield Filter("rail, rule, words of the prompt or the reason")
                yield Rows(id="blocked", empty="Nothing was blocked.", classes="-fit")
                yield Drawn(id="why")
                yield Static(id="chain-title", classes="heading", markup=False)
                yield Drawn(id="chain")
            with VerticalScroll(id="third", classes="pane", can_focus=False):
                yield Static("SWITCHES", classes="heading", markup=False)
                yield Rows(id="switches", classes="-fit")
                yield Static("KILL SWITCH, FOUR LEVELS", classes="heading", markup=False)
                yield Drawn(id="levels")
                yield Static("SANDBOX", classes="heading", markup=False)
                yield Drawn(id="sandbox")

    # Time

    def on_screen_resume(self) -> None:
        if self._beat is None:
            self._beat = self.set_interval(1.0, self._second, name="countdown")
        self._read_again(self.app.now())

    def on_screen_suspend(self) -> None:
        if self._beat is not None:
            self._beat.stop()
            self._beat = None

    def _second(self) -> None:
        """While this screen is looked at, a second that makes a difference is drawn."""
        now = self.app.now()
        if self.ready and machine.counts_down(self.known, now):
            self._draw_moments(now)
        if self._read_at is not None and now - self._read_at >= READ_EVERY:
            self._read_again(now)

    def _read_again(self, now: datetime) -> None:
        self._read_at = now
        self.app.renew(["rails", "autonomy", "phase"])

    def on_resize(self, event: events.Resize) -> None:
        if self.ready:
            self.draw(frozenset())

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready:
            self._draw_moments(now)

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        known, now = self.known, self.app.now()
        if changed & MOVE_THE_RAILS and self.is_current:
            # Not the autonomy: while a cycle is due its next time is now, another one with each reading.
            self.app.renew(["rails", "phase"])
        low = self.size.height < 34
        self._draw_moments(now)
        title = Content.assemble("COST  ", gauges.legend())
        self.put("#cost-title", title)
        self.query_one("#gauges", Drawn).show(lambda width: gauges.gauges(known, width, now, tall=not low))
        self._draw_blocked(now)
        self._draw_chain(now)
        self.query_one("#switches", Rows).show(list(lines.switch_rows(known)))
        self.query_one("#levels", Drawn).show(lambda width: lines.level_lines(known.levels, width))
        sandbox = known.sandbox or "not tested yet"
        self.query_one("#sandbox", Drawn).show(lambda width: Content.styled(sandbox, "$grey").wrap(max(8, width)))
        self.refresh_bindings()

    def _draw_moments(self, now: datetime) -> None:
        """What a second can change: countdowns in the pipeline, the machine and the holds."""
        known, low = self.known, self.size.height < 34
        rails = self.query_one("#pipeline", Pipeline)
        cursor = rails.cursor if rails.has_focus else -1
        rails.show(lambda width: pipeline.pipeline(known, width, now, cursor))
        self.query_one("#said", Drawn).show(lambda width: lines.decision_lines(known, width, now, cursor))
        holds = self.app.holds
        resume, dnd = (shown_key(action, self.app.keymap) for action in ("app.resume", "safety.dnd"))
        self.query_one("#machine", Drawn).show(lambda width: lines.machine_lines(known, now, width, low))
        self.query_one("#holds", Drawn).show(lambda width: lines.hold_lines(known, holds, now, width, resume, dnd))

    def _draw_tabs(self) -> None:
        blocked = f"blocked {len(self.known.blocked)}"
        columns = {"left": "caps and state", "right": blocked, "third": "switches"}
        self.show_columns(columns, shown_key("panes.next", self.app.keymap))

    def on_descendant_focus(self) -> None:
        if self.ready:
            self._draw_tabs()

    def _shown(self) -> list[Logged]:
        needle = self.needle
        return [one for one in self.known.blocked if all(word in lines.searched(one) for word in needle)]

    def _draw_blocked(self, now: datetime) -> None:
        shown, total = self._shown(), len(self.known.blocked)
        count = f"{len(shown)} of {total}" if self.needle else f"{total}" if total else ""
        aside = "   ⇥ switches" if 100 <= self.size.width < 160 else ""
        self.put("#blocked-title", Content.assemble("BLOCKED  ", (count, "$grey"), (aside, "not bold $faint")))
        rows = [lines.blocked_row(one, now) for one in shown]
        empty = "No match." if self.needle else "Nothing was blocked."
        self.query_one("#blocked", Rows).show(rows, empty=empty)
        self._draw_why()
        self._draw_tabs()

    @on(Rows.Moved, "#blocked")
    def _draw_why(self) -> None:
        one, now = self._current, self.app.now()
        key = shown_key("safety.allow_once", self.app.keymap)
        self.query_one("#why", Drawn).show(lambda width: lines.why_lines(one, now, width, key) if one else [])
        self.refresh_bindings()

    def _draw_chain(self, now: datetime) -> None:
        chain = self.known.chain
        most = 14 if self.size.height >= 50 else 5 if self.size.height >= 34 else 2
        self.put("#chain-title", Content.assemble("CHAIN  ", ("what triggered what, newest first", "not bold $faint")))
        self.query_one("#chain", Drawn).show(lambda width: lines.chain_lines(chain[:most], now, width))

    @on(Pipeline.Moved)
    def _rail_moved(self) -> None:
        if self.ready:
            self._draw_moments(self.app.now())

    @on(Pipeline.Scrolled)
    def _scroll(self, message: Pipeline.Scrolled) -> None:
        left = self.query_one("#left")
        left.scroll_to(y=left.scroll_offset.y + message.lines, animate=False)

    # Blocked work

    @property
    def _current(self) -> Logged | None:
        current = self.query_one("#blocked", Rows).current if self.ready else ""
        return next((one for one in self.known.blocked if one.id == current), None)

    def action_allow_once(self) -> None:
        """Lift the content filter's block of exactly this, after a second key."""
        engine, one = self.app.live(), self._current
        if engine is None or one is None:
            return
        block = lines.content_block(one)
        if block is None:
            self.app.say("Only a block by the content filter can be allowed once.", "warning")
            return
        rule = f" ({block.rule})" if block.rule else ""
        question = (
            f"“{words.crop(words.one_line(one.what), 300)}”\n\nLifts: content{rule}: {words.one_line(block.reason)}\n\n"
            "Applies once, to exactly this text. The other rails still apply. Nothing starts now: approve the "
            "card afterwards."
        )

        def allow() -> None:
            self.app.ask(lambda: engine.safety.allow_once(one.prediction_id), lambda _: self._allowed())

        self.app.confirm("Allow this once?", question, "allow once", allow, risky=True)

    def _allowed(self) -> None:
        self.app.say("Allowed once. Approve the card to run it.")
        self.app.renew(["log", "cards", "rails"])

    def filtered(self) -> None:
        self._draw_blocked(self.app.now())

    # Switches

    @on(Rows.Moved, "#switches")
    def _switch_moved(self) -> None:
        """On a low terminal the cursor takes what stands below the switches along."""
        rows, third = self.query_one("#switches", Rows), self.query_one("#third")
        share = rows.cursor / max(1, rows.virtual_size.height - 1)
        third.scroll_to(y=round(third.max_scroll_y * share), animate=False)

    @on(Rows.Opened, "#switches")
    def _toggle(self, message: Rows.Opened) -> None:
        name = message.row_id
        if name.startswith("/"):
            self._choose_autonomy(name)
            return
        if dict(self.known.switches).get(name, False):
            self.app.keep_setting(name, False)
            return

        said = SWITCH_WORDS.get(name, "")
        self.app.confirm(f"Turn {name} on?", said, "turn on", lambda: self.app.keep_setting(name, True))

    def _choose_autonomy(self, workspace: str) -> None:
        from clawpy_console.dialogs.ask import Ask

        present = dict(self.known.autonomies).get(workspace, "")

        def answered(key: str | None) -> None:
            chosen = next((word for own, word, _ in AUTONOMY if own == key), present)
            if chosen != present:
                self.app.keep_setting(f"workspaces.{json.dumps(workspace, ensure_ascii=False)}.autonomy", chosen)

        title = f"What may the engine do in {words.name(workspace)}?"
        self.app.push_screen(Ask(title, "", AUTONOMY, present=present), answered)

    # Holds

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "allow_once":
            one = self._current
            seen = self.pane == "blocked"
            return seen and one is not None and not one.lifted and lines.content_block(one) is not None
        return super().check_action(action, parameters)

    def action_dnd(self) -> None:
        """Do not disturb for two hours, or not any more."""
        engine = self.app.live()
        if engine is None:
            return
        span = None if self.known.quiet.dnd_until is not None else DND

        def done(until: datetime | None) -> None:
            self.app.say(f"Nothing runs by itself until {words.hour(until)}" if until else "Do not disturb is off.")
            self.app.renew(["rails", "autonomy"])

        self.app.ask(lambda: engine.autonomy.dnd(span), done)

    def copy_text(self) -> str:
        one = self._current
        return one.prediction_id or one.reason if one else ""

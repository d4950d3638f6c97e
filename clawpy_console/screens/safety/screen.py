"""Screen 6, safety: rails, caps, stops and pauses, blocked work, switches (SPEC 3, 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from clawpy_console import formats, state_words
from clawpy_console.dialogs.question import Answer, Question, confirm
from clawpy_console.formats import clock_time, crop, one_line, workspace_name
from clawpy_console.keys import bindings
from clawpy_console.screens.base import FilterableScreen
from clawpy_console.screens.safety import safety_fields
from clawpy_console.state import AppState
from clawpy_console.widgets.filter_input import Filter, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine.model import LogEntry, Verdict

NOTHING_BLOCKED = "Nothing was blocked."

RAIL_FIELDS = frozenset({"log", "blocked", "costs", "holds", "autonomy", "switches", "autonomies", "sessions"})
"""Fields of `AppState` after whose change the rails are read again."""

READ_INTERVAL = timedelta(minutes=1)
"""Time between two readings of the rails while the screen is shown, because windows and waits end without an event."""

DND_DURATION = timedelta(hours=2)

SWITCH_QUESTIONS = {
    "crossPollEnabled": "New cards appear again and approved work runs.",
    "autonomousModeEnabled": "When you are inactive, the engine may start work without asking: only what the "
    "rails allow, only kinds you have often approved and items of a heartbeat.md that you marked `run`, only in "
    "workspaces set to `act`, never in quiet hours. It never lands a change and never pushes.",
    "twinModelEnabled": "A model predicts which cards you want. It costs money, within the caps.",
    "dpoExportEnabled": "Your decisions are written to dpo-pairs.jsonl every day.",
}
"""The meaning of turning a switch on, by its setting."""

AUTONOMY_ANSWERS = (
    Answer("o", "off", "no cards, nothing runs"),
    Answer("c", "cards", "cards; nothing runs by itself"),
    Answer("A", "act", "may act by itself within the rails"),
)
"""The answers to the question for a workspace's autonomy."""


class SafetyScreen(FilterableScreen):
    """Rails left, blocked work in the middle, switches right.

    On a terminal of normal width the last two columns share a place; the one in focus is shown.
    """

    MODE = "safety"
    PURPOSE = "Every piece of work passes these rails, in this order, before it runs."
    CSS_PATH = ["../columns.tcss", "safety.tcss"]
    AUTO_FOCUS = "#rails"
    BINDINGS = bindings("safety", "columns", "filter")
    PANES = {"rails": "rails", "blocked": "blocked", "switches": "switches"}
    COLUMNS = {"rails": "left", "blocked": "right", "switches": "third"}
    FILTER_PANE = "blocked"

    _countdown: Timer | None = None
    """Ticks each second while the screen is shown."""

    _read_at: datetime | None = None
    """When the rails were read last."""

    def body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with VerticalScroll(id="left", classes="pane", can_focus=False):
                yield Static("RAILS", classes="heading", markup=False)
                yield Rows(id="rails", empty="Loading…", can_open=False, classes="-fit")
                yield ReflowingText(id="standing")
            with Vertical(id="right", classes="pane"):
                yield Static(id="blocked-title", classes="heading", markup=False)
                yield Filter("rail, rule, words of the prompt or the reason")
                yield Rows(id="blocked", empty=NOTHING_BLOCKED, can_open=False, classes="-fit")
                yield ReflowingText(id="why")
            with VerticalScroll(id="third", classes="pane", can_focus=False):
                yield Static("SWITCHES", classes="heading", markup=False)
                yield Rows(id="switches", classes="-fit")
                yield ReflowingText(id="machine")

    # Time

    def on_screen_resume(self) -> None:
        if self._countdown is None:
            self._countdown = self.set_interval(1.0, self._on_second, name="countdown")
        self._read_again(self.app.now())

    def on_screen_suspend(self) -> None:
        if self._countdown is not None:
            self._countdown.stop()
            self._countdown = None

    def _on_second(self) -> None:
        """Draw what counts down, and read the rails again when it is time."""
        now = self.app.now()
        if self.ready and safety_fields.counts_down(self.state, now):
            self._draw_standing(now)
        if self._read_at is not None and now - self._read_at >= READ_INTERVAL:
            self._read_again(now)

    def _read_again(self, now: datetime) -> None:
        self._read_at = now
        self.app.reload(["rails", "autonomy", "phase"])

    def tick(self, now: datetime) -> None:
        super().tick(now)
        if self.ready:
            self._draw_standing(now)

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        state, now = self.state, self.app.now()
        if changed & RAIL_FIELDS and self.is_current:
            # Not the autonomy: while a check is due its time is now, so each reading would cause the next.
            self.app.reload(["rails", "phase"])
        self._draw_standing(now)
        self._draw_blocked(now)
        self.query_one("#switches", Rows).show(list(switch_rows(state)))
        self.show_fields("#machine", safety_fields.machine_fields(state, now))
        self.refresh_bindings()

    def _draw_standing(self, now: datetime) -> None:
        """Draw the rails, the state and the costs, which change with the time."""
        state, rows = self.state, self.query_one("#rails", Rows)
        rows.show(list(rail_rows(state, now)))
        rail = next((rail for rail in state.rails if rail.rail == rows.current), None)
        keys = [self.key_of(action) for action in ("app.resume", "safety.dnd")]
        fields = [
            *safety_fields.rails_fields(state, rail, now),
            *safety_fields.state_fields(state, self.app.holds, now, *keys),
            *safety_fields.cost_fields(state.burn, now),
        ]
        self.show_fields("#standing", fields)

    def columns(self) -> Mapping[str, str]:
        return {"left": "rails", "right": f"blocked {len(self.state.blocked)}", "third": "switches"}

    def _draw_blocked(self, now: datetime) -> None:
        needle, total = self.needle, len(self.state.blocked)
        shown = [entry for entry in self.state.blocked if has_words(search_text(entry), needle)]
        count = f"{len(shown)} of {total}" if needle else f"{total}" if total else ""
        hint = "   ⇥ switches" if self.has_class("-normal") else ""
        self.update_static("#blocked-title", Content.assemble("BLOCKED  ", (count, "$grey"), (hint, "not bold $faint")))
        rows = [blocked_row(entry, now) for entry in shown]
        self.query_one("#blocked", Rows).show(rows, empty="No match." if needle else NOTHING_BLOCKED)
        self._draw_why()

    @on(Rows.Moved, "#blocked")
    def _draw_why(self) -> None:
        entry, key = self._blocked_entry, self.key_of("safety.allow_once")
        self.show_fields("#why", safety_fields.blocked_fields(entry, self.app.now(), key) if entry else ())
        self.refresh_bindings()

    @on(Rows.Moved, "#rails")
    @on(Rows.Moved, "#switches")
    def _scroll_column(self, message: Rows.Moved) -> None:
        """Scroll the column of a list with its cursor, so that a low terminal also shows what stands below the list."""
        if message.view.id == "rails":
            self._draw_standing(self.app.now())
        column = self.query_one("#left" if message.view.id == "rails" else "#third")
        share = message.view.cursor / max(1, message.view.virtual_size.height - 1)
        column.scroll_to(y=round(column.max_scroll_y * share), animate=False)

    # Blocked work

    @property
    def _blocked_entry(self) -> LogEntry | None:
        """The entry under the cursor of the blocked work."""
        current = self.query_one("#blocked", Rows).current if self.ready else ""
        return next((entry for entry in self.state.blocked if str(entry.id) == current), None)

    def action_allow_once(self) -> None:
        """Allow once exactly what the content filter blocked, after a question."""
        if (entry := self._blocked_entry) is None:
            return
        block = safety_fields.content_block(entry)
        if block is None:
            self.app.show_toast("Only a block by the content filter can be allowed once.", "warning")
            return
        rule = f" ({block.rule})" if block.rule else ""
        question = (
            f"“{crop(one_line(entry.prompt), 300)}”\n\n"
            f"Lifts: content{rule}: {one_line(block.reason)}\n\n"
            "Applies once, to exactly this text. The other rails still apply. Nothing starts now: approve the "
            "card afterwards."
        )

        def allow() -> None:
            message = "Allowed once. Approve the card to run it."
            self.app.call_engine(
                lambda engine: engine.safety.allow_once(entry.prediction_id),
                lambda _: self.app.report(message, "log", "cards", "rails"),
            )

        confirm(self.app, "Allow this once?", question, "allow once", allow, risky=True)

    def apply_filter(self) -> None:
        self._draw_blocked(self.app.now())

    # Switches

    @on(Rows.Opened, "#switches")
    def _toggle(self, message: Rows.Opened) -> None:
        name = message.row_id
        if name.startswith("/"):
            self._ask_for_autonomy(name)
        elif dict(self.state.switches).get(name, False):
            self.app.write_setting(name, False)
        else:
            question = SWITCH_QUESTIONS.get(name, "")
            confirm(self.app, f"Turn {name} on?", question, "turn on", lambda: self.app.write_setting(name, True))

    def _ask_for_autonomy(self, workspace: str) -> None:
        present = dict(self.state.autonomies).get(workspace, "")

        def on_answer(answer: Answer | None) -> None:
            if answer is not None and answer.label != present:
                key = f"workspaces.{json.dumps(workspace, ensure_ascii=False)}.autonomy"
                self.app.write_setting(key, answer.label)

        title = f"What may the engine do in {workspace_name(workspace)}?"
        self.app.push_screen(Question(title, AUTONOMY_ANSWERS, present=present), on_answer)

    # Holds

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "allow_once":
            entry = self._blocked_entry
            if entry is None or entry.lifted or self.pane != "blocked":
                return False
            return safety_fields.content_block(entry) is not None
        return super().check_action(action, parameters)

    def action_dnd(self) -> None:
        """Turn do-not-disturb on for two hours, or off."""
        duration = None if self.state.quiet.dnd_until is not None else DND_DURATION

        def on_done(until: datetime | None) -> None:
            message = f"Nothing runs by itself until {clock_time(until)}" if until else "Do not disturb is off."
            self.app.report(message, "rails", "autonomy")

        self.app.call_engine(lambda engine: engine.autonomy.dnd(duration), on_done)

    def copy_text(self) -> str:
        entry = self._blocked_entry
        return entry.prediction_id or entry.reason if entry else ""


def search_text(entry: LogEntry) -> str:
    """The text of an entry that the filter searches."""
    verdicts = " ".join(f"{v.rail} {v.rule} {v.reason}" for v in entry.verdicts if v.verdict is not Verdict.ALLOW)
    return f"{verdicts} {entry.prompt} {entry.channel} {entry.workspace} {entry.trigger_type}"


def rail_rows(state: AppState, now: datetime) -> Iterator[Row]:
    """The rails in their order, each with its status and last verdict; then what becomes of unapproved work."""
    for rail in state.rails:
        sign, label, tone = safety_fields.rail_status(rail, now, state.acts_by_itself)
        last = ""
        if rail.last is not None and rail.last_at is not None:
            last = f"last {state_words.VERDICT_SIGNS[rail.last.verdict][0]} {formats.moment(rail.last_at, now)}"
        stopped = f"{rail.stopped} stopped in 24 h  " if rail.stopped else ""
        yield Row(
            rail.rail, f"{safety_fields.rail_name(rail.rail):<12} {label}", sign, stopped + last, "ink", tone, "grey"
        )
    if state.rails:
        sign, label, tone = safety_fields.unapproved_work_status(state.rails, state.acts_by_itself)
        yield Row("execute", f"{'execute':<12} {label}", sign, f"{len(state.running)} running", "ink", tone, "grey")


def switch_rows(state: AppState) -> Iterator[Row]:
    """The switches, then the autonomy of each workspace, whose row has the path of the workspace as id."""
    for name, is_on in state.switches:
        if is_on:
            yield Row(name, name, "●", "on", "ink", "accent", "ink")
        else:
            yield Row(name, name, "○", "off", "grey", "faint", "faint")
    if state.autonomies:
        yield Row("", " AUTONOMY BY WORKSPACE")
    for workspace, autonomy in state.autonomies:
        mark, style = {"act": "●", "cards": "◐"}.get(autonomy, "○"), "accent" if autonomy == "act" else "grey"
        text_style = "grey" if autonomy == "off" else "ink"
        yield Row(workspace, workspace_name(workspace), mark, autonomy, text_style, style, style)


def blocked_row(entry: LogEntry, now: datetime) -> Row:
    """A decision that did not allow work: the rail, the prompt, the time."""
    decisive = safety_fields.decisive_verdict(entry.verdicts)
    sign, style = state_words.VERDICT_SIGNS[decisive.verdict if decisive else Verdict.BLOCK]
    if entry.lifted:
        sign, style = "◌", "accent"
    text = f"{safety_fields.rail_name(decisive.rail) if decisive else '':<11} {one_line(entry.prompt)}"
    return Row(str(entry.id), text, sign, formats.moment(entry.at, now), "ink", style)

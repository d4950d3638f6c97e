"""Screen 6, safety: rails, caps, stops and pauses, blocked work, switches (SPEC 3, 7).

`safety_fields` words what is shown. `ask_to_resume` ends a stop from any screen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import WORDS, heading, text_line
from clawpy_console.formats import clock_time, crop, has_words, one_line, workspace_name
from clawpy_console.keys import make_bindings
from clawpy_console.screens import FilteredScreen, safety_fields
from clawpy_console.screens.dialog import Answer, Question, confirm
from clawpy_console.state import SWITCHES
from clawpy_console.widgets import Pane, Rows
from clawpy_console.widgets.texts import Filter, Heading, ReflowingText
from engine.model import Hold, RailDecision

if TYPE_CHECKING:
    from clawpy_console.console import Console

NOTHING_BLOCKED = "Nothing was blocked."
"""Shown in place of blocked work."""

RAIL_FIELDS = frozenset(
    {"latest_log", "blocked_work", "costs", "holds", "autonomy", "switch_values", "workspace_autonomy", "sessions"}
)
"""Fields of `AppState` after whose change the rails are read again."""

READ_INTERVAL = timedelta(minutes=1)
"""Time between two readings of the rails while the screen is shown, because windows and waits end without an event."""

DND_DURATION = timedelta(hours=2)
"""The time for which the key turns do-not-disturb on."""

AUTONOMY_ANSWERS = [Answer(key, *cells) for key, cells in WORDS["autonomy"].items()]
"""The answers to the question for a workspace's autonomy."""


class SafetyScreen(FilteredScreen):
    """Rails left, blocked work in the middle, switches right.

    On a terminal of normal width the last two columns share a place; the one in focus is shown.
    """

    MODE = "safety"
    PURPOSE = "Every piece of work passes these rails, in this order, before it runs."
    CSS_PATH = "columns.tcss"
    AUTO_FOCUS = "#rails"
    BINDINGS = make_bindings("safety", "columns", "filter")
    PANES = {"rails": "left", "blocked": "right", "switches": "third"}
    FILTER_PANE = "blocked"

    _read_at: datetime | None = None
    """When the rails were read last."""

    _blocked_rows = getters.query_one("#blocked", Rows)

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="columns"):
            with VerticalScroll(id="left", classes="pane", can_focus=False):
                yield Heading("RAILS")
                yield Rows(id="rails", empty="Loading…", can_open=False, classes="-fit")
                yield ReflowingText(id="standing")
            with Pane(id="right"):
                yield Heading(id="blocked-title")
                yield Filter("rail, rule, words of the prompt or the reason")
                yield Rows(id="blocked", empty=NOTHING_BLOCKED, can_open=False, classes="-fit")
                yield ReflowingText(id="why")
            with VerticalScroll(id="third", classes="pane", can_focus=False):
                yield Heading("SWITCHES")
                yield Rows(id="switches", classes="-fit")
                yield ReflowingText(id="machine")

    # Time

    def on_mount(self) -> None:
        self.set_interval(1.0, self._on_second, name="countdown")

    def _on_second(self) -> None:
        """Draw what counts down, and read the rails again when it is time."""
        now = self.now
        if self.is_current and self.is_ready:
            self._draw_standing()
            if self._read_at is not None and now - self._read_at >= READ_INTERVAL:
                self.read_again()

    def read_again(self, wait: float = 0.0) -> None:
        self._read_at = self.now
        self.app.reload(["rails", "autonomy", "phase"])

    def draw_times(self) -> None:
        self._draw_standing()

    # Drawing

    def draw(self, changed: frozenset[str]) -> None:
        state = self.state
        if changed & RAIL_FIELDS and self.is_current:
            # Not the autonomy: while a check is due its time is now, so each reading would cause the next.
            self.app.reload(["rails", "phase"])
        self._draw_standing()
        self._draw_blocked()
        self.query_one("#switches", Rows).show(list(safety_fields.make_switch_rows(state)))
        machine = [
            heading("kill switch, four levels"),
            *safety_fields.make_kill_switch_fields(state.levels),
            heading("sandbox"),
            text_line(state.sandbox or "not tested yet", "grey"),
        ]
        if state.trigger_chain:
            chain = safety_fields.make_chain_fields(state.trigger_chain, self.now)
            machine += [heading("work that triggered work, newest first"), *chain]
        self.show_fields("#machine", machine)
        self.refresh_bindings()

    def _draw_standing(self) -> None:
        """Draw the rails, the state and the costs, which change with the time."""
        state = self.state
        now = self.now
        rows = self.query_one("#rails", Rows)
        rows.show(list(safety_fields.make_rail_rows(state, now)))
        rail = next((rail for rail in state.rails if rail.rail == rows.current), None)
        fields = [
            *safety_fields.make_rails_fields(state, rail, now),
            heading("state"),
            *safety_fields.make_hold_fields(self.app.holds, now, self.key_of("app.resume")),
            *safety_fields.make_state_fields(state, now),
            safety_fields.make_quiet_field(state.quiet, self.key_of("safety.dnd")),
            heading("cost"),
            *safety_fields.make_cost_fields(state.spending, now),
        ]
        self.show_fields("#standing", fields)

    def make_column_titles(self) -> Mapping[str, str]:
        return {"left": "rails", "right": f"blocked {len(self.state.blocked_work)}", "third": "switches"}

    def _draw_blocked(self) -> None:
        words = self.filter_words
        total = len(self.state.blocked_work)
        matching = [
            entry for entry in self.state.blocked_work if has_words(safety_fields.make_search_text(entry), words)
        ]
        count = f"{total}" if total else ""
        if words:
            count = f"{len(matching)} of {total}"
        hint = f"   {self.key_of('panes.next')} switches" if self.has_class("-normal") else ""
        self.show_content("#blocked-title", Content.assemble("BLOCKED  ", (count, "$grey"), (hint, "not bold $faint")))
        rows = [safety_fields.make_blocked_row(entry, self.now) for entry in matching]
        self._blocked_rows.show(rows, empty=self.describe_empty_list(NOTHING_BLOCKED))
        self._draw_why()

    @on(Rows.Moved, "#blocked")
    def _draw_why(self) -> None:
        """Draw why the entry under the cursor was blocked."""
        entry = self._blocked_entry
        key = self.key_of("safety.allow_once")
        self.show_fields("#why", safety_fields.make_blocked_fields(entry, self.now, key) if entry else ())
        self.refresh_bindings()

    @on(Rows.Moved, "#rails")
    @on(Rows.Moved, "#switches")
    def _scroll_column(self, message: Rows.Moved) -> None:
        """Scroll the column of a list with its cursor, so that a low terminal also shows what stands below the list."""
        if message.view.id == "rails":
            self._draw_standing()
        column = self.query_one("#left" if message.view.id == "rails" else "#third")
        share_above = message.view.cursor / max(1, message.view.virtual_size.height - 1)
        column.scroll_to(y=round(column.max_scroll_y * share_above), animate=False)

    # Blocked work

    @property
    def _blocked_entry(self) -> RailDecision | None:
        """The entry under the cursor of the blocked work."""
        return self._blocked_rows.find(self.state.blocked_work) if self.is_ready else None

    def action_allow_once(self) -> None:
        """Allow once exactly what the content filter blocked, after a question."""
        entry = self._blocked_entry
        if entry is None or (block := safety_fields.find_liftable_block(entry)) is None:
            return
        rule = f" ({block.rule})" if block.rule else ""
        question = (
            f"“{crop(one_line(entry.prompt), 300)}”\n\n"
            f"Lifts: content{rule}: {one_line(block.reason)}\n\n"
            "Applies once, to exactly this text, for 24 h. A command that the text gives its flow may then run once; "
            "what an agent runs is judged as always. The other rails still apply. Nothing starts now: approve the card "
            "afterwards."
        )
        allow = partial(
            self.app.carry_out,
            lambda engine: engine.cards.allow_once(entry.prediction_id),
            safety_fields.ALLOWED_ONCE,
            "log",
            "cards",
            "rails",
        )
        confirm(self.app, "Allow this once?", question, "allow once", allow, risky=True)

    def apply_filter(self) -> None:
        self._draw_blocked()

    def offers(self, action: str, *parameters: object) -> bool:
        if action != "allow_once":
            return True
        entry = self._blocked_entry
        if entry is None or entry.allowed_once or self.pane != "blocked":
            return False
        return safety_fields.find_liftable_block(entry) is not None

    def find_text_to_copy(self) -> str:
        entry = self._blocked_entry
        return entry.prediction_id or entry.reason if entry else ""

    # Switches

    @on(Rows.Opened, "#switches")
    def _toggle(self, message: Rows.Opened) -> None:
        """Turn a switch off, or on after a question. For a workspace, ask what the engine may do there."""
        name = message.row_id
        if name.startswith(safety_fields.WORKSPACE_PREFIX):
            self._ask_for_autonomy(name.removeprefix(safety_fields.WORKSPACE_PREFIX))
        elif dict(self.state.switch_values)[name]:
            self.app.write_setting(name, False)
        else:
            turn_on = partial(self.app.write_setting, name, True)
            confirm(self.app, f"Turn {name} on?", SWITCHES[name].question, "turn on", turn_on)

    def _ask_for_autonomy(self, workspace: str) -> None:
        """Ask what the engine may do in a workspace, and store the answer if it is another than now."""
        present = dict(self.state.workspace_autonomy).get(workspace, "")

        def on_answer(answer: Answer) -> None:
            if answer.label != present:
                key = f"workspaces.{json.dumps(workspace, ensure_ascii=False)}.autonomy"
                self.app.write_setting(key, answer.label)

        title = f"What may the engine do in {workspace_name(workspace)}?"
        self.app.ask(Question(title, AUTONOMY_ANSWERS, current_label=present), on_answer)

    # Do not disturb

    def action_dnd(self) -> None:
        """Turn do-not-disturb on for two hours, or off."""
        duration = None if self.state.quiet.dnd_until is not None else DND_DURATION

        def on_done(until: datetime | None) -> None:
            message = f"Nothing runs by itself until {clock_time(until)}" if until else "Do not disturb is off."
            self.app.report(message, "rails", "autonomy")

        self.app.call_engine(lambda engine: engine.autonomy.set_dnd(duration), on_done)


RESUME_QUESTIONS = WORDS["resume"]
"""Title and text of the question before a hold ends, by the word of the hold. A pause ends without a question."""


def ask_to_resume(app: Console, hold: Hold) -> None:
    """End `hold`; asks first where approved work may start again."""
    if hold.word not in RESUME_QUESTIONS or hold.since is None:
        app.resume(hold.word)
        return
    title, meaning = RESUME_QUESTIONS[hold.word]
    question = f"Since {formats.moment(hold.since, app.now())}: {one_line(hold.reason)}\n\n{meaning}"
    confirm(app, title, question, "resume", partial(app.resume, hold.word))

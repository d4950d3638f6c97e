"""Screen 6, safety: rails, caps, stops and pauses, blocked work, switches (SPEC 3, 7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from clawpy_console import formats
from clawpy_console.dialogs.question import Answer, Question, confirm
from clawpy_console.fields import Field, bar, heading, spark, states, text_line
from clawpy_console.fields.states import hold_field
from clawpy_console.formats import cap_amount, clock_time, crop, one_line, workspace_name
from clawpy_console.keys import bindings
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.state import AppState
from clawpy_console.widgets.bars import Filter, has_words
from clawpy_console.widgets.reflowing_text import ReflowingText
from clawpy_console.widgets.rows import Row, Rows
from engine.model import MICRO, Burn, Hold, LogEntry, RailState, RailVerdict, Verdict

# As fields

RAIL_NAMES = {"loop": "loops", "gate": "human gate", "kill": "kill switch"}
"""The names of rails whose id is not their name."""

AUTONOMY_STATES = ("DISABLED", "WATCHING", "PRIMING", "AUTONOMOUS", "PAUSED")
LEVEL_NAMES = {"config": "configuration", "api": "API, this run", "key": "F12", "outside": "from outside"}


def rail_name(rail: str) -> str:
    """The name of a rail."""
    return RAIL_NAMES.get(rail, rail)


def objections(verdicts: Iterable[RailVerdict]) -> list[RailVerdict]:
    """The verdicts that do not allow the work, in the order of the rails."""
    return [verdict for verdict in verdicts if verdict.verdict is not Verdict.ALLOW]


def decisive_verdict(verdicts: Iterable[RailVerdict]) -> RailVerdict | None:
    """The verdict that decided: the first that blocks, else the first that asks; None when all allowed."""
    return min(objections(verdicts), key=lambda verdict: verdict.verdict is not Verdict.BLOCK, default=None)


def content_block(entry: LogEntry) -> RailVerdict | None:
    """The verdict of the content filter, if it blocked this work."""
    blocks = (verdict for verdict in entry.verdicts if verdict.verdict is Verdict.BLOCK)
    return next((verdict for verdict in blocks if verdict.rail == "content"), None)


def rail_status(rail: RailState, now: datetime, acts_by_itself: bool) -> tuple[str, str, str]:
    """The status of a rail as sign, words and tone; a wait that ends by itself counts down.

    Unless the engine acts by itself, the human gate allows only what the operator approves.
    """
    if rail.rail == "gate" and rail.verdict is Verdict.ALLOW and not acts_by_itself:
        return "✓", "by you", "grey"
    if rail.until is not None and rail.until > now:
        return "◐", f"in {formats.duration(rail.until - now)}", "accent"
    sign, tone = states.VERDICT_SIGNS[rail.verdict]
    return sign, rail.brief, tone


def unapproved_work_status(rails: tuple[RailState, ...], acts_by_itself: bool) -> tuple[str, str, str]:
    """The effect of the rails on work that the operator did not approve, as sign, words and tone."""
    blocking = [rail for rail in rails if rail.verdict is Verdict.BLOCK]
    if any(rail.until is None for rail in blocking):
        return "■", "held", "wrong"
    if any(rail.rail == "kill" for rail in blocking):
        return "▲", "by you", "wants"  # a pause blocks only work that was not approved
    if blocking:
        return "◐", "waits", "accent"
    if any(rail.verdict is Verdict.ASK for rail in rails):
        return "▲", "asks you", "ink"
    return "✓", "open" if acts_by_itself else "by you", "grey"


def rails_fields(state: AppState, rail: RailState | None, now: datetime) -> Iterator[Field]:
    """The newest decision, and the rail under the cursor."""
    newest = state.log[0] if state.log else None
    if newest is None:
        yield text_line("No decisions yet.", "faint")
    else:
        verdict = decisive_verdict(newest.verdicts)
        yield Field("last", f"{formats.moment(newest.at, now)} “{crop(one_line(newest.prompt), 80)}”")
        if verdict is None:
            yield text_line("✓ all rails allowed it", "grey")
        else:
            sign, tone = states.VERDICT_SIGNS[verdict.verdict]
            yield text_line(f"{sign} {rail_name(verdict.rail)}: {one_line(verdict.reason)}", tone)
    if rail is not None:
        sign, label, tone = rail_status(rail, now, state.acts_by_itself)
        yield Field(rail_name(rail.rail), f"{sign} {label}: {one_line(rail.reason)}", tone)
    else:
        yield Field("execute", f"{formats.count(len(state.running), 'session')} running")


def cost_fields(burns: tuple[Burn, ...], now: datetime) -> Iterator[Field]:
    """Costs and reservations against the caps, with their pace; the caps alone while nothing was spent."""
    yield heading("cost")
    if not any(burn.spent or burn.reserved or any(burn.buckets) for burn in burns):
        caps = ", ".join(
            f"${cap_amount(burn.cap)} {'an' if burn.window == 'hour' else 'a'} {burn.window}" for burn in burns
        )
        yield text_line(f"Nothing spent. Caps: {caps}" if burns else "Loading…", "grey")
        return
    for burn in burns:
        used = burn.spent + burn.reserved
        share = used / burn.cap if burn.cap else 1.0
        tone = "wrong" if share >= 1 else "wants" if share >= 0.8 else "ink"
        reserved = f", {formats.money(burn.reserved)} reserved" if burn.reserved else ""
        amounts = f"${used / MICRO:.2f} of ${cap_amount(burn.cap)}{reserved}"
        yield Field(burn.window, f"{bar(share)} {share:>4.0%}  {amounts}", tone)
        yield Field(" ", f"{spark(burn.buckets[: burn.elapsed][-24:])}  {pace_words(burn, now)}", "grey")


def pace_words(burn: Burn, now: datetime) -> str:
    """The pace of spending, and when it reaches the cap."""
    if burn.spent + burn.reserved >= burn.cap:
        return "the cap has been reached"
    if burn.pace <= 0:
        return "nothing recently"
    outlook = f"cap at {formats.moment(burn.reached_at, now)}" if burn.reached_at else "stays below the cap"
    return f"${burn.pace / MICRO:.2f}/h: {outlook}"


def state_fields(state: AppState, holds: tuple[Hold, ...], now: datetime, resume: str, dnd: str) -> Iterator[Field]:
    """Stops and pauses, then the state, its next change and quiet hours; `resume` and `dnd` are keys."""
    yield heading("state")
    for hold in holds:
        remaining = formats.duration(hold.until - now) if hold.until and hold.until > now else ""
        yield hold_field(hold.word, hold.reason, formats.moment(hold.since, now), f"Press {resume}", remaining)
    view = state.autonomy
    states = " ▸ ".join(f"[{name}]" if name == view.state else name for name in AUTONOMY_STATES)
    yield text_line(f"{states} (cap or 3 rejections)", "accent")
    if view.since:
        yield Field("since", f"{formats.moment(view.since, now)}: {one_line(view.cause)}")
    yield Field("next", next_change(state, now))
    silence = formats.age(view.silence_at(now)).replace("now", "0m")
    cycle = f", next check {clock_time(view.next_cycle)}" if view.next_cycle and view.next_cycle > now else ""
    yield Field("inactive", f"for {silence} of {int(view.threshold // 60)}m{cycle}")
    if state.autonomy_note:
        yield Field("by itself", one_line(state.autonomy_note))
    if state.phase and not state.learning:
        yield Field("phase", one_line(state.phase).removeprefix("phase "))
    quiet = state.quiet
    if quiet.dnd_until is not None:
        text = f"do not disturb until {clock_time(quiet.dnd_until)}. Press {dnd} to end it."
        yield Field("quiet", text, "wants")
    else:
        hours = "no quiet hours" if quiet.start == quiet.end else f"quiet hours {quiet.start:02}:00–{quiet.end:02}:00"
        now_text = " now" if quiet.now else ""
        yield Field("quiet", f"{hours}{now_text}. {dnd}: do not disturb for 2 hours", "wants" if quiet.now else "ink")


def next_change(state: AppState, now: datetime) -> str:
    """The next change of the state, and its time."""
    view = state.autonomy
    # Inactive long enough: the next check finds out whether files changed in a workspace.
    is_check = view.state == "WATCHING" and view.silence_at(now).total_seconds() >= view.threshold
    if view.next_change is not None and view.next_change > now:
        remaining = formats.duration(view.next_change - now)
        return f"{'check' if is_check else 'change'} in {remaining}, at {clock_time(view.next_change)}"
    if view.state == "PRIMING":
        return "AUTONOMOUS once it starts a card by itself"
    return "check any moment" if is_check and view.next_change is not None else "no automatic change"


def counts_down(state: AppState, now: datetime) -> bool:
    """Whether anything on the screen counts down."""
    moments = [state.autonomy.next_change, *(rail.until for rail in state.rails), *(hold.until for hold in state.holds)]
    return any(moment is not None and moment > now for moment in moments)


def machine_fields(state: AppState, now: datetime) -> Iterator[Field]:
    """The levels of the kill switch, the sandbox, and work that triggered other work."""
    yield heading("kill switch, four levels")
    for level in state.levels:
        level_text = f"■ {level.words}. To resume: {level.lift}" if level.thrown else f"○ {level.words}"
        yield Field(LEVEL_NAMES.get(level.name, level.name), one_line(level_text), "wrong" if level.thrown else "grey")
    yield heading("sandbox")
    yield text_line(state.sandbox or "not tested yet", "grey")
    if state.chain:
        yield heading("work that triggered work, newest first")
    for step in state.chain:
        parts, is_notable = [f"depth {step.depth}"], step.depth > 1 or bool(step.runs)
        if step.runs:
            parts.append(f"{step.runs}× in 10 min")
        if step.answer_until is not None and step.answer_until > now:
            parts.append(f"no reply until {clock_time(step.answer_until)}")
            is_notable = True
        text = f"{step.from_channel} → {step.to_channel}  {', '.join(parts)}"
        yield Field(formats.moment(step.at, now), text, "ink" if is_notable else "grey")


def blocked_fields(entry: LogEntry, now: datetime, key: str) -> Iterator[Field]:
    """A blocked prompt, each rail that did not allow it with rule and reason, and what `key` can do."""
    yield text_line(crop(one_line(entry.prompt), 400))
    sender = f" from {entry.from_channel}" if entry.from_channel not in ("", "owner") else ""
    place = f"{workspace_name(entry.workspace)} → {entry.channel}{sender}"
    yield text_line(" · ".join(filter(None, (entry.trigger_type, place, formats.moment(entry.at, now)))), "faint")
    for verdict in objections(entry.verdicts):
        sign, tone = states.VERDICT_SIGNS[verdict.verdict]
        rule = f"  rule {verdict.rule}" if verdict.rule else ""
        yield text_line(f"{sign} {rail_name(verdict.rail)}{rule}", tone)
        yield text_line(one_line(verdict.reason), "grey")
    if entry.lifted:
        yield text_line("◌ Allowed once. Approve the card to run it.", "accent")
    elif content_block(entry) is not None:
        yield text_line(f"{key}: allow exactly this once", "accent")


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


class SafetyScreen(ConsoleScreen):
    """Rails left, blocked work in the middle, switches right.

    On a terminal of normal width the last two columns share a place; the one in focus is shown.
    """

    MODE = "safety"
    PURPOSE = "Every piece of work passes these rails, in this order, before it runs."
    CSS_PATH = ["columns.tcss", "safety.tcss"]
    AUTO_FOCUS = "#rails"
    BINDINGS = bindings("safety", "columns", "filter")
    PANES = {"rails": "left", "blocked": "right", "switches": "third"}
    FILTER_PANE = "blocked"

    _read_at: datetime | None = None
    """When the rails were read last."""

    _blocked_rows = getters.query_one("#blocked", Rows)

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

    def on_mount(self) -> None:
        self.set_interval(1.0, self._on_second, name="countdown")

    def on_screen_resume(self) -> None:
        self._read_again()

    def _on_second(self) -> None:
        """Draw what counts down, and read the rails again when it is time."""
        now = self.now
        if self.is_current and self.ready:
            if counts_down(self.state, now):
                self._draw_standing()
            if self._read_at is not None and now - self._read_at >= READ_INTERVAL:
                self._read_again()

    def _read_again(self) -> None:
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
        self.query_one("#switches", Rows).show(list(switch_rows(state)))
        self.show_fields("#machine", machine_fields(state, self.now))
        self.refresh_bindings()

    def _draw_standing(self) -> None:
        """Draw the rails, the state and the costs, which change with the time."""
        state, now, rows = self.state, self.now, self.query_one("#rails", Rows)
        rows.show(list(rail_rows(state, now)))
        rail = next((rail for rail in state.rails if rail.rail == rows.current), None)
        keys = [self.key_of(action) for action in ("app.resume", "safety.dnd")]
        fields = [
            *rails_fields(state, rail, now),
            *state_fields(state, self.app.holds, now, *keys),
            *cost_fields(state.burn, now),
        ]
        self.show_fields("#standing", fields)

    def columns(self) -> Mapping[str, str]:
        return {"left": "rails", "right": f"blocked {len(self.state.blocked)}", "third": "switches"}

    def _draw_blocked(self) -> None:
        words, total = self.filter_words, len(self.state.blocked)
        matching = [entry for entry in self.state.blocked if has_words(search_text(entry), words)]
        count = f"{len(matching)} of {total}" if words else f"{total}" if total else ""
        hint = "   ⇥ switches" if self.has_class("-normal") else ""
        self.update_static("#blocked-title", Content.assemble("BLOCKED  ", (count, "$grey"), (hint, "not bold $faint")))
        rows = [blocked_row(entry, self.now) for entry in matching]
        self._blocked_rows.show(rows, empty="No match." if words else NOTHING_BLOCKED)
        self._draw_why()

    @on(Rows.Moved, "#blocked")
    def _draw_why(self) -> None:
        entry, key = self._blocked_entry, self.key_of("safety.allow_once")
        self.show_fields("#why", blocked_fields(entry, self.now, key) if entry else ())
        self.refresh_bindings()

    @on(Rows.Moved, "#rails")
    @on(Rows.Moved, "#switches")
    def _scroll_column(self, message: Rows.Moved) -> None:
        """Scroll the column of a list with its cursor, so that a low terminal also shows what stands below the list."""
        if message.view.id == "rails":
            self._draw_standing()
        column = self.query_one("#left" if message.view.id == "rails" else "#third")
        share = message.view.cursor / max(1, message.view.virtual_size.height - 1)
        column.scroll_to(y=round(column.max_scroll_y * share), animate=False)

    # Blocked work

    @property
    def _blocked_entry(self) -> LogEntry | None:
        """The entry under the cursor of the blocked work."""
        return self._blocked_rows.find(self.state.blocked) if self.ready else None

    def action_allow_once(self) -> None:
        """Allow once exactly what the content filter blocked, after a question."""
        entry = self._blocked_entry
        if entry is None or (block := content_block(entry)) is None:
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
            self.app.carry_out(
                lambda engine: engine.safety.allow_once(entry.prediction_id), message, "log", "cards", "rails"
            )

        confirm(self.app, "Allow this once?", question, "allow once", allow, risky=True)

    def apply_filter(self) -> None:
        self._draw_blocked()

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

        def on_answer(answer: Answer) -> None:
            if answer.label != present:
                key = f"workspaces.{json.dumps(workspace, ensure_ascii=False)}.autonomy"
                self.app.write_setting(key, answer.label)

        title = f"What may the engine do in {workspace_name(workspace)}?"
        self.app.ask(Question(title, AUTONOMY_ANSWERS, present=present), on_answer)

    # Holds

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "allow_once":
            entry = self._blocked_entry
            return bool(entry and not entry.lifted and self.pane == "blocked" and content_block(entry))
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
    verdicts = " ".join(f"{verdict.rail} {verdict.rule} {verdict.reason}" for verdict in objections(entry.verdicts))
    return f"{verdicts} {entry.prompt} {entry.channel} {entry.workspace} {entry.trigger_type}"


def rail_rows(state: AppState, now: datetime) -> Iterator[Row]:
    """The rails in their order, each with its status and last verdict; then what becomes of unapproved work."""
    for rail in state.rails:
        sign, label, tone = rail_status(rail, now, state.acts_by_itself)
        last = ""
        if rail.last is not None and rail.last_at is not None:
            last = f"last {states.VERDICT_SIGNS[rail.last.verdict][0]} {formats.moment(rail.last_at, now)}"
        stopped = f"{rail.stopped} stopped in 24 h  " if rail.stopped else ""
        yield Row(rail.rail, f"{rail_name(rail.rail):<12} {label}", sign, stopped + last, "ink", tone, "grey")
    if state.rails:
        sign, label, tone = unapproved_work_status(state.rails, state.acts_by_itself)
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
    decisive = decisive_verdict(entry.verdicts)
    sign, style = states.VERDICT_SIGNS[decisive.verdict if decisive else Verdict.BLOCK]
    if entry.lifted:
        sign, style = "◌", "accent"
    text = f"{rail_name(decisive.rail) if decisive else '':<11} {one_line(entry.prompt)}"
    return Row(str(entry.id), text, sign, formats.moment(entry.at, now), "ink", style)

"""The safety screen in fields and rows: rails, costs, state, kill switch, blocked work, switches (SPEC 3, 7). Pure.

The safety screen and the details of a card use it. No verb does, so it is not in the package `fields`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import SIGNS, WORDS, Field, Fields, Label, draw_bar, draw_sparkline, text_line
from clawpy_console.fields.cards import choose_cost_tone, make_hold_field
from clawpy_console.formats import cap_amount, clock_time, crop, one_line, workspace_name
from clawpy_console.state import AppState, QuietHours
from clawpy_console.widgets import Row
from engine.model import (
    MAX_REJECTIONS,
    AutonomyState,
    ChainStep,
    Hold,
    RailDecision,
    RailState,
    RailVerdict,
    SpendingWindow,
    StopLevel,
    Verdict,
)
from engine.wording import MICRO

VERDICT_SIGNS = SIGNS["verdict"]
"""Sign and tone of each verdict of a rail."""

RAIL_NAMES: Mapping[str, str] = WORDS["rail"]
"""The names of rails whose id is not their name."""

LEVEL_NAMES = WORDS["level"]
"""The names of the levels of the kill switch."""

WORKSPACE_SIGNS = SIGNS["workspace"]
"""Sign and tone of a workspace by its `autonomy` setting."""

WORKSPACE_PREFIX = "workspace:"
"""The prefix of the id of a row for the autonomy of a workspace; its path follows."""

ALLOWED_ONCE = "Allowed once. Approve the card; a held-back one comes at the next check."
"""Said of blocked work that the operator allowed once."""

HOURS_SHOWN = 24
"""Maximum number of the last parts of a window of spending that are drawn."""


def name_rail(rail: str) -> str:
    """The name of a rail."""
    return RAIL_NAMES.get(rail, rail)


def select_objections(verdicts: Iterable[RailVerdict]) -> list[RailVerdict]:
    """The verdicts that do not allow the work, in the order of the rails."""
    return [verdict for verdict in verdicts if verdict.verdict is not Verdict.ALLOW]


def find_decisive_verdict(verdicts: Iterable[RailVerdict]) -> RailVerdict | None:
    """The verdict that decided: the first that blocks, else the first that asks; None when all allowed."""
    return min(select_objections(verdicts), key=lambda verdict: verdict.verdict is not Verdict.BLOCK, default=None)


def find_liftable_block(entry: RailDecision) -> RailVerdict | None:
    """The verdict of the content filter, if it blocked this work and the operator may allow it once."""
    return next((verdict for verdict in entry.verdicts if verdict.can_be_allowed_once), None)


def make_rail_label(rail: RailState, now: datetime, *, acts_by_itself: bool) -> Label:
    """The status of a rail; a wait that ends by itself counts down.

    Unless the engine acts by itself, the human gate allows only what the operator approves.
    """
    if rail.rail == "gate" and rail.verdict is Verdict.ALLOW and not acts_by_itself:
        return Label("✓", "grey", "by you")
    if rail.until is not None and rail.until > now:
        return Label("◐", "accent", f"in {formats.duration(rail.until - now)}")
    sign, tone = VERDICT_SIGNS[rail.verdict]
    return Label(sign, tone, rail.brief)


def make_rails_fields(state: AppState, rail: RailState | None, now: datetime) -> Fields:
    """The newest decision, and the rail under the cursor."""
    newest = state.latest_log[0] if state.latest_log else None
    if newest is None:
        yield text_line("No decisions yet.", "faint")
    else:
        verdict = find_decisive_verdict(newest.verdicts)
        yield Field("last", f"{formats.moment(newest.at, now)} “{crop(one_line(newest.prompt), 80)}”")
        if verdict is None:
            yield text_line("✓ all rails allowed it", "grey")
        else:
            sign, tone = VERDICT_SIGNS[verdict.verdict]
            yield text_line(f"{sign} {name_rail(verdict.rail)}: {one_line(verdict.reason)}", tone)
    if rail is not None:
        label = make_rail_label(rail, now, acts_by_itself=state.acts_by_itself)
        yield Field(name_rail(rail.rail), f"{label.sign} {label.words}: {one_line(rail.reason)}", label.tone)


def make_cost_fields(windows: Iterable[SpendingWindow], now: datetime) -> Fields:
    """Costs and reservations against the caps; with their pace once something was spent."""
    for window in windows:
        used = window.spent + window.reserved
        share = used / window.cap if window.cap else 1.0
        reserved = f", {formats.money(window.reserved)} reserved" if window.reserved else ""
        amounts = f"${used / MICRO:.2f} of ${cap_amount(window.cap)}{reserved}"
        yield Field(
            window.window, f"{draw_bar(share)} {share:>4.0%}  {amounts}", choose_cost_tone(used, window.cap) or "ink"
        )
        if any(window.buckets):
            spent_lately = draw_sparkline(window.buckets[: window.elapsed][-HOURS_SHOWN:])
            yield Field(" ", f"{spent_lately}  {describe_pace(window, now)}", "grey")


def describe_pace(window: SpendingWindow, now: datetime) -> str:
    """The pace of spending, and when it reaches the cap."""
    if window.spent + window.reserved >= window.cap:
        return "the cap has been reached"
    outlook = f"cap at {formats.moment(window.reached_at, now)}" if window.reached_at else "stays below the cap"
    return f"${window.pace / MICRO:.2f}/h: {outlook}"


def make_hold_fields(holds: tuple[Hold, ...], now: datetime, resume_key: str) -> Fields:
    """Stops and pauses, with the key that ends each."""
    for hold in holds:
        remaining = formats.duration(hold.until - now) if hold.until and hold.until > now else ""
        since = formats.moment(hold.since, now) if hold.since else ""
        yield make_hold_field(hold.word, hold.reason, since, f"Press {resume_key}", remaining)


def make_state_fields(state: AppState, now: datetime) -> Fields:
    """The state of the engine's autonomy, its next change, and what is missing for acting by itself."""
    view = state.autonomy
    steps = " ▸ ".join(f"[{step}]" if step is view.state else step for step in AutonomyState)
    yield text_line(f"{steps} (at a cost cap, or after {MAX_REJECTIONS} dismissals)", "accent")
    if view.since:
        yield Field("since", f"{formats.moment(view.since, now)}: {one_line(view.cause)}")
    yield Field("next", describe_next_change(state, now))
    silence = formats.short_span(view.compute_silence(now))
    cycle = f", next check {clock_time(view.next_cycle)}" if view.next_cycle and view.next_cycle > now else ""
    effect = f", may act by itself from {int(view.inactivity_threshold_s // 60)}m on" if state.acts_by_itself else ""
    yield Field("inactive", f"for {silence}{effect}{cycle}")
    if state.missing_conditions:
        yield Field("by itself", one_line(state.missing_conditions))
    if state.twin_phase and not state.twin_progress:
        yield Field("phase", one_line(state.twin_phase).removeprefix("phase "))


def make_quiet_field(quiet: QuietHours, dnd_key: str) -> Field:
    """Do-not-disturb, or the quiet hours, with the key that begins and ends the first."""
    if quiet.dnd_until is not None:
        text = f"do not disturb until {clock_time(quiet.dnd_until)}. Press {dnd_key} to end it."
        return Field("quiet", text, "wants")
    hours = "no quiet hours"
    if quiet.start_hour != quiet.end_hour:
        hours = f"quiet hours {quiet.start_hour:02}:00–{quiet.end_hour:02}:00"
    now_text, tone = (" now", "wants") if quiet.is_in_force else ("", "ink")
    return Field("quiet", f"{hours}{now_text}. {dnd_key}: do not disturb for 2 hours", tone)


def describe_next_change(state: AppState, now: datetime) -> str:
    """The next change of the state, and its time."""
    view = state.autonomy
    # Inactive long enough: the next check finds out whether files changed in a workspace.
    is_inactive = view.compute_silence(now).total_seconds() >= view.inactivity_threshold_s
    is_check = view.state is AutonomyState.WATCHING and is_inactive
    if view.next_change is not None and view.next_change > now:
        remaining = formats.duration(view.next_change - now)
        return f"{'check' if is_check else 'change'} in {remaining}, at {clock_time(view.next_change)}"
    if view.state is AutonomyState.PRIMING:
        return "AUTONOMOUS once it starts a card by itself"
    return "check any moment" if is_check and view.next_change is not None else "no automatic change"


def make_kill_switch_fields(levels: Iterable[StopLevel]) -> Fields:
    """The levels of the kill switch."""
    for level in levels:
        text = f"■ {level.description}. To resume: {level.how_to_end}" if level.is_active else f"○ {level.description}"
        yield Field(LEVEL_NAMES[level.name], one_line(text), "wrong" if level.is_active else "grey")


def make_chain_fields(chain: Iterable[ChainStep], now: datetime) -> Fields:
    """The work that triggered other work, newest first."""
    for step in chain:
        parts = [f"depth {step.depth}"]
        if step.runs:
            parts.append(f"{step.runs}× in 10 min")
        if step.answer_until is not None and step.answer_until > now:
            parts.append(f"no reply until {clock_time(step.answer_until)}")
        text = f"{step.from_channel} → {step.to_channel}  {', '.join(parts)}"
        yield Field(formats.moment(step.at, now), text, "grey")


def make_blocked_fields(entry: RailDecision, now: datetime, key: str) -> Fields:
    """A blocked prompt, each rail that did not allow it with rule and reason, and what `key` can do."""
    yield text_line(crop(one_line(entry.prompt), 400))
    sender = f" from {entry.from_channel}" if entry.from_channel not in ("", "owner") else ""
    place = f"{workspace_name(entry.workspace)} → {entry.channel}{sender}"
    yield text_line(" · ".join(filter(None, (entry.trigger_type, place, formats.moment(entry.at, now)))), "faint")
    for verdict in select_objections(entry.verdicts):
        sign, tone = VERDICT_SIGNS[verdict.verdict]
        rule = f"  rule {verdict.rule}" if verdict.rule else ""
        yield text_line(f"{sign} {name_rail(verdict.rail)}{rule}", tone)
        yield from (text_line(one_line(reason), "grey") for reason in verdict.reasons)
    if entry.allowed_once:
        yield text_line(f"◌ {ALLOWED_ONCE}", "accent")
    elif find_liftable_block(entry) is not None:
        yield text_line(f"{key}: allow exactly this once", "accent")


# Rows


def make_rail_rows(state: AppState, now: datetime) -> Iterator[Row]:
    """The rails in their order, each with its status and last verdict."""
    for rail in state.rails:
        label = make_rail_label(rail, now, acts_by_itself=state.acts_by_itself)
        last = ""
        if rail.last is not None and rail.last_at is not None:
            last = f"last {VERDICT_SIGNS[rail.last.verdict][0]} {formats.moment(rail.last_at, now)}"
        stopped = f"{rail.stopped_count} stopped in 24 h  " if rail.stopped_count else ""
        text = f"{name_rail(rail.rail):<12} {label.words}"
        yield Row(rail.rail, text, label.sign, stopped + last, "ink", label.tone, "grey")


def make_switch_rows(state: AppState) -> Iterator[Row]:
    """The switches, with their names as ids, then the autonomy of each workspace (`WORKSPACE_PREFIX`)."""
    for name, is_on in state.switch_values:
        if is_on:
            yield Row(name, name, "●", "on", "ink", "accent", "ink")
        else:
            yield Row(name, name, "○", "off", "grey", "faint", "faint")
    if state.workspace_autonomy:
        yield Row("", " AUTONOMY BY WORKSPACE")
    for workspace, autonomy in state.workspace_autonomy:
        sign, tone = WORKSPACE_SIGNS[autonomy]
        text_style = "grey" if autonomy == "off" else "ink"
        yield Row(WORKSPACE_PREFIX + workspace, workspace_name(workspace), sign, autonomy, text_style, tone, tone)


def make_blocked_row(entry: RailDecision, now: datetime) -> Row:
    """A row for a decision that did not allow work: the rail, the prompt, the time."""
    decisive = find_decisive_verdict(entry.verdicts)
    sign, style = VERDICT_SIGNS[decisive.verdict if decisive else Verdict.BLOCK]
    if entry.allowed_once:
        sign = "◌"
        style = "accent"
    text = f"{name_rail(decisive.rail) if decisive else '':<11} {one_line(entry.prompt)}"
    return Row(str(entry.id), text, sign, formats.moment(entry.at, now), "ink", style)


def make_search_text(entry: RailDecision) -> str:
    """The text of an entry that the filter searches."""
    objections = select_objections(entry.verdicts)
    verdicts = " ".join(f"{verdict.rail} {verdict.rule} {verdict.reason}" for verdict in objections)
    return f"{verdicts} {entry.prompt} {entry.channel} {entry.workspace} {entry.trigger_type}"

"""How the engine is kept safe, in words: rails, caps, stops, what was blocked (SPEC 3, 7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from clawpy_console import words
from clawpy_console.fields import Field, bar, spark
from clawpy_console.state import AppState
from engine.model import MICRO, Burn, Hold, LogEntry, RailState, RailVerdict, Verdict

RAIL_NAMES = {"loop": "loops", "gate": "human gate", "kill": "kill switch"}
"""What a rail is called where its id does not say it."""

STATES = ("DISABLED", "WATCHING", "PRIMING", "AUTONOMOUS", "PAUSED")
LEVELS = {"config": "configuration", "api": "API, this run", "key": "F12", "outside": "from outside"}
HOLDS = {"stop": "stop", "month": "month stop", "pause": "pause"}

QUESTIONS = {
    "stop": ("Resume after the stop?", "Approved work may start again. Stopped sessions stay stopped."),
    "month": ("Resume after the month stop?", "The month's cap was reached. Raise the cap as well, or the next paid "
              "call stops everything again."),
}  # fmt: skip
"""What is asked before a stop or a month stop ends, and what that means."""


def rail_name(rail: str) -> str:
    """A rail in words."""
    return RAIL_NAMES.get(rail, rail)


def decisive_verdict(verdicts: tuple[RailVerdict, ...]) -> RailVerdict | None:
    """The rail that decided: the first that blocks, else the first that asks."""
    against = (verdict for verdict in verdicts if verdict.verdict is not Verdict.ALLOW)
    return min(against, key=lambda item: item.verdict is not Verdict.BLOCK, default=None)


def content_block(entry: LogEntry) -> RailVerdict | None:
    """The content filter's block of this decision, if that is what it was."""
    return next((v for v in entry.verdicts if v.rail == "content" and v.verdict is Verdict.BLOCK), None)


def rail_standing(rail: RailState, now: datetime, acts: bool) -> tuple[str, str, str]:
    """How a rail stands: sign, words, tone. What time alone ends counts down. Unless the engine `acts` by itself, the
    human gate lets through what you approve, and nothing else."""
    if rail.rail == "gate" and rail.verdict is Verdict.ALLOW and not acts:
        return "✓", "by you", "grey"
    if rail.until is not None and rail.until > now:
        return "◐", f"in {words.duration(rail.until - now)}", "accent"
    sign, tone = words.VERDICT_SIGNS[rail.verdict]
    return sign, rail.brief, tone


def unapproved_work_standing(rails: tuple[RailState, ...], acts: bool) -> tuple[str, str, str]:
    """What becomes of work that nobody approved, by what the rails say now: sign, words, tone."""
    blocking = [rail for rail in rails if rail.verdict is Verdict.BLOCK]
    if any(item.until is None for item in blocking):
        return "■", "held", "wrong"
    if any(item.rail == "kill" for item in blocking):
        return "▲", "by you", "wants"  # a pause holds only what nobody approved
    if blocking:
        return "◐", "waits", "accent"
    if any(rail.verdict is Verdict.ASK for rail in rails):
        return "▲", "asks you", "ink"
    return "✓", "open" if acts else "by you", "grey"


def rails_fields(state: AppState, rail: RailState | None, now: datetime) -> Iterator[Field]:
    """The newest decision, and the rail under the cursor."""
    newest = state.log[0] if state.log else None
    if newest is None:
        yield Field("", "No decisions yet.", "faint")
    else:
        verdict = decisive_verdict(newest.verdicts)
        sign, tone = words.VERDICT_SIGNS[verdict.verdict] if verdict else ("✓", "grey")
        label = (
            f"{sign} {rail_name(verdict.rail)}: {words.one_line(verdict.reason)}"
            if verdict
            else "✓ all rails allowed it"
        )
        yield Field("last", f"{words.moment(newest.at, now)} “{words.crop(words.one_line(newest.prompt), 80)}”")
        yield Field("", label, tone)
    if rail is not None:
        sign, label, tone = rail_standing(rail, now, state.acts_by_itself)
        yield Field(rail_name(rail.rail), f"{sign} {label}: {words.one_line(rail.reason)}", tone)
    else:
        yield Field("execute", f"{words.count(len(state.running), 'session')} running")


def cost_fields(burns: tuple[Burn, ...], now: datetime) -> Iterator[Field]:
    """Spent and reserved against the caps, how it went, when a cap will be reached; the caps alone while nothing was
    spent."""
    yield Field("", "cost", "heading")
    if not any(burn.spent or burn.reserved or any(burn.buckets) for burn in burns):
        caps = ", ".join(
            f"${words.cap(burn.cap)} {'an' if burn.window == 'hour' else 'a'} {burn.window}" for burn in burns
        )
        yield Field("", f"Nothing spent. Caps: {caps}" if burns else "Loading…", "grey")
        return
    for burn in burns:
        used = burn.spent + burn.reserved
        share = used / burn.cap if burn.cap else 1.0
        tone = "wrong" if share >= 1 else "wants" if share >= 0.8 else "ink"
        reserved = f", {words.money(burn.reserved)} reserved" if burn.reserved else ""
        yield Field(
            burn.window, f"{bar(share)} {share:>4.0%}  ${used / MICRO:.2f} of ${words.cap(burn.cap)}{reserved}", tone
        )
        yield Field(" ", f"{spark(burn.buckets[: burn.elapsed][-24:])}  {pace_words(burn, now)}", "grey")


def pace_words(burn: Burn, now: datetime) -> str:
    """How fast it is spent, and when the cap comes at that pace."""
    if burn.spent + burn.reserved >= burn.cap:
        return "the cap has been reached"
    if burn.pace <= 0:
        return "nothing recently"
    speed = f"${burn.pace / MICRO:.2f}/h"
    return (
        f"{speed}: cap at {words.moment(burn.reached_at, now)}" if burn.reached_at else f"{speed}: stays below the cap"
    )


def hold_field(word: str, reason: str, since: str, how: str, remaining: str = "") -> Field:
    """A stop, a month stop or a pause, and how it ends: `how` ends it, by itself it is over in `remaining`."""
    over = f", over in {remaining}" if remaining else ""
    text = f"{how} to resume{over}. Since {since}: {words.one_line(reason)}"
    return Field(f"■ {HOLDS[word]}", text, "wrong" if word == "stop" else "wants")


def state_fields(state: AppState, holds: tuple[Hold, ...], now: datetime, resume: str, dnd: str) -> Iterator[Field]:
    """Stops and pauses, then the state, what changes it, and quiet hours; `resume` and `dnd` are keys."""
    yield Field("", "state", "heading")
    for item in holds:
        remaining = words.duration(item.until - now) if item.until and item.until > now else ""
        yield hold_field(item.word, item.reason, words.moment(item.since, now), f"Press {resume}", remaining)
    view = state.autonomy
    yield Field(
        "",
        " ▸ ".join(f"[{name}]" if name == view.state else name for name in STATES) + " (cap or 3 rejections)",
        "accent",
    )
    if view.since:
        yield Field("since", f"{words.moment(view.since, now)}: {words.one_line(view.cause)}")
    yield Field("next", next_change(state, now))
    silence = words.span(view.silence_at(now)).replace("now", "0m")
    cycle = f", next check {words.clock_time(view.next_cycle)}" if view.next_cycle and view.next_cycle > now else ""
    yield Field("inactive", f"for {silence} of {int(view.threshold // 60)}m{cycle}")
    if state.autonomy_note:
        yield Field("by itself", words.one_line(state.autonomy_note))
    if state.phase and not state.learning:
        yield Field("phase", words.one_line(state.phase).removeprefix("phase "))
    quiet = state.quiet
    if quiet.dnd_until is not None:
        yield Field(
            "quiet", f"do not disturb until {words.clock_time(quiet.dnd_until)}. Press {dnd} to end it.", "wants"
        )
    else:
        hours = "no quiet hours" if quiet.start == quiet.end else f"quiet hours {quiet.start:02}:00–{quiet.end:02}:00"
        since = " now" if quiet.now else ""
        yield Field("quiet", f"{hours}{since}. {dnd}: do not disturb for 2 hours", "wants" if quiet.now else "ink")


def next_change(state: AppState, now: datetime) -> str:
    """What changes the state next, and when."""
    view = state.autonomy
    # Silent long enough: whether nobody wrote in a workspace either is found by the next check.
    checks = view.state == "WATCHING" and view.silence_at(now).total_seconds() >= view.threshold
    if view.next_change is not None and view.next_change > now:
        remaining = words.duration(view.next_change - now)
        return f"{'check' if checks else 'change'} in {remaining}, at {words.clock_time(view.next_change)}"
    if view.state == "PRIMING":
        return "AUTONOMOUS once it starts a card by itself"
    return "check any moment" if checks and view.next_change is not None else "no automatic change"


def counts_down(state: AppState, now: datetime) -> bool:
    """Whether a second changes what is drawn."""
    moments = [state.autonomy.next_change, *(rail.until for rail in state.rails), *(hold.until for hold in state.holds)]
    return any(moment is not None and moment > now for moment in moments)


def machine_fields(state: AppState, now: datetime) -> Iterator[Field]:
    """The levels of the kill switch, the sandbox, what work triggered other work."""
    yield Field("", "kill switch, four levels", "heading")
    for level in state.levels:
        level_text = f"■ {level.words}. To resume: {level.lift}" if level.thrown else f"○ {level.words}"
        yield Field(LEVELS.get(level.name, level.name), words.one_line(level_text), "wrong" if level.thrown else "grey")
    yield Field("", "sandbox", "heading")
    yield Field("", state.sandbox or "not tested yet", "grey")
    if state.chain:
        yield Field("", "work that triggered work, newest first", "heading")
    for step in state.chain:
        answer = step.answer_until is not None and step.answer_until > now
        parts = [f"depth {step.depth}", f"{step.runs}× in 10 min" if step.runs else ""]
        parts += [f"no reply until {words.clock_time(step.answer_until)}"] if answer and step.answer_until else []
        text = f"{step.from_channel} → {step.to_channel}  {', '.join(filter(None, parts))}"
        yield Field(words.moment(step.at, now), text, "ink" if step.depth > 1 or step.runs or answer else "grey")


def blocked_fields(entry: LogEntry, now: datetime, key: str) -> Iterator[Field]:
    """What was asked, each rail that did not allow it with rule and reason, and what can be done with `key`."""
    yield Field("", words.crop(words.one_line(entry.prompt), 400))
    start = f" from {entry.from_channel}" if entry.from_channel not in ("", "owner") else ""
    where = [
        entry.trigger_type,
        f"{words.workspace_name(entry.workspace)} → {entry.channel}{start}",
        words.moment(entry.at, now),
    ]
    yield Field("", " · ".join(filter(None, where)), "faint")
    for verdict in entry.verdicts:
        if verdict.verdict is not Verdict.ALLOW:
            sign, tone = words.VERDICT_SIGNS[verdict.verdict]
            rule = f"  rule {verdict.rule}" if verdict.rule else ""
            yield Field("", f"{sign} {rail_name(verdict.rail)}{rule}", tone)
            yield Field("", words.one_line(verdict.reason), "grey")
    if entry.lifted:
        yield Field("", "◌ Allowed once. Approve the card to run it.", "accent")
    elif content_block(entry) is not None:
        yield Field("", f"{key}: allow exactly this once", "accent")

"""What the insights screen writes around its plots, as lines for a width: values in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.insights import plots
from engine import kind_title
from engine.values import Drift, Insights, Shift, TrainingOffer, TrainingRunView, TrainingView

TRENDS = {
    "improving": ("▲", "$good"),
    "declining": ("▼", "$wants"),
    "steady": ("●", "$grey"),
    "unknown": ("○", "$faint"),
}
RUNS = {
    "adopted": ("●", "$accent"), "kept_old": ("○", "$grey"), "failed": ("✗", "$wrong"), "cancelled": ("■", "$grey"),
}  # fmt: skip
METHODS = {"dpo": "preference pairs", "sft": "conversations"}
STATES = {
    "prepared": "being sent", "uploaded": "being started", "started": "in training", "trained": "being measured",
    "adopted": "in use", "kept_old": "not swapped in", "failed": "failed", "cancelled": "stopped",
}  # fmt: skip


def period(days: int | None) -> str:
    """`last 30 days`, `all there is`."""
    return "all time" if days is None else f"last {days} days"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def head(read: Insights, width: int) -> list[Content]:
    """What time and place, how many, how good: as many words as fit the lines."""
    found = read.metrics
    place = words.name(read.workspace) if read.workspace else "all workspaces"
    counts = [f"{found.approved:,} approved", f"{found.rejected:,} dismissed", f"{found.expired:,} expired"]
    if found.discarded:
        counts.insert(2, f"{found.discarded:,} discarded")
    if found.withdrawn:
        counts.append(f"{found.withdrawn:,} withdrawn")
    if found.cannot_run:
        counts.append(f"{found.cannot_run:,} could not run")
    if found.undecided:
        counts.append(f"{found.undecided:,} waiting")
    glyph, style = TRENDS[found.trend]
    trend = f"{glyph} {found.trend}" if found.trend != "unknown" else f"{glyph} no trend yet"
    confidence = f", approved {_decimal(found.approved_confidence)}, dismissed {_decimal(found.rejected_confidence)}"
    pieces: list[list[tuple[str, str]]] = [
        [(period(read.days), "bold $accent"), (" of ", "$grey"), (place, "bold $accent")],
        [(words.count(found.total, "card"), "$ink"),
         (f" and {words.count(found.own, 'prompt')} of your own" if found.own else "", "$grey")],
        [(_cost(found.cost_per_accepted), "$ink"), (" an accepted card", "$grey")],
        [(", ".join(counts), "$grey")],
        [(f"approved {percent(found.approval_rate)}", "bold $ink"), (" ", ""), (trend, style)],
        [("by itself ", "$grey"), (f"{found.auto_executed:,}", "$ink"),
         (f", kept {percent(found.auto_success_rate)}" if found.auto_executed else "", "$grey")],
        [("mean confidence ", "$grey"), (_decimal(found.confidence), "$ink"), (confidence, "$grey")],
    ]  # fmt: skip
    if read.drift.changed:
        pieces.append([("▲ your preferences changed", "bold $wants")])
    return _flow([Content.assemble(*piece) for piece in pieces], width)


def approval(read: Insights, width: int, height: int) -> list[Content]:
    """The rate over time, or what is missing for it."""
    found = read.metrics
    if found.approved + found.rejected == 0:
        return _wrapped(nothing(read), width)
    return plots.bars(read.over_time, width, height)


def nothing(read: Insights) -> str:
    """Why there is no figure, and how to get one."""
    if read.metrics.total == 0:
        when = "yet" if read.days is None else f"in the {period(read.days)}; p takes a longer time"
        return f"No card {when}. On mission control (1) p looks for cards now, and each that you decide on counts here."
    return (
        f"{words.count(read.metrics.total, 'card')}, none decided by you yet. On mission control (1) → approves and "
        "← dismisses; the rate starts with the first decision."
    )


def calibrated(read: Insights, width: int) -> list[Content]:
    """Stated against what came, and what that justifies."""
    if not any(one.predictions for one in read.metrics.calibration):
        said = (
            "What confidence was stated, and how many of such cards you approved: here once you decided on some. "
            "It is fixed at 0.40 until 30 decisions are made."
        )
        return [*_wrapped(said, width), *justified(read, width)]
    return [*plots.calibration(read.metrics.calibration, width), *justified(read, width)]


def justified(read: Insights, width: int) -> list[Content]:
    """The error of the calibration beside the threshold it is to justify (SPEC 8.6), and the phase with its reason."""
    check, at = read.check, read.at_threshold
    glyph, style = ("✓", "$good") if check.holds else ("○", "$grey") if check.error is None else ("✗", "$wants")
    error = "error not known yet" if check.error is None else f"error {check.error:.3f}"
    lines = [
        Content.assemble(
            (f"acts from {read.threshold:.2f}", "bold $ink"), ("  ", ""), (f"{glyph} {error}", style),
            (f"  {_at(at.predictions, at.approval_rate, at.at_least, read.threshold)}", "$grey"),
        )
    ]  # fmt: skip
    lines += _wrapped(f"phase {read.phase.number}: {words.one_line(read.phase.reason)}", width)
    if read.phase.number == 2 or check.reason not in read.phase.reason:
        lines += _wrapped(words.one_line(check.reason), width)
    return [row for line in lines for row in words.rows(line, width)]


def _at(decided: int, rate: float | None, at_least: float, threshold: float) -> str:
    if rate is None:
        return f"no card of {threshold:.2f} or more was decided by you"
    sure = f"{words.count(decided, 'card')} of {threshold:.2f} or more"
    return f"of {sure} you approved {rate:.0%} (at least {at_least:.0%})"


def tables(read: Insights, width: int, most: int = 8, *, whens: bool = True) -> list[Content]:
    """By source, channel, kind, each the first `most`, and with `whens` what `when` gives."""
    found = read.metrics
    if not found.total and not found.own:
        return _wrapped("Tables by source, channel, kind and hour stand here once there are cards.", width)
    lines: list[Content] = []
    kinds = tuple(replace(one, name=kind_title(one.name)) for one in found.kinds)
    for what, groups in (("source", found.sources), ("channel", found.channels), ("kind", kinds)):
        if groups:
            lines += [*plots.table(groups, width, what=what, most=most), Content("")]
    return lines + (when(read, width) if whens else [])


def when(read: Insights, width: int, height: int = 1) -> list[Content]:
    """By part of the day and by hour, the hours in `height` rows."""
    found = read.metrics
    if not found.parts:
        return []
    parts = plots.table(found.parts, width, what="part of day", most=4, costs=False)
    return [*parts, Content(""), *plots.clock(found.hours, width, height)]


def drift(read: Drift, width: int) -> list[Content]:
    """What changed in taste, in words."""
    glyph, style = ("▲", "$wants") if read.changed else ("●", "$grey")
    said = _wrapped(f"{glyph} {words.one_line(read.words)}", width, style)
    return [*said, *(row for shift in read.shifts for row in words.rows(_shifted(shift), width))]


def _shifted(shift: Shift) -> Content:
    more = shift.approved > shift.before * shift.decided
    return Content.assemble(
        (f"  {'▲ wanted more' if more else '▼ wanted less'}: ", "$wants"),
        (words.one_line(kind_title(shift.kind)), "bold $ink"),
        (f"  approved {shift.approved} of {shift.decided}, before {shift.before:.0%}", "$grey"),
    )


def acting(read: Insights, width: int) -> list[Content]:
    """What is needed before anything acts by itself, and which model is asked."""
    return _wrapped(words.one_line(read.earning), width) if read.earning else []


def training(read: TrainingView, width: int, now: datetime, keys: tuple[str, str]) -> list[Content]:
    """Pairs to the next training, the run under way, the newest runs; `keys` train and swap."""
    lines = [_progress(read, width)]
    if read.active is None:
        due = read.words or "the next training is due"
        itself = "; it starts by itself when it is due" if read.automatic else ""
        lines += _wrapped(f"{due}{itself}", width)
        lines.append(
            Content.assemble((keys[0], "bold $accent"), (" trains, and says first what is sent where", "$grey"))
        )
    model = read.model or "none: the embedded Twin alone"
    off = "" if read.enabled or not read.model else ", off: twinModelEnabled (6)"
    lines += _wrapped(f"Twin model in use: {model}{off}", width)
    for run in read.runs:
        lines += _run(run, width, now)
    if (swap := read.swap) is not None:
        back = swap.former_model or "none"
        said = f"swaps in {swap.model}" if swap.state == "kept_old" else f"goes back to the model before: {back}"
        lines.append(Content.assemble((keys[1], "bold $accent"), (" ", ""), (words.crop(said, width - 2), "$grey")))
    return lines


def _progress(read: TrainingView, width: int) -> Content:
    cells = max(6, min(20, width - 26))
    full = min(cells, round(read.pairs / read.needed * cells)) if read.needed else cells
    return Content.assemble(
        ("pairs  ", "$faint"), ("━" * full, "$accent"), ("·" * (cells - full), "$faint"),
        (f"  {read.pairs:,} of {read.needed}", "$ink"), (" new", "$grey"),
    )  # fmt: skip


def _run(run: TrainingRunView, width: int, now: datetime) -> list[Content]:
    glyph, style = RUNS.get(run.state, ("◐", "$accent"))
    cost = words.money(run.cost) if run.cost else ""
    said = f"{words.moment(run.created_at, now)} · {run.records:,} {METHODS.get(run.method, run.method)} · {cost}"
    line = Content.assemble((f"{glyph} {STATES.get(run.state, run.state)}", style), (f"  {said.rstrip(' ·')}", "$grey"))
    note = words.one_line(run.note)
    return [*words.rows(line, width), *(_wrapped(f"  {note}", width, "$faint")[:2] if note else [])]


def question(offer: TrainingOffer, read: TrainingView, key: str) -> str:
    """What starting a training means, before it is started: what is sent where, what it may cost, what comes of it."""
    of = METHODS.get(offer.method, offer.method)
    where = f"{offer.provider} ({offer.base_url})" if offer.base_url else offer.provider
    use = "" if read.enabled else " It is asked for cards only while twinModelEnabled is on (6); now it is off."
    against = f"{offer.current_model} is" if offer.current_model else "a coin is"
    return (
        f"{offer.records:,} {of}, {_size(offer.size)}, go to {where}, which trains {offer.base_model} on them.\n\n"
        "Sent: what stood in the context when a card was made (names of files and branches, titles of tasks, the last "
        "test result), prompts you approved and dismissed with their channels; of imported conversations what was "
        "said. Known secrets are taken out.\n\n"
        f"Stays here: {offer.held_back:,} decisions, to measure what comes of it. The new model takes its place only "
        f"if it agrees with them at least as often as {against}.{use}\n\n"
        f"Cost: what the provider asks. {words.money(offer.cost_cap)} are set aside within your caps "
        f"(training.costCap); its price is settled when it is done. {key} stops it on the way."
    )


def stopping(run: TrainingRunView) -> str:
    """What stopping a run means."""
    return (
        f"{run.id}: {run.records:,} {METHODS.get(run.method, run.method)} at {run.provider}, "
        f"{STATES.get(run.state, run.state)}.\n\nIt is also cancelled at the provider, which may still charge for work "
        "done. The model in use stays; no pair is used up."
    )


def swapping(run: TrainingRunView, read: TrainingView) -> tuple[str, str]:
    """Title and question of a swap."""
    measured = f"\n\nWhat was measured: {words.one_line(run.note)}" if run.note else ""
    if run.state == "kept_old":
        now = read.model or "none"
        return "Swap this model in?", f"{run.model} takes the place of {now} at once.{measured}"
    back = run.former_model or "no model: the embedded Twin alone"
    return "Go back to the model before?", f"{run.model} is taken out, and used again is {back}.{measured}"


def _size(size: int) -> str:
    return f"{size / 1000:,.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _decimal(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def _cost(amount: float | None) -> str:
    return "–" if amount is None else words.money(round(amount))


def _wrapped(text: str, width: int, style: str = "$grey") -> list[Content]:
    return words.rows(Content.styled(text, style), max(8, width))


def _flow(pieces: Sequence[Content], width: int) -> list[Content]:
    """Pieces beside each other as long as they fit the line; one that is too long for a line is wrapped."""
    lines: list[Content] = []
    line: Content | None = None
    for piece in pieces:
        joined = piece if line is None else Content.assemble(line, ("  ·  ", "$faint"), piece)
        if line is not None and joined.cell_length > width:
            lines += words.rows(line, width)
            joined = piece
        line = joined
    return [*lines, *(words.rows(line, width) if line is not None else [])]

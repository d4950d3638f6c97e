"""The quality of the predictions, and the training of Twin models, as fields and questions: for the insights screen,
for `clawpy metrics` and `clawpy train` (SPEC 8.4, 8.5).

The functions take the document that the verb prints as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import Document, Field, Label, draw_bar, draw_sparkline, heading, text_line
from clawpy_console.formats import fit_to_width, one_line
from engine import kind_title
from engine.model import TrainingOffer, TrainingRunView, TrainingView


def format_percent(share: float | None) -> str:
    """A share from 0 to 1, `–` for none."""
    return "–" if share is None else f"{share:.0%}"


def format_confidence(share: float | None) -> str:
    """A confidence, `–` for none."""
    return "–" if share is None else f"{share:.2f}"


TRENDS = {"improving": "▲ improving", "declining": "▼ declining", "steady": "steady"}
"""The trend of the approval in words, by its name in the document."""

OUTCOME_LABELS = {
    "approved": "approved", "rejected": "dismissed", "discarded": "discarded", "expired": "expired",
    "withdrawn": "withdrawn", "cannotRun": "could not run", "waiting": "waiting",
}  # fmt: skip
"""The word for what became of cards, by the key of its count."""

ALWAYS_SHOWN = ("approved", "rejected")
"""Outcomes whose counts are shown when they are 0, too."""


def make_summary_fields(document: Document) -> Iterator[Field]:
    """The number of cards, what became of them, and how many were approved."""
    own = f" and {formats.count(document['ownPrompts'], 'prompt')} of your own" if document["ownPrompts"] else ""
    counts = [
        f"{document[key]:,} {label}" for key, label in OUTCOME_LABELS.items() if document[key] or key in ALWAYS_SHOWN
    ]
    total, period = formats.count(document["totalPredictions"], "card"), document["period"].replace("_", " ")
    yield Field("cards", f"{period}: {total}{own}, {', '.join(counts)}")
    if document["approvalRate"] is not None:
        trend = TRENDS.get(document["trendDirection"], "no trend yet")
        yield Field("approved", f"{format_percent(document['approvalRate'])}, {trend}")
    if document["autoExecuted"]:
        yield Field("by itself", f"{document['autoExecuted']:,}, {document['autoExecutedUndone']:,} undone")
    if document["approvalRate"] is not None:
        approved, dismissed = document["avgApprovedConfidence"], document["avgRejectedConfidence"]
        means = f"approved {format_confidence(approved)}, dismissed {format_confidence(dismissed)}"
        yield Field("confidence", f"mean {format_confidence(document['avgConfidence'])}, {means}")
    if document["costPerAccepted"]:
        yield Field("cost", f"${document['costPerAccepted']:.2f} for each accepted card")


def make_daily_fields(insights: Document) -> Iterator[Field]:
    """The share of approved cards and the number of decisions by day; `·` for a day without decisions."""
    slices = insights["approvalOverTime"]
    counts = [each["approved"] + each["rejected"] for each in slices]
    if not any(counts):
        return
    first = datetime.fromisoformat(slices[0]["from"]).astimezone()
    yield heading(f"approval since {first.day} {first:%b}")
    yield Field("approved", draw_sparkline([each["approvalRate"] for each in slices], 1.0), "accent")
    yield Field("decisions", f"{draw_sparkline([count or None for count in counts])}  at most {max(counts)}", "grey")


def make_calibration_fields(insights: Document) -> Iterator[Field]:
    """The share of approved cards by range of confidence, beside what was stated; then error, threshold and phase."""
    buckets = [bucket for bucket in insights["calibration"] if bucket["predictions"]]
    if buckets:
        yield heading("calibration: approved, 95 % interval, stated")
    for bucket in buckets:
        stated, tone = judge_calibration(bucket)
        rate, interval = bucket["approvalRate"], f"{100 * bucket['low']:.0f}–{100 * bucket['high']:.0f}"
        text = f"{draw_bar(rate)} {rate:>4.0%} of {bucket['predictions']:<3,} {interval:>6} {stated}"
        yield Field(bucket["bucket"], text, tone)
    if buckets:
        error, sign = insights["calibrationError"], "✓ " if insights["calibrationHolds"] else ""
        yield Field("error", "not known yet" if error is None else f"{sign}{error:.3f}")
        at, threshold = insights["atThreshold"], insights["autoExecuteThreshold"]
        cards = formats.count(at["predictions"], "card")
        evidence = "you have not decided any such card"
        if at["predictions"]:
            evidence = f"you approved {format_percent(at['approvalRate'])} of {cards} (at least {at['low']:.0%})"
        yield Field("acts from", f"{threshold:.2f}: {evidence}")
    yield Field("phase", f"{insights['phase']}: {one_line(insights['phaseReason'])}")
    if insights["calibrationWords"] not in insights["phaseReason"]:
        yield text_line(one_line(insights["calibrationWords"]), "grey")


MIN_DECISIONS = 5
"""Minimum number of decisions for a verdict on a range of confidence."""


def judge_calibration(bucket: Document) -> tuple[str, str]:
    """The verdict on the stated confidence beside the share of approved cards, and its tone."""
    stated = bucket["avgConfidence"]
    if stated is None or bucket["unstated"] == bucket["predictions"]:
        return "cold start", "faint"
    if stated < bucket["low"]:
        return f"▲ too low: {stated:.0%}", "wants"
    if stated > bucket["high"]:
        return f"▼ too high: {stated:.0%}", "wrong"
    if bucket["predictions"] < MIN_DECISIONS:
        return "few decisions", "faint"
    return f"✓ stated {stated:.0%}", "ink"


def make_table_fields(insights: Document, names: Sequence[str], limit: int = 8) -> Iterator[Field]:
    """A table for each of `names`, a group of the document, with at most `limit` rows."""
    listed = [name for name in names if insights[name]]
    for name in listed:
        if name != listed[0]:
            yield text_line("")
        yield from _make_table(name, insights[name], limit)


NAME_CELLS = 24
"""Cells of a name in a table."""


def _make_table(name: str, groups: Sequence[Document], limit: int) -> Iterator[Field]:
    """The head of a table, and its first rows."""
    title = {"partsOfDay": "part of day"}.get(name, name.removesuffix("s"))
    cost_title = "cost" if any(group["costPerAccepted"] for group in groups) else ""
    head = f"{title.upper():<{NAME_CELLS}}{'cards':>6}{'decided':>8}{'approved':>9}{cost_title:>7}"
    yield text_line(head.rstrip(), "faint")
    for group in groups[:limit]:
        label = kind_title(group["name"]) if name == "kinds" else group["name"] or "–"
        cost = f"${group['costPerAccepted']:.2f}" if group["costPerAccepted"] else ""
        decided = group["approved"] + group["rejected"]
        row = f"{group['predictions']:>6,}{decided:>8,}{format_percent(group['approvalRate']):>9}{cost:>7}"
        yield text_line(f"{fit_to_width(label, NAME_CELLS)}{row}".rstrip())
    if len(groups) > limit:
        yield text_line(f"and {len(groups) - limit} more", "faint")


def make_hourly_fields(insights: Document) -> Iterator[Field]:
    """The share of approved cards and the number of decisions, by hour of the day."""
    by_hour = {int(group["name"]): group for group in insights["hours"]}
    groups = [by_hour.get(hour, {}) for hour in range(24)]
    if by_hour:
        yield heading("by hour of the day")
        yield Field("hour", "".join(f"{hour:<3}" for hour in range(0, 24, 3)).rstrip(), "faint")
        rates = draw_sparkline([group.get("approvalRate") for group in groups], 1.0)
        counts = draw_sparkline([group.get("approved", 0) + group.get("rejected", 0) or None for group in groups])
        yield Field("approved", rates, "accent")
        yield Field("decisions", counts, "grey")


def make_drift_fields(report: Document) -> Iterator[Field]:
    """Whether the operator decides otherwise than before, and about which kinds of card."""
    yield Field("drift", one_line(report["words"]), "wants" if report["changed"] else "ink")
    for shift in report["kinds"]:
        is_more = shift["approved"] > shift["approvalRateBefore"] * shift["decided"]
        change = f"approved {shift['approved']} of {shift['decided']}, before {shift['approvalRateBefore']:.0%}"
        yield Field("▲ more" if is_more else "▼ less", f"{shift['kindTitle']}: {change}", "wants")


# Training


METHOD_NAMES = {"dpo": "preference pairs", "sft": "conversations"}
"""The examples of a training, by its method."""

TRAINING_STATES = {
    "prepared": Label("◐", "accent", "being sent"),
    "uploaded": Label("◐", "accent", "being started"),
    "started": Label("◐", "accent", "in training"),
    "trained": Label("◐", "accent", "being measured"),
    "adopted": Label("●", "accent", "in use"),
    "kept_old": Label("○", "grey", "not adopted"),
    "failed": Label("✗", "wrong", "failed"),
    "cancelled": Label("■", "grey", "stopped"),
}
"""The label of each state of a training."""


def make_training_fields(view: TrainingView, now: datetime, key_of: Callable[[str], str]) -> Iterator[Field]:
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
        label = TRAINING_STATES[run.state]
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


def make_training_question(offer: TrainingOffer, view: TrainingView, key_of: Callable[[str], str]) -> str:
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


def make_stop_question(run: TrainingRunView) -> str:
    """The question before a training is stopped."""
    return (
        f"{run.id}: {run.records:,} {METHOD_NAMES[run.method]} at {run.provider}, "
        f"{TRAINING_STATES[run.state].words}.\n\nIt is also cancelled at the provider, which may still charge for work "
        "done. The model in use stays; no pair is used up."
    )


def make_swap_question(run: TrainingRunView, view: TrainingView) -> tuple[str, str]:
    """The title and the question before a swap of models."""
    measured = f"\n\nMeasured: {one_line(run.note)}" if run.note else ""
    if run.state == "kept_old":
        return "Use this model?", f"{run.model} replaces {view.model or 'none'} immediately.{measured}"
    back = run.former_model or "no model: only the built-in Twin"
    return "Go back to the previous model?", f"{run.model} is no longer used. In use again: {back}.{measured}"

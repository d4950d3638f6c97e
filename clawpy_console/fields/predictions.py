"""The quality of the predictions as fields, for the insights screen and `clawpy metrics` (SPEC 8.4).

The functions take the document that the verb prints as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import LABELS, WORDS, Document, Field, Fields, draw_bar, draw_sparkline, heading, text_line
from clawpy_console.formats import first_of, fit_to_width, one_line
from engine import kind_title


def format_percent(share: float | None) -> str:
    """A share from 0 to 1, `–` for none."""
    return "–" if share is None else f"{share:.0%}"


def format_confidence(share: float | None) -> str:
    """A confidence, `–` for none."""
    return "–" if share is None else f"{share:.2f}"


TRENDS = {"improving": "▲ improving", "declining": "▼ declining", "steady": "steady"}
"""The trend of the approval in words, by its name in the document."""

OUTCOME_LABELS = WORDS["outcome"]
"""The word for what became of cards, by the key of its count."""

ALWAYS_SHOWN = ("approved", "rejected")
"""Outcomes whose counts are shown when they are 0, too."""


def make_summary_fields(document: Document) -> Fields:
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


def make_daily_fields(insights: Document) -> Fields:
    """The share of approved cards and the number of decisions by day; `·` for a day without decisions."""
    slices = insights["approvalOverTime"]
    counts = [each["approved"] + each["rejected"] for each in slices]
    if not any(counts):
        return
    first = datetime.fromisoformat(slices[0]["from"]).astimezone()
    yield heading(f"approval since {first.day} {first:%b}")
    yield Field("approved", draw_sparkline([each["approvalRate"] for each in slices], 1.0), "accent")
    yield Field("decisions", f"{draw_sparkline([count or None for count in counts])}  at most {max(counts)}", "grey")


def make_calibration_fields(insights: Document) -> Fields:
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


NAME_CELLS = 24
"""Cells of a name in a table."""

MAX_TABLE_ROWS = 8
"""Maximum number of rows of a table that are shown."""


def make_table_fields(insights: Document, names: Sequence[str]) -> Fields:
    """A table for each of `names`, a group of the document: its head, and its first rows."""
    listed = [name for name in names if insights[name]]
    for name in listed:
        if name != listed[0]:
            yield text_line("")
        groups, title = insights[name], {"partsOfDay": "part of day"}.get(name, name.removesuffix("s"))
        cost_title = "cost" if any(group["costPerAccepted"] for group in groups) else ""
        head = f"{title.upper():<{NAME_CELLS}}{'cards':>6}{'decided':>8}{'approved':>9}{cost_title:>7}"
        yield text_line(head.rstrip(), "faint")
        rows = []
        for group in groups:
            label = kind_title(group["name"]) if name == "kinds" else group["name"] or "–"
            cost = f"${group['costPerAccepted']:.2f}" if group["costPerAccepted"] else ""
            decided = group["approved"] + group["rejected"]
            row = f"{group['predictions']:>6,}{decided:>8,}{format_percent(group['approvalRate']):>9}{cost:>7}"
            rows.append(f"{fit_to_width(label, NAME_CELLS)}{row}".rstrip())
        yield from map(text_line, first_of(rows, MAX_TABLE_ROWS))


def make_drift_fields(report: Document) -> Fields:
    """Whether the operator decides otherwise than before, and about which kinds of card."""
    yield Field("drift", one_line(report["words"]), "wants" if report["changed"] else "ink")
    for shift in report["kinds"]:
        is_more = shift["approved"] > shift["approvalRateBefore"] * shift["decided"]
        change = f"approved {shift['approved']} of {shift['decided']}, before {shift['approvalRateBefore']:.0%}"
        yield Field("▲ more" if is_more else "▼ less", f"{shift['kindTitle']}: {change}", "wants")


TRAINING_STATES = LABELS["training"]
"""The label of each state of the training of a Twin model (SPEC 8.5), for the screen and `clawpy train`."""


def make_hourly_fields(insights: Document) -> Fields:
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

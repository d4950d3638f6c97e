"""Cards and their work in words, for screens and verbs, in the order in which it comes: what a card would change, how
its session stands, what stops all work or soon will, what was done while you were away, and how good the cards were
(SPEC 8.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from clawpy_console import formats
from clawpy_console.fields import (
    LABELS,
    SIGNS,
    WORDS,
    Document,
    Field,
    Fields,
    Label,
    draw_bar,
    draw_sparkline,
    heading,
    text_line,
)
from clawpy_console.formats import fit_to_width, list_first, one_line
from engine.model import PROBLEM_FOUND, describe_outcome, label_outcome
from engine.wording import failures

# Before it runs


def explain_cannot_run(flow: str | None) -> str:
    """Said of a card that nothing can run."""
    return "This cannot run yet." if flow else "No model or agent can run this yet."


def describe_changes(changes: str, *, check_only: bool, without_sandbox: bool) -> str:
    """The changes that a card may make: its own `changes`, except that nothing which runs without a sandbox is called
    read-only."""
    return "only checks, without a sandbox" if check_only and without_sandbox else changes


# Sessions


SESSION_SIGNS = SIGNS["session"]
"""Sign and tone of each state and outcome of a session."""

TEST_FLOWS = (None, "run_tests")
"""The flows whose outcome is the number of tests that failed; None is an agent's work. Other flows use tests only as a
means."""


def make_outcome_label(state: str, result: str | None, flow: str | None, failed: int, errors: int) -> Label:
    """How a session stands. Its tests `failed`, or had `errors`."""
    if state == "succeeded" and result == "failed":
        sign, tone = SESSION_SIGNS[PROBLEM_FOUND]
        return Label(sign, tone, failures(failed, errors) if flow in TEST_FLOWS and failed + errors else PROBLEM_FOUND)
    sign, tone = SESSION_SIGNS[state]
    return Label(sign, tone, label_outcome(state))


def describe_origin(mode: str) -> str:
    """`by itself: ` before the prompt of a session that nobody approved, "" for others."""
    return "by itself: " if mode == "autonomous" else ""


def describe_open_comments(sent: Sequence[bool]) -> str:
    """How many comments on changes that land have no answer, whether each was `sent` or not; "" for none."""
    numbers = {"not sent": sent.count(False), "not answered": sent.count(True)}
    return ", ".join(
        f"{formats.count(number, 'comment')} of yours {words}" for words, number in numbers.items() if number
    )


# Stops, pauses and caps


HOLD_NAMES = WORDS["hold"]
"""The names of stops and pauses, by the word of each."""

SWITCH_ON_COMMAND = "`clawpy config set crossPollEnabled true`"
"""The command that ends the hold `config`, in place of `resume`."""


def choose_cost_tone(used: int, cap: int) -> str:
    """The tone of costs that have `used` so much of a cap, both in micro-dollars: "wants" from 80 % of the cap on,
    "wrong" from the cap on, "" below. A cap of 0 is reached before anything costs money."""
    if used >= cap:
        return "wrong"
    return "wants" if used >= cap * 0.8 else ""


def make_hold_field(word: str, reason: str, since: str, how: str, remaining: str = "") -> Field:
    """A stop, a month stop or a pause: `how` to resume, and the `remaining` time where it ends by itself. `since` is ""
    where that is not known."""
    end = f", over in {remaining}" if remaining else ""
    begin = f"Since {since}: " if since else ""
    text = f"{SWITCH_ON_COMMAND if word == 'config' else how} to resume{end}. {begin}{one_line(reason)}"
    return Field(f"■ {HOLD_NAMES[word]}", text, "wrong" if word == "stop" else "wants")


# While you were away


def make_absence_fields(document: Document) -> Fields:
    """Sessions, blocks, decisions, learnings and costs; no fields when nothing happened."""
    sessions = document["ran"]
    blocked = document["blocked"]
    approved = document["approved"]
    dismissed = document["rejected"]
    learned_counts = document["learnt"]
    learned = ", ".join(
        formats.count(learned_counts[key], *forms) for key, forms in LEARNED_FORMS.items() if learned_counts[key]
    )
    if not (sessions or blocked or approved or dismissed or learned):
        return
    problems = sum(describe_outcome(session["state"], session["result"]) == PROBLEM_FOUND for session in sessions)
    unfinished = sum(session["state"] not in ("succeeded", "discarded") for session in sessions)
    exceptions = _count_exceptions({"found a problem": problems, "did not finish": unfinished})
    yield Field("done", ", ".join([formats.count(len(sessions), "session"), *exceptions]))
    if blocked:
        yield Field("blocked", f"{len(blocked)} by the rails")
    by_itself = document["approvedByItself"]
    decisions = document["decisions"]
    yield Field("approved", ", ".join([f"{approved}", *_count_exceptions({"by itself": by_itself})]))
    yield Field("dismissed", f"{dismissed}")
    basis = f", from {formats.count(decisions, 'decision')}" if decisions else ""
    yield Field("learned", f"{learned or 'nothing new'}{basis}")
    if document["spent"]:
        yield Field("spent", f"${document['spent']:.2f}")


LEARNED_FORMS = WORDS["learned"]
"""The kinds of things that were learned, by key in the document, in words for one and for several."""


def _count_exceptions(numbers: Mapping[str, int]) -> list[str]:
    """`2 could not run` for each of these that there is."""
    return [f"{number} {words}" for words, number in numbers.items() if number]


# The quality of the predictions


def format_percent(share: float | None) -> str:
    """A share from 0 to 1, `–` for none."""
    return "–" if share is None else f"{share:.0%}"


def format_confidence(share: float | None) -> str:
    """A confidence, `–` for none."""
    return "–" if share is None else f"{share:.2f}"


TREND_LABELS = WORDS["trend"]
"""The trend of the approval in words, by its name in the document."""

OUTCOME_LABELS = WORDS["outcome"]
"""The word for what became of cards, by the key of its count."""

ALWAYS_COUNTED = ("approved", "rejected")
"""Outcomes whose counts are shown when they are 0, too."""


def make_summary_fields(document: Document) -> Fields:
    """The number of cards, what became of them, and how many were approved."""
    own = f" and {formats.count(document['ownPrompts'], 'prompt')} of your own" if document["ownPrompts"] else ""
    counts = [
        f"{document[key]:,} {label}" for key, label in OUTCOME_LABELS.items() if document[key] or key in ALWAYS_COUNTED
    ]
    total = formats.count(document["totalPredictions"], "card")
    period = document["period"].replace("_", " ")
    yield Field("cards", f"{period}: {total}{own}, {', '.join(counts)}")
    if document["approvalRate"] is not None:
        trend = TREND_LABELS.get(document["trendDirection"], "no trend yet")
        yield Field("approved", f"{format_percent(document['approvalRate'])}, {trend}")
    if document["autoExecuted"]:
        yield Field("by itself", f"{document['autoExecuted']:,}, {document['autoExecutedUndone']:,} undone")
    if document["approvalRate"] is not None:
        approved = document["avgApprovedConfidence"]
        dismissed = document["avgRejectedConfidence"]
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
        yield from map(_make_bucket_field, buckets)
        error = insights["calibrationError"]
        sign = "✓ " if insights["calibrationHolds"] else ""
        yield Field("error", "not known yet" if error is None else f"{sign}{error:.3f}")
        yield _make_threshold_field(insights["atThreshold"], insights["autoExecuteThreshold"])
    yield Field("phase", f"{insights['phase']}: {one_line(insights['phaseReason'])}")
    if insights["calibrationWords"] not in insights["phaseReason"]:
        yield text_line(one_line(insights["calibrationWords"]), "grey")


def _make_bucket_field(bucket: Document) -> Field:
    """A range of confidence: how many of its cards were approved, and the verdict on that."""
    stated, tone = judge_calibration(bucket)
    rate = bucket["approvalRate"]
    interval = f"{100 * bucket['low']:.0f}–{100 * bucket['high']:.0f}"
    text = f"{draw_bar(rate)} {rate:>4.0%} of {bucket['predictions']:<3,} {interval:>6} {stated}"
    return Field(bucket["bucket"], text, tone)


def _make_threshold_field(bucket: Document, threshold: float) -> Field:
    """The confidence from which cards run by themselves, and how often you approved such cards."""
    evidence = "you have not decided any such card"
    if bucket["predictions"]:
        cards = formats.count(bucket["predictions"], "card")
        evidence = f"you approved {format_percent(bucket['approvalRate'])} of {cards} (at least {bucket['low']:.0%})"
    return Field("acts from", f"{threshold:.2f}: {evidence}")


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
        groups = insights[name]
        title = {"partsOfDay": "part of day"}.get(name, name.removesuffix("s"))
        cost_title = "cost" if any(group["costPerAccepted"] for group in groups) else ""
        head = f"{title.upper():<{NAME_CELLS}}{'cards':>6}{'decided':>8}{'approved':>9}{cost_title:>7}"
        yield text_line(head.rstrip(), "faint")
        rows = [_format_table_row(group, is_kind=name == "kinds") for group in groups]
        yield from map(text_line, list_first(rows, MAX_TABLE_ROWS))


def _format_table_row(group: Document, *, is_kind: bool) -> str:
    """A group of cards, such as those of a kind: its name, its numbers and its cost."""
    from engine import kind_title  # not before the first frame

    label = kind_title(group["name"]) if is_kind else group["name"] or "–"
    cost = f"${group['costPerAccepted']:.2f}" if group["costPerAccepted"] else ""
    decided = group["approved"] + group["rejected"]
    row = f"{group['predictions']:>6,}{decided:>8,}{format_percent(group['approvalRate']):>9}{cost:>7}"
    return f"{fit_to_width(label, NAME_CELLS)}{row}".rstrip()


def make_drift_fields(report: Document) -> Fields:
    """Whether the operator decides otherwise than before, and about which kinds of card."""
    yield Field("drift", one_line(report["words"]), "wants" if report["changed"] else "ink")
    for shift in report["kinds"]:
        is_more = shift["approved"] > shift["approvalRateBefore"] * shift["decided"]
        change = f"approved {shift['approved']} of {shift['decided']}, before {shift['approvalRateBefore']:.0%}"
        yield Field("▲ more" if is_more else "▼ less", f"{shift['kindTitle']}: {change}", "wants")


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


TRAINING_STATES = LABELS["training"]
"""The label of each state of the training of a Twin model (SPEC 8.5), for the screen and `clawpy train`."""

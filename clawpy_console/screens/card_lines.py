"""Draws one card as lines of text: the stack shows them, and other panes use its headline and words. Pure."""

from __future__ import annotations

from typing import NamedTuple

from textual.content import Content

from clawpy_console import formats
from clawpy_console.fields import states
from clawpy_console.formats import crop, fit_to_width, one_line, workspace_name
from engine.model import Band, Card, Signal, Source, Tier

BAR_CELLS = 8

FLOWS_BY_WORK = {
    "tests": (
        "run_tests",
        "check_clean_head",
        "hunt_flakes",
        "narrow_failures",
        "quarantine",
        "time_tests",
        "uncovered_lines",
    ),
    "bisect": ("bisect",),
    "lint": ("lint", "fix_lint"),
    "fix": ("apply_fix",),
    "merge": ("rehearse_merge", "forecast_conflicts", "unfinished_operation"),
    "revert": ("rehearse_revert",),
    "rebase": ("rehearse_autosquash",),
    "undo": ("undo_landing",),
    "branches": ("report_branches", "keep_commits"),
    "review": ("review_unpushed", "look_at_changes", "look_at_pull_request", "look_together", "look_at_stash"),
    "debugging": ("look_for_leftovers", "remove_leftovers"),
    "docs": ("look_at_mentions", "update_docs", "write_agents_md"),
    "release": ("look_at_release", "draft_changelog"),
    "summary": ("summarise_day",),
    "packages": ("prepare_environment", "update_lock"),
    "disk": ("reclaim_space",),
}  # fmt: skip
"""The work of flows in a word, with the flows that do it."""

_WORK_BY_FLOW = {flow: work for work, flows in FLOWS_BY_WORK.items() for flow in flows}


def work_word(card: Card) -> str:
    """The work of a flow in a word, such as `tests`; a learned flow by its name; without a flow the channel."""
    flow = card.assignment.flow
    return _WORK_BY_FLOW.get(flow, flow.replace("_", " ")) if flow else card.assignment.channel


def tier_label(card: Card) -> str:
    """The tier in one word, `YOURS` on the operator's own prompt."""
    return "YOURS" if card.source is Source.OPERATOR else card.tier.name


def headline(card: Card, width: int) -> Content:
    """`BROKEN  shop · tests` at the left; at the right the badges, and the confidence once it is stated."""
    badges = []
    if card.stated:
        badges.append((f"{round(card.confidence * 100)}%", "bold $ink"))
        if card.parts is not None and card.parts.few:
            badges.append((" few decisions", "$grey"))
        if card.band in (Band.SUGGESTED, Band.ACT):
            badges.append(("  SUGGESTED", "bold $accent"))
        if card.novel:
            badges.append(("  NEW", "bold $wants"))
    right = Content.assemble(*badges)
    label = Content.styled(f"{tier_label(card)}  ", "bold $wrong" if card.tier is Tier.BROKEN else "bold $ink")
    place = f"{workspace_name(card.assignment.workspace)} · {work_word(card)}"
    place_width = max(1, width - label.cell_length - right.cell_length - 1)
    return Content.assemble(label, (fit_to_width(place, place_width), "$grey"), " ", right)


def signal_words(signal: Signal) -> tuple[str, str]:
    """The name of a signal and its evidence."""
    name = "talk" if signal.name == "conversations" else signal.name
    return name, one_line(signal.error or "; ".join(signal.evidence)) or "nothing"


def signal_line(signal: Signal) -> Content:
    """A signal as name, bar and evidence."""
    name, text = signal_words(signal)
    filled = max(round(signal.relevance * BAR_CELLS), 1 if signal.relevance > 0.02 else 0)
    bar = f"{'▇' * filled:<{BAR_CELLS}} "
    return Content.assemble((f"{fit_to_width(name, 8)} ", "$faint"), (bar, "$accent"), (text, "$grey"))


def describe_work(card: Card) -> str:
    """The estimated cost of a card, what it changes, what runs it and what undoes it, where anything can run it."""
    if not card.can_run:
        return states.cannot_run_text(card.assignment.flow)
    runs = f"runs: {card.assignment.flow or one_line(card.served) or card.assignment.runner}"
    touches = states.describe_changes(card.assignment.flow, card.check_only, card.without_sandbox)
    parts = [f"est. {formats.money(card.estimate)}"] if card.estimate else []
    parts += [touches, runs]
    session_id = card.assignment.parameters.get("continues")
    if session_id and card.assignment.flow is None:
        parts.append(f"continues {session_id}")
    undo = one_line(card.undo_note)
    parts.append(undo if undo.startswith("nothing to undo") else f"undo: {undo}")
    return " · ".join(parts)


def caution_and_style(card: Card) -> tuple[str, str]:
    """A warning to read before approving, "" for none, and its style."""
    if blocking_verdict := states.blocking_verdict(card):
        return f"✗ {blocking_verdict.rail} would block: {one_line(blocking_verdict.reason)}", "$wrong"
    if (risk := states.approval_risk(card)) and risk != states.NO_SANDBOX:  # that stands under the headline
        return f"▲ risky: {risk}", "$wants"
    if card.note:
        return f"▲ {one_line(card.note)}", "$wants"
    return "", ""


class ShrinkStep(NamedTuple):
    """A step that makes a card smaller which is too high."""

    part: str
    min_lines: int
    """Number of lines of the part that stay at least."""


SHRINK_STEPS = (
    ShrinkStep("reason", 2),
    ShrinkStep("signals", 0),
    ShrinkStep("reason", 0),
    ShrinkStep("facts", 1),
    ShrinkStep("caution", 1),
    ShrinkStep("prompt", 1),
)
"""They are taken in this order until the card is low enough."""


def card_lines(card: Card, width: int, height: int, *, with_signals: bool = True) -> list[Content]:
    """The card as exactly `height` lines of at most `width` cells."""
    parts = _card_parts(card, width, with_signals)
    _shrink(parts, width, height)
    sandbox_warning = crop(f"▲ {states.NO_SANDBOX}", width) if card.without_sandbox else ""
    top = [headline(card, width), Content.styled(sandbox_warning, "bold $wants"), *parts["prompt"]]
    for name in ("reason", "signals"):
        if parts[name]:
            top += [Content(""), *parts[name]]
    bottom = parts["caution"] + parts["facts"]
    blank = [Content("")] * (height - len(top) - len(bottom))
    return (top + blank + bottom)[:height]


def _card_parts(card: Card, width: int, with_signals: bool) -> dict[str, list[Content]]:
    """The lines of each part of the card below its headline, as many as fit a high card."""
    signals = [signal for signal in card.signals if with_signals and signal.relevance > 0.02]
    signals.sort(key=lambda signal: -signal.share)
    return {
        "prompt": _wrap(card.assignment.prompt, "bold $ink", width, 5),
        "reason": _wrap(card.reasoning, "$grey", width, 5),
        "signals": [signal_line(signal).truncate(width, ellipsis=True) for signal in signals],
        "caution": _wrap(*caution_and_style(card), width, 6),
        "facts": _wrap(describe_work(card), "$faint", width, 5),
    }


def _shrink(parts: dict[str, list[Content]], width: int, height: int) -> None:
    """Shorten the parts until the whole card has at most `height` lines, where the steps allow that."""
    for name, min_lines in SHRINK_STEPS:
        other_lines = 2 + bool(parts["reason"]) + bool(parts["signals"])  # headline, sandbox warning, blank lines
        excess = other_lines + sum(map(len, parts.values())) - height
        if excess > 0:
            limit = max(min_lines, len(parts[name]) - excess)
            # Each signal is a line of its own, so that no ellipsis says that its text goes on.
            parts[name] = parts[name][:limit] if name == "signals" else _first_lines(parts[name], limit, width)


def _wrap(text: str, style: str, width: int, limit: int) -> list[Content]:
    """`text` as at most `limit` lines; no lines for an empty text."""
    return _first_lines(Content.styled(one_line(text), style).wrap(width), limit, width) if text else []


def _first_lines(lines: list[Content], limit: int, width: int) -> list[Content]:
    """At most `limit` of the lines; the last one ends with an ellipsis where more follow."""
    if len(lines) <= limit:
        return lines
    if not limit:
        return []
    return [*lines[: limit - 1], (lines[limit - 1].rstrip() + " …").truncate(width, ellipsis=True)]

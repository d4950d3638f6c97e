"""One card as it is drawn: headline, prompt, reason, signals, warning and facts, in exactly the lines there are.

`card_stack` shows the card in front with it, and `card_details` begins with the same headline and signals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console import formats
from clawpy_console.fields.cards import describe_changes, explain_cannot_run
from clawpy_console.formats import crop, fit_to_width, one_line, workspace_name
from clawpy_console.keys import format_key
from clawpy_console.widgets.texts import limit_lines, wrap_text
from engine.model import NO_SANDBOX_WARNING, Band, Card, Signal, Tier

if TYPE_CHECKING:
    from clawpy_console.console import Console


class CardView(Widget):
    """Draws one card, or nothing."""

    DEFAULT_CSS = """
    CardView { border: round $line; padding: 0 2; height: 1fr; background: $background; }
    """

    app: Console
    card: reactive[Card | None] = reactive(None)

    def render(self) -> Content:
        if self.card is None:
            return Content("")
        width, height = self.content_size
        has_evidence_pane = self.screen.has_class("-wide")
        way_out = describe_way_out(self.card, self.app.keymap)
        return Content("\n").join(
            make_card_lines(self.card, width, height, way_out, with_signals=not has_evidence_pane)
        )


def make_headline(card: Card, width: int) -> Content:
    """`AT RISK  shop · tests` at the left; at the right the badges, and the confidence once it is stated."""
    badges = []
    if card.has_stated_confidence:
        badges.append((f"{round(card.confidence * 100)}%", "bold $ink"))
        if card.parts is not None and card.parts.has_few_decisions:
            badges.append((" few decisions", "$grey"))
        if card.band in (Band.SUGGESTED, Band.ACT):
            badges.append(("  SUGGESTED", "bold $accent"))
        if card.has_novel_pair:
            badges.append(("  NEW", "bold $wants"))
    right = Content.assemble(*badges)
    label = Content.styled(f"{card.tier_word.upper()}  ", "bold $wrong" if card.tier is Tier.AT_RISK else "bold $ink")
    place = f"{workspace_name(card.assignment.workspace)} · {card.work}"
    place_width = max(1, width - label.cell_length - right.cell_length - 1)
    return Content.assemble(label, (fit_to_width(place, place_width), "$grey"), " ", right)


def describe_signal(signal: Signal) -> tuple[str, str]:
    """The name of a signal and its evidence."""
    name = "talk" if signal.name == "conversations" else signal.name
    return name, one_line(signal.error or "; ".join(signal.evidence)) or "nothing"


SIGNAL_BAR_CELLS = 8
"""Cells of the bar of a signal."""

MIN_SHOWN_RELEVANCE = 0.02
"""Signals up to this relevance are not shown on the card, and have an empty bar."""


def make_signal_line(signal: Signal) -> Content:
    """A signal as name, bar and evidence."""
    name, text = describe_signal(signal)
    filled = max(round(signal.relevance * SIGNAL_BAR_CELLS), 1 if signal.relevance > MIN_SHOWN_RELEVANCE else 0)
    bar = f"{'▇' * filled:<{SIGNAL_BAR_CELLS}} "
    return Content.assemble((f"{fit_to_width(name, 8)} ", "$faint"), (bar, "$accent"), (text, "$grey"))


def describe_work(card: Card) -> str:
    """The estimated cost of a card, what it changes, what runs it and what undoes it, where anything can run it."""
    assignment = card.assignment
    if not card.can_run:
        return explain_cannot_run(assignment.flow)
    parts = [f"est. {formats.money(card.estimate)}"] if card.estimate else []
    parts.append(describe_changes(card.changes, check_only=card.check_only, without_sandbox=card.without_sandbox))
    parts.append(f"runs: {assignment.flow or one_line(card.consent_text) or assignment.runner}")
    session_id = assignment.parameters.get("continues")
    if session_id and assignment.flow is None:
        parts.append(f"continues {session_id}")
    undo = one_line(card.undo_note)
    parts.append(undo if card.check_only else f"undo: {undo}")  # what reads says it itself
    return " · ".join(parts)


def describe_way_out(card: Card, keymap: Mapping[str, str]) -> str:
    """What the operator can do about the rail that would block `card`, with the keys; "" when none would."""
    blocking_verdict = card.blocking_verdict
    if blocking_verdict is None:
        return ""
    approve, safety, next_pane, allow_once = (
        format_key(action_id, keymap)
        for action_id in ("stack.approve", "app.safety", "panes.next", "safety.allow_once")
    )
    if not blocking_verdict.can_be_allowed_once:
        return f"{safety} shows the rails."
    if card.approval_risk:
        approve = f"{approve} {format_key('stack.insist', keymap)}"
    # The safety screen lists only work that was blocked, so the card has to be tried first.
    return f"To run it once: {approve}, then {safety} {next_pane} {allow_once} allows it, then {approve} again."


def find_caution(card: Card, way_out: str) -> tuple[str, str]:
    """A warning to read before approving, "" for none, and its style. `way_out` is that of `describe_way_out`."""
    if blocking_verdict := card.blocking_verdict:
        reason = one_line(blocking_verdict.reason)
        return f"✗ {blocking_verdict.rail} would block: {reason}. {way_out}", "$wrong"
    if card.rail_risk:  # that there is no sandbox stands under the headline
        return f"▲ risky: {card.approval_risk}", "$wants"
    if card.note:
        return f"▲ {one_line(card.note)}", "$wants"
    return "", ""


PartName = Literal["prompt", "reason", "signals", "caution", "facts"]
CardParts = dict[PartName, list[Content]]
"""The lines of each part of a card below its headline."""


class ShrinkStep(NamedTuple):
    """A step that makes a card smaller which is too high."""

    part: PartName
    min_lines: int
    """Number of lines of the part that stay at least."""


def make_card_lines(card: Card, width: int, height: int, way_out: str, *, with_signals: bool) -> list[Content]:
    """The card as exactly `height` lines of at most `width` cells. `way_out` is that of `describe_way_out`."""
    parts = _make_card_parts(card, width, way_out, with_signals=with_signals)
    _shrink(parts, width, height)
    sandbox_warning = crop(f"▲ {NO_SANDBOX_WARNING}", width) if card.without_sandbox else ""
    top = [make_headline(card, width), Content.styled(sandbox_warning, "bold $wants"), *parts["prompt"]]
    for lines in (parts["reason"], parts["signals"]):
        if lines:
            top += [Content(""), *lines]
    bottom = parts["caution"] + parts["facts"]
    blank = [Content("")] * (height - len(top) - len(bottom))
    return (top + blank + bottom)[:height]


def _make_card_parts(card: Card, width: int, way_out: str, *, with_signals: bool) -> CardParts:
    """The lines of each part of the card below its headline, as many as fit a high card."""
    signals = [signal for signal in card.signals if with_signals and signal.relevance > MIN_SHOWN_RELEVANCE]
    signals.sort(key=lambda signal: -signal.share)
    return {
        "prompt": wrap_text(card.assignment.prompt, "bold $ink", width, 5),
        "reason": wrap_text(card.reasoning.partition("\n")[0], "$grey", width, 5),  # the details show the rest
        "signals": [make_signal_line(signal).truncate(width, ellipsis=True) for signal in signals],
        "caution": wrap_text(*find_caution(card, way_out), width, 6),
        "facts": wrap_text(describe_work(card), "$faint", width, 5),
    }


SHRINK_STEPS = (
    ShrinkStep("reason", 2),
    ShrinkStep("signals", 0),
    ShrinkStep("reason", 0),
    ShrinkStep("facts", 1),
    ShrinkStep("caution", 1),
    ShrinkStep("prompt", 1),
)
"""The steps, in the order in which they are taken until the card is low enough."""


def _shrink(parts: CardParts, width: int, height: int) -> None:
    """Shorten the parts until the whole card has at most `height` lines, where the steps allow that."""
    for name, min_lines in SHRINK_STEPS:
        other_lines = 2 + bool(parts["reason"]) + bool(parts["signals"])  # headline, sandbox warning, blank lines
        excess = other_lines + sum(map(len, parts.values())) - height
        if excess > 0:
            limit = max(min_lines, len(parts[name]) - excess)
            # Each signal is a line of its own, so that no ellipsis says that its text goes on.
            parts[name] = parts[name][:limit] if name == "signals" else limit_lines(parts[name], limit, width)

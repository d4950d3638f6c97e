"""One card: what is proposed, why, what it changes, what it costs."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console import words
from engine.model import Band, Card, Signal, Source, Tier

BAR_CELLS = 8

KINDS_OF_WORK = {
    "tests": "run_tests check_clean_head hunt_flakes narrow_failures quarantine time_tests uncovered_lines",
    "bisect": "bisect",
    "lint": "lint fix_lint",
    "fix": "apply_fix",
    "merge": "rehearse_merge forecast_conflicts unfinished_operation",
    "revert": "rehearse_revert",
    "rebase": "rehearse_autosquash",
    "undo": "undo_landing",
    "branches": "report_branches keep_commits",
    "review": "review_unpushed look_at_changes look_at_pull_request look_together look_at_stash",
    "debugging": "look_for_leftovers remove_leftovers",
    "docs": "look_at_mentions update_docs write_agents_md",
    "release": "look_at_release draft_changelog",
    "summary": "summarise_day",
    "packages": "prepare_environment update_lock",
    "disk": "reclaim_space",
}
"""A word for each kind of work, and the flows that do it."""

_KIND = {flow: word for word, flows in KINDS_OF_WORK.items() for flow in flows.split()}


def kind_of_work(card: Card) -> str:
    """`tests`, `lint`, `merge` where a flow does it; a flow that was learned by its name; else the channel."""
    flow = card.assignment.flow
    return _KIND.get(flow, flow.replace("_", " ")) if flow else card.assignment.channel


def tier_label(card: Card) -> str:
    """The tier in one word, `YOURS` on a prompt of your own."""
    return "YOURS" if card.source is Source.OPERATOR else card.tier.name


def headline(card: Card, width: int) -> Content:
    """`BROKEN  shop · tests` at the left; at the right the confidence once it is stated, and badges."""
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
    place = f"{words.workspace_name(card.assignment.workspace)} · {kind_of_work(card)}"
    room = max(1, width - label.cell_length - right.cell_length - 1)
    return Content.assemble(label, (words.fit_to_width(place, room), "$grey"), " ", right)


def signal_words(signal: Signal) -> tuple[str, str]:
    """Its name, and its evidence in words."""
    name = "talk" if signal.name == "conversations" else signal.name
    return name, words.one_line(signal.error or "; ".join(signal.evidence)) or "nothing"


def signal_line(signal: Signal) -> Content:
    """Name, bar, evidence."""
    name, text = signal_words(signal)
    filled = max(round(signal.relevance * BAR_CELLS), 1 if signal.relevance > 0.02 else 0)
    shown = f"{'▇' * filled:<{BAR_CELLS}} "
    return Content.assemble((f"{words.fit_to_width(name, 8)} ", "$faint"), (shown, "$accent"), (text, "$grey"))


def work_facts(card: Card) -> str:
    """What it may cost, what it changes, what runs it, what undoes it; unknown while nothing can run it."""
    if not card.undo_note:
        return "No model or agent can run this yet."
    runs = f"runs: {card.assignment.flow or words.one_line(card.served) or card.assignment.runner}"
    touches = words.touches(card.assignment.flow or "", card.check_only, card.without_sandbox)
    parts = [*([f"est. {words.money(card.estimate)}"] if card.estimate else []), touches, runs]
    if continued := card.assignment.parameters.get("continues") if card.assignment.flow is None else None:
        parts.append(f"continues {continued}")
    undo = words.one_line(card.undo_note)
    parts.append(undo if undo.startswith("nothing to undo") else f"undo: {undo}")
    return " · ".join(parts)


def caution_and_style(card: Card) -> tuple[str, str]:
    """What you should read before approving, "" for nothing, with its colour."""
    if blocking_verdict := words.blocking_verdict(card):
        return f"✗ {blocking_verdict.rail} would block: {words.one_line(blocking_verdict.reason)}", "$wrong"
    if (risk := words.approval_risk(card)) and risk != words.NO_SANDBOX:  # that stands under the headline
        return f"▲ risky: {risk}", "$wants"
    if card.note:
        return f"▲ {words.one_line(card.note)}", "$wants"
    return "", ""


SHRINK_ORDER = (("reason", 2), ("signals", 0), ("reason", 0), ("facts", 1), ("caution", 1), ("prompt", 1))
"""The parts of a small card that give up lines, in this order, and the number that each keeps."""


def layout(card: Card, width: int, height: int, *, with_signals: bool = True) -> list[Content]:
    """The card as exactly `height` lines of at most `width` cells."""

    def wrapped(text: str, style: str, limit: int) -> list[Content]:
        return _first_lines(Content.styled(words.one_line(text), style).wrap(width), limit, width) if text else []

    signals = sorted(
        (signal for signal in card.signals if with_signals and signal.relevance > 0.02),
        key=lambda signal: -signal.share,
    )
    parts = {
        "prompt": wrapped(card.assignment.prompt, "bold $ink", 5),
        "reason": wrapped(card.reasoning, "$grey", 5),
        "signals": [signal_line(signal).truncate(width, ellipsis=True) for signal in signals],
        "caution": wrapped(*caution_and_style(card), 6),
        "facts": wrapped(work_facts(card), "$faint", 5),
    }
    for name, min_lines in SHRINK_ORDER:
        gaps = 2 + bool(parts["reason"]) + bool(parts["signals"])
        over = gaps + sum(map(len, parts.values())) - height
        if over > 0:
            limit = max(min_lines, len(parts[name]) - over)
            parts[name] = parts[name][:limit] if name == "signals" else _first_lines(parts[name], limit, width)
    sandbox_warning = words.crop(f"▲ {words.NO_SANDBOX}", width) if card.without_sandbox else ""
    lines = [headline(card, width), Content.styled(sandbox_warning, "bold $wants"), *parts["prompt"]]
    for name in ("reason", "signals"):
        if parts[name]:
            lines += [Content(""), *parts[name]]
    below = parts["caution"] + parts["facts"]
    return (lines + [Content("")] * (height - len(lines) - len(below)) + below)[:height]


def _first_lines(lines: list[Content], limit: int, width: int) -> list[Content]:
    """At most `limit` lines; where more follow, the last one says so."""
    if len(lines) <= limit:
        return lines
    return [*lines[: limit - 1], (lines[limit - 1].rstrip() + " …").truncate(width, ellipsis=True)] if limit else []


class CardView(Widget):
    """Draws one card, or nothing."""

    DEFAULT_CSS = """
    CardView { border: round $line; padding: 0 2; height: 1fr; background: $background; }
    """

    card: reactive[Card | None] = reactive(None)

    def render(self) -> Content:
        if self.card is None:
            return Content("")
        beside = self.screen.has_class("-wide")  # the evidence stands beside the card
        width, height = self.content_size
        return Content("\n").join(layout(self.card, width, height, with_signals=not beside))

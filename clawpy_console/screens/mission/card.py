"""One card: what is proposed, why, what it changes, what it costs."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console import words
from engine.values import Band, Card, Signal, Source, Tier

SHORT = {"time_of_day": "time", "active_tasks": "tasks", "recent_conversations": "talk", "git_state": "git"}
BAR = 8

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


def signal_name(name: str) -> str:
    """A signal's name in at most 8 cells."""
    return words.crop(SHORT.get(name, name.replace("_", " ")), 8)


def bar(share: float, width: int = BAR) -> str:
    """A bar of at most `width` cells for a share in [0, 1]; anything above nothing has one cell."""
    cells = round(max(0.0, min(1.0, share)) * width)
    return ("▇" * max(cells, 1 if share > 0.02 else 0)).ljust(width)


def headline(card: Card, width: int) -> Content:
    """`BROKEN  shop · tests` at the left; at the right the confidence once it is stated, and badges."""
    badges = []
    if card.stated:
        badges.append((f"{round(card.confidence * 100)}%", "bold $ink"))
        if card.band in (Band.SUGGESTED, Band.ACT):
            badges.append(("  SUGGESTED", "bold $accent"))
    if card.novel:
        badges.append(("  NEW", "bold $wants"))
    right = Content.assemble(*badges)
    label = Content.styled(f"{tier_label(card)}  ", "bold $wrong" if card.tier is Tier.BROKEN else "bold $ink")
    place = f"{words.name(card.assignment.workspace)} · {kind_of_work(card)}"
    room = max(1, width - label.cell_length - right.cell_length - 1)
    return Content.assemble(label, (words.fit(place, room), "$grey"), " ", right)


def signal_line(signal: Signal, width: int) -> Content:
    """Name, bar, evidence in words."""
    evidence = words.one_line(signal.error or "; ".join(signal.evidence))
    color = "$wants" if signal.error else "$grey"
    return Content.assemble(
        (f"{signal_name(signal.name):<8} ", "$faint"),
        (bar(signal.relevance), "$accent"),
        " ",
        (words.crop(evidence, max(0, width - BAR - 10)), color),
    )


def facts(card: Card) -> str:
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


def caution(card: Card) -> tuple[str, str] | None:
    """What you should read before approving, with its colour, or None."""
    if stopper := words.blocked(card):
        return f"✗ {stopper.rail} would block: {words.one_line(stopper.reason)}", "$wrong"
    if (risk := words.risk(card)) and risk != words.NO_SANDBOX:  # that stands under the headline
        return f"▲ risky: {risk}", "$wants"
    if card.note:
        return f"▲ {words.one_line(card.note)}", "$wants"
    return None


def layout(card: Card, width: int, height: int, *, with_signals: bool = True) -> list[Content]:
    """The card as exactly `height` lines of at most `width` cells. What matters stays as the room shrinks: head,
    prompt, facts and caution first, then the reason, then the signals."""
    blank = Content("")
    below: list[Content] = []
    found = [one for one in card.signals if one.relevance > 0.02] if with_signals else []
    signals = sorted(found, key=lambda one: -one.share)
    prompt = Content.styled(words.one_line(card.assignment.prompt), "bold $ink").wrap(width)
    reason = Content.styled(words.one_line(card.reasoning), "$grey").wrap(width) if card.reasoning else []
    free = height - 4 - min(len(prompt), 3) - len(signals)  # rows that nothing else would fill
    if said := caution(card):
        text = Content.styled(said[0], said[1]).wrap(width)
        below += _first(text, max(2 if height > 10 else 1, min(6, free - 2)), width, said[1])
    known = Content.styled(facts(card), "$faint").wrap(width)
    most = max(1 if height < 11 else 2 if height < 15 else 3, min(5, free - len(below)))
    below += _first(known, most, width, "$faint")
    prompt = _first(prompt, max(1, min(5 if height > 14 else 3, height - 2 - len(below))), width, "bold $ink")
    bare = Content.styled(words.crop(f"▲ {words.NO_SANDBOX}", width), "bold $wants")
    lines = [headline(card, width), bare if card.without_sandbox else blank, *prompt]
    room = height - len(lines) - len(below)
    if room >= 1 and reason:
        gap = [blank] if room > min(len(reason), 2) else []
        lines += [*gap, *_first(reason, min(room - len(gap), max(2, room - len(signals) - 3)), width, "$grey")]
        room = height - len(lines) - len(below)
    if room >= 2 and signals:
        lines += [blank, *(signal_line(one, width) for one in signals[: room - 1])]
    lines += [blank] * (height - len(lines) - len(below))
    return (lines + below)[:height]


def _first(lines: list[Content], most: int, width: int, style: str) -> list[Content]:
    """At most `most` lines; where more follow, the last one says so."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], Content.styled(words.crop(f"{lines[most - 1].plain} …", width), style)]


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

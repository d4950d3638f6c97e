"""Why a card is there and what would happen: the lines of its details, and of the pane beside it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from textual.content import Content

from clawpy_console import words
from clawpy_console.screens.mission.card import signal_line, tier_label
from clawpy_console.screens.mission.lines import result_words
from clawpy_console.state import AppState
from engine.values import Card, RailVerdict, Source, Tier, Verdict

TERMS = (("twin", 0.40), ("pattern", 0.25), ("urgency", 0.20), ("time", 0.15))
"""The terms of the confidence and their weights, as the sum is written (SPEC 2.5)."""


Like = tuple[int, int]
"""How many cards like one you approved, and how many you decided."""


def evidence(
    card: Card, rails: Sequence[RailVerdict], like: Like | None, known: AppState, now: datetime
) -> list[Content]:
    """The evidence for and against `card`, with the verdict of each of the `rails`."""
    lines: list[Content] = []
    if card.reasoning:
        lines += [Content.styled(words.one_line(card.reasoning), "$grey"), Content("")]
    lines += [
        title("PLACE IN THE STACK"),
        *tier_lines(card),
        *_fact_lines(_history(card, like, known, now)),
        Content(""),
    ]
    if card.signals:  # none speak for a prompt of your own
        lines += [title("SIGNALS (weight · relevance)"), *signal_lines(card), Content("")]
    if rails:
        lines += [title("RAILS NOW"), *rail_lines(rails), Content("")]
    lines += [title("WORK"), *_fact_lines(_facts(card, known, now)), Content("")]
    if summed := sum_lines(card):
        lines += [title("CONFIDENCE (weight · value)"), *summed, Content("")]
    return lines


def parameter_lines(parameters: Mapping[str, Any]) -> str:
    """A flow's parameters as `key = value` lines, values as JSON except plain texts."""
    return "\n".join(
        f"{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in parameters.items()
    )


def tier_lines(card: Card) -> list[Content]:
    """Where it stands in the stack and why, with what moved it there."""
    if card.source is Source.OPERATOR:
        return [Content.styled("your own prompts come first", "$grey")]
    style = "bold $wrong" if card.tier is Tier.BROKEN else "bold $ink"
    said = Content.assemble(
        (tier_label(card), style), (f": {card.tier.meaning} (group {int(card.tier)} of 4)", "$grey")
    )
    moved = card.parts.words[len(TERMS) :] if card.parts is not None else ()
    return [said, *(Content.styled(words.one_line(one), "$grey") for one in moved)]


def sum_lines(card: Card) -> list[Content]:
    """The confidence as a sum, each term with its value and where it came from; nothing while none is stated."""
    parts = card.parts
    if parts is None or not card.stated:
        return []
    lines = []
    for number, (name, weight) in enumerate(TERMS):
        value = getattr(parts, name)
        why = parts.words[number] if number < len(parts.words) else ""
        product = (f" = {weight * value:.3f}  ", "$grey")
        said = (f"  {words.one_line(why)}", "$grey")
        lines.append(Content.assemble((f"{weight:.2f} · {value:.2f}", "$ink"), product, (f"{name:<8}", "$faint"), said))
    lines.append(Content.assemble(("sum         = ", "$faint"), (f"{parts.total:.3f}", "bold $ink"),
                                  (f"  {card.band.value}", "$accent")))  # fmt: skip
    return lines


def signal_lines(card: Card) -> list[Content]:
    """All signals with weight, relevance and evidence, including those that found nothing."""
    return [
        Content.assemble(signal_line(one), (f"  {one.weight:.2f} · {one.relevance:.2f}", "$faint"))
        for one in card.signals
    ]


def rail_lines(rails: Sequence[RailVerdict]) -> list[Content]:
    """Each rail with its reason; those that allow without one are one line."""
    signs = {Verdict.ALLOW: ("✓", "$grey"), Verdict.ASK: ("▲", "$wants"), Verdict.BLOCK: ("✗", "$wrong")}
    lines = []
    for one in rails:
        glyph, style = signs[one.verdict]
        if one.reason or one.verdict is not Verdict.ALLOW:
            lines.append(Content.assemble((f"{glyph} {one.rail:<8} ", style), (words.one_line(one.reason), "$grey")))
    plain = [one.rail for one in rails if one.verdict is Verdict.ALLOW and not one.reason]
    return [*lines, Content.styled(f"✓ {', '.join(plain)}: no objection", "$grey")] if plain else lines


def title(text: str) -> Content:
    return Content.styled(text, "bold $faint")


def _fact_lines(facts: Sequence[tuple[str, str]]) -> list[Content]:
    """Name and text of each fact that has a text."""
    return [Content.assemble((f"{name:<10}", "$faint"), (text, "$grey")) for name, text in facts if text]


def _history(card: Card, like: Like | None, known: AppState, now: datetime) -> list[tuple[str, str]]:
    """How you decided cards like it, and how the flow ended in this workspace the last time."""
    flow, workspace = card.assignment.flow, card.assignment.workspace
    same = (one for one in known.sessions if flow and (one.flow, one.workspace) == (flow, workspace))
    last = next((one for one in same if one.state.over), None)
    said = "no card like this decided here yet"
    if like is not None and like[1]:
        said = "approved {} of {} cards like this here".format(*like)
    return [("decisions", said if like is not None else ""), ("last run", result_words(last, now) if last else "")]


def _facts(card: Card, known: AppState, now: datetime) -> list[tuple[str, str]]:
    """What the work is, and what it touches."""
    from engine import kind_title  # not before the first frame

    assignment, served = card.assignment, words.one_line(card.served)
    life = f"made {words.moment(card.created_at, now)}, expires {words.moment(card.expires_at, now)}"
    return [
        ("kind", kind_title(card.kind)),
        ("cost", f"est. {words.money(card.estimate)}" if card.estimate else ""),
        ("runs", f"{assignment.flow or served or assignment.runner}, by {card.agent}"),
        ("commands", served if assignment.flow else ""),
        ("continues", "" if assignment.flow else assignment.parameters.get("continues", "")),
        ("where", assignment.workspace),
        ("changes", words.touches(assignment.flow or "", card.check_only, card.without_sandbox)),
        ("sandbox", known.sandbox or "not tested yet"),
        ("undo", card.undo_note),
        ("source", f"{card.source.value}, {life}"),
    ]

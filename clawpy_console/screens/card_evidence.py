"""The evidence for a card, read from the engine and as fields, for its details and for the pane beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from clawpy_console import formats
from clawpy_console.fields import Field, bar, heading, present_fields, states
from clawpy_console.formats import one_line
from clawpy_console.screens.card_stack import signal_words, tier_label
from clawpy_console.screens.mission_lists import result_words
from clawpy_console.state import AppState
from engine.model import CONFIDENCE_WEIGHTS, Card, RailVerdict, Source, Tier, Verdict

if TYPE_CHECKING:
    from engine import Engine


class Evidence(NamedTuple):
    """The verdicts of the rails on a card now, and the decisions about cards like it; empty until they were read."""

    rails: tuple[RailVerdict, ...] = ()
    """The verdict of each rail."""
    similar: tuple[int, int] | None = None
    """The number of cards like it that you approved, and of those you decided."""


def read_evidence(engine: Engine, card_id: str) -> Evidence:
    """Read the evidence of a card. Blocking: call it in a thread."""
    return Evidence(engine.cards.rails(card_id), engine.cards.similar(card_id))


def evidence_fields(card: Card, evidence: Evidence, state: AppState, now: datetime) -> Iterator[Field]:
    """The evidence for and against `card`."""
    if card.reasoning:
        yield Field("", one_line(card.reasoning), "grey")
    yield heading("place in the stack")
    yield from _place_fields(card)
    yield from present_fields(_history_facts(card, evidence.similar, state, now), "grey")
    if card.signals:  # the operator's own prompt has none
        yield heading(f"signals at {formats.moment(card.created_at, now)} (weight · relevance)")
    for signal in card.signals:
        name, text = signal_words(signal)
        yield Field(name, f"{bar(signal.relevance)} {text}  {signal.weight:.2f} · {signal.relevance:.2f}", "grey")
    if evidence.rails:
        yield heading("rails now")
    yield from _rails_fields(evidence.rails)
    yield heading("work")
    yield from present_fields(_work_facts(card, state, now), "grey")
    yield from _confidence_fields(card)


def parameter_lines(parameters: Mapping[str, Any]) -> str:
    """A flow's parameters as `key = value` lines, values as JSON except plain texts."""
    return "\n".join(
        f"{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in parameters.items()
    )


def _place_fields(card: Card) -> Iterator[Field]:
    """The place of a card in the stack, and the reasons for it."""
    if card.source is Source.OPERATOR:
        yield Field("", "your own prompts come first", "grey")
        return
    place = f"{tier_label(card)}: {card.tier.meaning} (group {int(card.tier)} of 4)"
    yield Field("", place, "wrong" if card.tier is Tier.BROKEN else "ink")
    reasons = card.parts.words[len(CONFIDENCE_WEIGHTS) :] if card.parts is not None else ()
    yield from (Field("", one_line(reason), "grey") for reason in reasons)


def _confidence_fields(card: Card) -> Iterator[Field]:
    """The confidence as a sum of terms, each with its value and its reason; nothing while none is stated."""
    parts = card.parts
    if parts is None or not card.stated:
        return
    yield heading("confidence (weight · value)")
    for number, (name, weight) in enumerate(CONFIDENCE_WEIGHTS.items()):
        value = getattr(parts, name)
        reason = one_line(parts.words[number]) if number < len(parts.words) else ""
        yield Field("", f"{weight:.2f} · {value:.2f} = {weight * value:.3f}  {name:<8}  {reason}", "grey")
    yield Field("", f"sum         = {parts.total:.3f}  {card.band.value}")


def _rails_fields(rails: Sequence[RailVerdict]) -> Iterator[Field]:
    """Each rail with its reason; the rails that allow without a reason share one line."""
    for rail in rails:
        sign, tone = states.VERDICT_SIGNS[rail.verdict]
        if rail.reason or rail.verdict is not Verdict.ALLOW:
            yield Field(rail.rail, f"{sign} {one_line(rail.reason)}", tone)
    if allowing := [rail.rail for rail in rails if rail.verdict is Verdict.ALLOW and not rail.reason]:
        yield Field("", f"✓ {', '.join(allowing)}: no objection", "grey")


def _history_facts(
    card: Card, similar: tuple[int, int] | None, state: AppState, now: datetime
) -> Iterator[tuple[str, str]]:
    """The decisions about cards like it, and the end of the last run of the flow in this workspace."""
    if similar is not None:
        approved, decided = similar
        text = f"approved {approved} of {decided} cards like this here"
        yield "decisions", text if decided else "no card like this decided here yet"
    flow, workspace = card.assignment.flow, card.assignment.workspace
    for session in state.sessions if flow else ():
        if (session.flow, session.workspace) == (flow, workspace) and session.state.over:
            yield "last run", result_words(session, now)
            return


def _work_facts(card: Card, state: AppState, now: datetime) -> list[tuple[str, str]]:
    """The work: its kind, cost, runner and changes. Facts without a text are not shown."""
    from engine import kind_title  # not before the first frame

    assignment, served = card.assignment, one_line(card.served)
    lifetime = f"made {formats.moment(card.created_at, now)}, expires {formats.moment(card.expires_at, now)}"
    return [
        ("kind", kind_title(card.kind)),
        ("cost", f"est. {formats.money(card.estimate)}" if card.estimate else ""),
        ("runs", f"{assignment.flow or served or assignment.runner}, by {card.agent}"),
        ("commands", served if assignment.flow else ""),
        ("continues", "" if assignment.flow else assignment.parameters.get("continues", "")),
        ("where", assignment.workspace),
        ("changes", states.describe_changes(assignment.flow, card.check_only, card.without_sandbox)),
        ("sandbox", state.sandbox or "not tested yet"),
        ("undo", card.undo_note),
        ("source", f"{card.source.value}, {lifetime}"),
    ]

"""Verbs about what was said to a model: the X-ray of a session's calls, a reply to one that runs (SPEC 9.4, 9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.find import find
from engine.api.wire import Document
from engine.model import ModelCall, PromptPart, Refusal, dollars

if TYPE_CHECKING:
    from engine.engine import Engine


def xray(engine: Engine, arguments: Arguments) -> Document:
    """The calls of a session, or of the night after a day as `nightly:2026-01-05`; with `call`, a number from 1 or its
    id, that one's prompt, each line with its source, its trust, and what the content filter has against
    it."""
    named = arguments.needed("id")
    session = None
    if not named.startswith("nightly:"):
        session = find(engine, named).session
        if session is None:
            raise Refusal("no_session", "this card has not run yet", "approve it first: clawpy approve ID")
        named = session.id
    calls = engine.calls.for_session(named)
    document: Document = {"id": named, "session": wire.session(session), "calls": [call(one) for one in calls]}
    wanted = arguments.anything("call")
    if wanted is None:
        return document
    one = _chosen(calls, wanted, named)
    document["call"] = call(one)
    parts = engine.calls.prompt(one.id)
    document["prompt"] = [_part(part, said) for part, said in zip(parts, engine.objections(parts), strict=True)]
    document["reply"] = engine.calls.reply(one.id)
    return document


def reply(engine: Engine, arguments: Arguments) -> Document:
    """Tell a running session something."""
    found = find(engine, arguments.needed("id"), see="clawpy work")
    session = found.session
    if session is None:
        raise Refusal("no_session", "this card has not run yet", f"clawpy approve {found.card_id} runs it")
    engine.sessions.reply(session.id, arguments.needed("text"))
    return {"session": wire.session(engine.sessions.get(session.id))}


def call(one: ModelCall) -> Document:
    """A call without its prompt."""
    return {
        "id": one.id,
        "session": one.session_id,
        "targetAgent": one.agent,
        "provider": one.provider,
        "model": one.model,
        "runKind": one.run_kind,
        "state": one.state,
        "startedAt": wire.instant(one.started_at),
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "inputTokens": one.input_tokens,
        "outputTokens": one.output_tokens,
        "cost": dollars(one.cost),
        "priceKnown": one.price_known,
        "error": one.error,
        "follows": one.follows,
        "notes": list(one.notes),
        "provenance": dict(one.provenance),
    }


def _part(part: PromptPart, objections: Sequence[str]) -> Document:
    return {
        "name": part.name,
        "role": part.role,
        "tokens": part.tokens,
        "lines": [
            {
                "text": line.text,
                "source": line.source.kind.value,
                "ref": line.source.ref,
                "label": line.source.label,
                "trust": line.source.standing,
                "hostile": hostile,
            }
            for line, hostile in zip(part.lines, objections, strict=True)
        ],
    }


def _chosen(calls: list[ModelCall], wanted: object, session_id: str) -> ModelCall:
    number = wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None
    if isinstance(wanted, str):
        for one in calls:
            if one.id == wanted:
                return one
        number = int(wanted) if wanted.isdecimal() and len(wanted) < 9 else None
    if number is None or not 1 <= number <= len(calls):
        many = f"it made {len(calls)}" if calls else "it made no model calls: a flow runs without a model"
        raise Refusal("unknown_call", f"{session_id} has no such call; {many}", "count from 1: clawpy xray ID --call 1")
    return calls[number - 1]

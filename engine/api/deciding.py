"""The verbs of what the operator decides about memory (SPEC 4.8, 4.10): drafts of facts, forgetting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.find import match
from engine.api.wire import Document
from engine.memory.drafts import Drafts
from engine.model import FactDraft, ParaFact, Refusal, sanitise

if TYPE_CHECKING:
    from engine.engine import Engine

SHOWN = 200
"""So many drafts are shown; the longest waiting first."""


def drafts(engine: Engine, arguments: Arguments) -> Document:
    """list what waits; promote one to a fact, in the words of `edit` if there are any; dismiss one for good."""
    action = arguments.choice("action", ("list", "promote", "dismiss"), "list")
    book = engine.memory.drafts
    waiting = book.waiting(SHOWN)
    if action == "list":
        return {"drafts": [_draft(one) for one in waiting]}
    named = arguments.needed("id")
    # One that was decided is known by its whole id: the same verb again says what became of it.
    decided = [named] if _there(book, named) else []
    wanted = match(named, [*decided, *(one.id for one in waiting)], what="draft", see="clawpy drafts list")
    if action == "promote":
        fact = book.promote(wanted, edit=arguments.text("edit"))
        return {"drafts": [_draft(book.get(wanted))], "fact": _fact(fact)}
    return {"drafts": [_draft(book.reject(wanted))]}


def forget(engine: Engine, arguments: Arguments) -> Document:
    """What forgetting an id or words would touch; with `yes` it is done, and cannot be taken back.

    Raises `Refusal`: `nothing_found`, and as `Forget.forget`.
    """
    what = arguments.needed("what")
    preview = engine.memory.forget_preview(what)
    if not preview.total:
        raise Refusal(
            "nothing_found",
            f"nothing contains “{sanitise(what)[:80]}”",
            "give the full id of an entry, or its exact words",
        )
    found: Document = {
        "forgotten": False,
        "wanted": list(preview.wanted),
        "counts": dict(preview.counts),
        "places": [{"store": one.store, "id": one.id, "text": one.excerpt} for one in preview.places],
        "left": list(preview.left),
    }
    if not arguments.flag("yes"):
        return found
    report = engine.memory.forget(preview.wanted)
    return found | {"forgotten": True, "counts": dict(report.counts), "left": list(report.left)}


def _there(book: Drafts, draft_id: str) -> bool:
    try:
        return bool(book.get(draft_id))
    except Refusal:
        return False


def _draft(one: FactDraft) -> Document:
    return {
        "id": one.id,
        "state": one.state,
        "fact": one.fact,
        "category": one.category,
        "bucket": one.bucket.value,
        "group": one.group,
        "reason": one.reason,
        "source": one.source,
        "workspace": one.workspace,
        "day": one.day,
        "createdAt": wire.instant(one.created_at),
        "supersedes": one.supersedes,
        "factId": one.fact_id,
    }


def _fact(one: ParaFact) -> Document:
    return {
        "id": one.id,
        "fact": one.fact,
        "category": one.category,
        "source": one.source,
        "status": "active" if one.active else "superseded",
        "bucket": one.bucket.value,
        "group": one.group,
        "workspace": one.workspace,
    }

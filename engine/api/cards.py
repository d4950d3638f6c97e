"""The verbs of cards: predict, cards, propose, approve, dismiss, muted, snooze, undo (SPEC 9.8)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.find import channel, find, match
from engine.api.wire import Document
from engine.api.working import TAIL, shown, with_transcript
from engine.model import Card, DecidedBy, DismissReason, Refusal, Status

if TYPE_CHECKING:
    from engine.engine import Engine


def predict(engine: Engine, arguments: Arguments) -> Document:
    """One cycle now; then what is pending."""
    workspaces = arguments.texts("workspaces") or list(engine.workspaces)
    known = engine.ledger.latest(1)
    report = engine.predictions.run_cycle(workspaces=workspaces, requested=True)
    faults = engine.ledger.latest(50, kinds=("FaultReported",))
    new = [one for one in reversed(faults) if not known or one.id > known[0].id]  # such as lines that nobody can read
    return _pending(engine, workspaces, arguments) | {
        "created": [one.id for one in report.created],
        "withdrawn": list(report.withdrawn),
        "errors": [*report.errors, *(f"{one.payload['where']}: {one.payload['message']}" for one in new)],
        "seconds": round(report.seconds, 3),
    }


def cards(engine: Engine, arguments: Arguments) -> Document:
    """What is pending in the workspaces (all of them when none is named), or with `all` the latest of any status.

    Of workspaces that were not asked for, `elsewhere` counts what is pending, by workspace, where there is any.
    """
    if arguments.flag("all"):
        limit = int(arguments.number("limit", 50, least=1, most=1000))
        workspaces, wanted = arguments.texts("workspaces"), channel(engine, arguments.maybe("channel"))
        recent = [
            one
            for one in engine.cards.recent(limit)
            if (not workspaces or one.assignment.workspace in workspaces) and wanted in (None, one.assignment.channel)
        ]
        return {"predictions": [wire.card(one) for one in recent]}
    return _pending(engine, arguments.texts("workspaces"), arguments)


def _pending(engine: Engine, workspaces: list[str], arguments: Arguments) -> Document:
    wanted = channel(engine, arguments.maybe("channel"))
    known = engine.cards.pending(channel=wanted, include_snoozed=arguments.flag("snoozed"))
    pending = [one for one in known if not workspaces or one.assignment.workspace in workspaces]
    places = [one.assignment.workspace for one in known]
    elsewhere = Counter(one for one in places if workspaces and one not in workspaces)
    if arguments.flag("shown"):
        # What was listed may later count as passed over (SPEC 2.9).
        engine.cards.mark_shown([one.id for one in pending])
    found: Document = {"predictions": [wire.card(one) for one in pending]}
    return found | {"elsewhere": dict(elsewhere.most_common())} if elsewhere else found


def propose(engine: Engine, arguments: Arguments) -> Document:
    """A card of the operator's own; with `continues`, one that goes on with a finished session."""
    named = arguments.maybe("continues")
    former = find(engine, named).session if named is not None else None
    if named is not None and former is None:
        raise Refusal("no_session", "this card has not run yet", "there is nothing to continue")
    one = engine.cards.propose(
        arguments.needed("text"),
        workspace=former.workspace if former else arguments.needed("workspace"),
        channel=arguments.maybe("channel"),
        continues=former.id if former else "",
    )
    return {"predictions": [wire.card(one)]}


def approve(engine: Engine, arguments: Arguments) -> Document:
    """Approve and start; with `wait` answer when the session has ended."""
    found = find(engine, arguments.needed("id"))
    one = engine.cards.approve(
        found.card_id,
        edit=arguments.maybe("edit"),
        parameters=arguments.mapping("parameters"),
        without_sandbox=arguments.flag("withoutSandbox"),
    )
    if not arguments.flag("wait") or one.session_id is None:
        return _about(engine, found.card_id)
    engine.sessions.wait(one.session_id, None)
    return with_transcript(engine, find(engine, found.card_id), TAIL)


def dismiss(engine: Engine, arguments: Arguments) -> Document:
    """Turn a card down; of one that was turned down already, say why."""
    card_id = find(engine, arguments.needed("id")).card_id
    said = arguments.choice("reason", ("", *DismissReason), "")
    return told(engine, turn_down(engine, card_id, DismissReason(said) if said else None))


def turn_down(
    engine: Engine, card_id: str, reason: DismissReason | None, *, by: DecidedBy = DecidedBy.OPERATOR
) -> Card:
    """Dismiss a card; of one that was dismissed already, say why."""
    if reason is not None and engine.cards.get(card_id).status is Status.REJECTED:
        return engine.cards.explain(card_id, reason)
    return engine.cards.dismiss(card_id, reason=reason, by=by)


def muted(engine: Engine, arguments: Arguments) -> Document:
    """list what stays away because it was dismissed; lift one, so that it may come back."""
    if arguments.choice("action", ("list", "lift"), "list") == "list":
        return {"muted": [wire.mute(one) for one in engine.cards.muted()]}
    known = [one.id for one in engine.cards.muted()]
    mute_id = match(arguments.needed("id"), known, what="mute", see="clawpy muted")
    return {"muted": [wire.mute(engine.cards.lift(mute_id))]}


def snooze(engine: Engine, arguments: Arguments) -> Document:
    """Put a card off, 2 h unless said."""
    card_id = find(engine, arguments.needed("id")).card_id
    seconds = arguments.number("seconds", 7200, least=1, most=30 * 86400)
    engine.cards.snooze(card_id, span=timedelta(seconds=seconds))
    return _about(engine, card_id)


def undo(engine: Engine, arguments: Arguments) -> Document:
    """Take back a decision, end its session, or reverse its landing (SPEC 2.7)."""
    card_id = find(engine, arguments.needed("id")).card_id
    engine.cards.undo(card_id)
    return _about(engine, card_id)


def told(engine: Engine, card: Card) -> Document:
    """A card that was decided, with what the decision itself had to say."""
    found = _about(engine, card.id)
    return found | {"prediction": found["prediction"] | {"note": card.note}} if card.note else found


def _about(engine: Engine, card_id: str) -> Document:
    return shown(find(engine, card_id))

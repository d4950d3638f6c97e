"""Operations on cards and tasks: predict, cards, propose, approve, dismiss, muted, snooze, undo, tasks (SPEC 2,
9.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from engine.api.documents import (
    SHOWN_TRANSCRIPT_LINES,
    Document,
    check_channel,
    document,
    document_with_transcript,
    find_target,
    match_prefix,
    target_document,
)
from engine.api.operations.operation import Limit, NonEmptyText, Seconds, Text, operation, require
from engine.model import Card, DecidedBy, DismissReason, Refusal, Status

if TYPE_CHECKING:
    from engine.services import Services

Reason = Annotated[DismissReason, Field(strict=False)]


@operation(marks_presence=True)
def predict(
    engine: Services,
    workspaces: Sequence[str] = (),
    channel: Text | None = None,
    snoozed: bool = False,
    shown: bool = False,
) -> Document:
    """Check for new cards now, then return those that are pending."""
    workspaces = list(workspaces) or list(engine.workspaces)
    latest = engine.ledger.latest(1)
    report = engine.predictions.run_cycle(workspaces=workspaces, requested=True)
    faults = engine.ledger.latest(50, kinds=("FaultReported",))
    new = [
        fact for fact in reversed(faults) if not latest or fact.id > latest[0].id
    ]  # such as lines that nobody can read
    return _pending_document(engine, workspaces, channel, snoozed=snoozed, shown=shown) | {
        "created": [card.id for card in report.created],
        "withdrawn": list(report.withdrawn),
        "errors": [*report.errors, *(f"{fact.payload['where']}: {fact.payload['message']}" for fact in new)],
        "seconds": round(report.seconds, 3),
    }


@operation()
def cards(
    engine: Services,
    workspaces: Sequence[str] = (),
    channel: Text | None = None,
    snoozed: bool = False,
    all: bool = False,
    limit: Limit = 50,
    shown: bool = False,
) -> Document:
    """The cards that are pending in the workspaces (all when none is named), or with `all` the latest of any status.

    `elsewhere` counts pending cards of other workspaces, if there are any.
    """
    if not all:
        return _pending_document(engine, workspaces, channel, snoozed=snoozed, shown=shown)
    channel_name = check_channel(engine, channel)
    recent = [
        card
        for card in engine.cards.recent(limit)
        if (not workspaces or card.assignment.workspace in workspaces)
        and channel_name in (None, card.assignment.channel)
    ]
    return {"predictions": document(recent)}


def _pending_document(
    engine: Services, workspaces: Sequence[str], channel: str | None, *, snoozed: bool, shown: bool
) -> Document:
    pending = engine.cards.pending(channel=check_channel(engine, channel), include_snoozed=snoozed)
    shown_cards = [card for card in pending if not workspaces or card.assignment.workspace in workspaces]
    workspaces_of_cards = [card.assignment.workspace for card in pending]
    elsewhere = Counter(place for place in workspaces_of_cards if workspaces and place not in workspaces)
    if shown:
        # What was listed may later count as passed over (SPEC 2.9).
        engine.cards.mark_shown([card.id for card in shown_cards])
    reply: Document = {"predictions": document(shown_cards)}
    return reply | {"elsewhere": dict(elsewhere.most_common())} if elsewhere else reply


@operation(marks_presence=True)
def propose(
    engine: Services,
    text: NonEmptyText,
    workspace: Text = "",
    channel: Text | None = None,
    continues: Text | None = None,
) -> Document:
    """Make a card of your own; with `continues` one that continues a finished session."""
    former = find_target(engine, continues).session if continues is not None else None
    if continues is not None and former is None:
        raise Refusal("no_session", "this card has not run yet", "there is nothing to continue")
    card = engine.cards.propose(
        text,
        workspace=former.workspace if former else require("workspace", workspace),
        channel=channel,
        continues=former.id if former else "",
    )
    return {"predictions": [document(card)]}


@operation(marks_presence=True)
def approve(
    engine: Services,
    id: NonEmptyText,
    edit: Text | None = None,
    parameters: dict[str, Any] | None = None,
    wait: bool = False,
    without_sandbox: bool = False,
    *,
    decided_by: DecidedBy,
) -> Document:
    """Approve a card and start it; with `wait` return when its session has ended. `edit` is another prompt, or
    `KEY=VALUE` parameters of a flow; `parameters` are the latter as data. `withoutSandbox` confirms that it runs
    unconfined, which a card that says `needsConfirmation` needs."""
    target = find_target(engine, id)
    card = engine.cards.approve(
        target.card_id, edit=edit, parameters=parameters, by=decided_by, without_sandbox=without_sandbox
    )
    if not wait or card.session_id is None:
        return _decision_document(engine, card)
    engine.sessions.wait(card.session_id, None)
    return document_with_transcript(engine, find_target(engine, target.card_id), SHOWN_TRANSCRIPT_LINES)


@operation(marks_presence=True)
def dismiss(
    engine: Services, id: NonEmptyText, reason: Reason | Literal[""] | None = "", *, decided_by: DecidedBy
) -> Document:
    """Dismiss a card, or give the reason for an earlier dismissal. It is learned from; `never-here` and
    `never-anywhere` switch the kind of card off."""
    card_id = find_target(engine, id).card_id
    if reason and engine.cards.get(card_id).status is Status.REJECTED:
        return _decision_document(engine, engine.cards.explain(card_id, reason))
    return _decision_document(engine, engine.cards.dismiss(card_id, reason=reason or None, by=decided_by))


@operation(marks_presence=True)
def muted(engine: Services, action: Literal["list", "lift"] = "list", id: Text = "") -> Document:
    """List muted subjects, or unmute one."""
    mutes = engine.cards.muted()
    if action == "lift":
        mutes = [
            engine.cards.lift(
                match_prefix(require("id", id), [mute.id for mute in mutes], what="mute", see="clawpy muted")
            )
        ]
    return {"muted": document(mutes)}


@operation(marks_presence=True)
def snooze(engine: Services, id: NonEmptyText, seconds: Seconds = 7200) -> Document:
    """Show a card again later, after 2 hours by default."""
    card_id = find_target(engine, id).card_id
    return _decision_document(engine, engine.cards.snooze(card_id, span=timedelta(seconds=seconds)))


@operation(marks_presence=True)
def undo(engine: Services, id: NonEmptyText) -> Document:
    """Undo a decision, end its session, or reverse its landing (SPEC 2.7)."""
    return _decision_document(engine, engine.cards.undo(find_target(engine, id).card_id))


def _decision_document(engine: Services, card: Card) -> Document:
    """A card that was decided, with the note of the decision."""
    reply = target_document(find_target(engine, card.id))
    return reply | {"prediction": reply["prediction"] | {"note": card.note}} if card.note else reply


@operation(marks_presence=True)
def tasks(
    engine: Services,
    action: Literal["list", "add", "done"] = "list",
    id: Text = "",
    title: Text = "",
    channel: Text | None = None,
    workspace: Text | None = None,
    needs: Sequence[str] = (),
    state: Literal["open", "running", "done", "failed"] | None = None,
    limit: Limit = 100,
) -> Document:
    """List tasks, add one, or mark one done."""
    if action == "add":
        where = check_channel(engine, channel) or ""
        return {
            "task": document(
                engine.tasks.add(require("title", title), channel=where, workspace=workspace or "", needs=list(needs))
            )
        }
    if action == "done":
        return {"task": document(engine.tasks.done(require("id", id)))}
    return {"tasks": document(engine.tasks.list(workspace=workspace, state=state, limit=limit))}

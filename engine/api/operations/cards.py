"""Operations on cards: predict, cards, propose, approve, dismiss, muted, snooze, undo (SPEC 2, 9.8); for phones,
scripts and agents: latest, trigger, twin, suggest (SPEC 10.1, 10.4).

A trigger without a card's id comes from a program, so it passes every rail like work that runs by itself (SPEC 3.1). A
card that an agent suggests waits like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from engine.api.documents import Document, document
from engine.api.operations import (
    ACCEPT_WHOLE_FLOAT,
    SHOWN_TRANSCRIPT_LINES,
    Limit,
    NonEmptyText,
    Seconds,
    Text,
    find_target,
    make_document_with_transcript,
    match_prefix,
    operation,
    quiet_operation,
    require_argument,
    require_channel,
)
from engine.api.operations.memory import parse_agent_name
from engine.api.operations.system import cross_poll_status, list_problems, make_reply_head
from engine.model import Card, DecidedBy, DismissReason, NoAnswer, Refusal, Status
from engine.prediction.predictors import UnusableReply
from engine.text import one_line, sanitise

if TYPE_CHECKING:
    from engine.services import Services

ReasonArgument = Annotated[DismissReason, Field(strict=False)]

MAX_LISTED_FAULTS = 50
"""Maximum number of new faults that `predict` lists."""

TRIGGER_SOURCE = "gateway"
"""The start of links for triggers from programs, in the loop rail (SPEC 3.3)."""

MAX_REASON_CHARS = 500
"""Maximum length of the reason for a suggested card."""

HINT_REASONING = "requested over the gateway"
"""The reasoning on a card that is made for the hint of a program."""


@operation
def predict(
    engine: Services,
    workspaces: Sequence[str] = (),
    channel: Text | None = None,
    snoozed: bool = False,
    shown: bool = False,
) -> Document:
    """Check for new cards now, then return those that are pending."""
    workspaces = list(workspaces) or list(engine.workspaces)
    last_event_id = max((event.id for event in engine.ledger.read_newest(1)), default=0)
    report = engine.checks.run(workspaces=workspaces, requested=True)
    return _make_pending_document(engine, workspaces, channel, snoozed=snoozed, shown=shown) | {
        "created": [card.id for card in report.created],
        "withdrawn": list(report.withdrawn),
        "errors": [*report.errors, *_describe_faults_since(engine, last_event_id)],
        "seconds": round(report.seconds, 3),
    }


@quiet_operation
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

    `elsewhere` counts pending cards of other workspaces, if there are any. Without cards `problems` says what is known
    of the workspaces.
    """
    if not all:
        return _make_pending_document(engine, workspaces, channel, snoozed=snoozed, shown=shown)
    recent = engine.cards.list_recent(limit, workspaces=workspaces, channel=require_channel(engine, channel))
    return {"predictions": document(recent)}


@operation
def propose(
    engine: Services,
    text: NonEmptyText,
    workspace: Text = "",
    channel: Text | None = None,
    continues: Text | None = None,
) -> Document:
    """Make a card of your own; with `continues` one that continues a finished session. A text that nothing can run yet
    says so in its `note`."""
    former_session = find_target(engine, continues).session if continues is not None else None
    if continues is not None and former_session is None:
        raise Refusal("no_session", "this card has not run yet", "there is nothing to continue")
    card = engine.cards.propose(
        text,
        workspace=former_session.workspace if former_session else workspace,
        channel=channel,
        continues=former_session.id if former_session else "",
    )
    return {"predictions": [document(card)]}


@operation
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
    """Approve a card and start it. `edit` is another prompt, or `KEY=VALUE` parameters of a flow; `parameters` are the
    latter as data. `withoutSandbox` confirms that it runs unconfined, which a card that says `needsConfirmation` needs.
    """
    target = find_target(engine, id)
    card = engine.cards.approve(
        target.card_id, edit=edit, parameters=parameters, by=decided_by, without_sandbox=without_sandbox
    )
    if not wait or card.session_id is None:
        return _make_decision_document(engine, card)
    engine.sessions.wait(card.session_id, None)
    return make_document_with_transcript(engine, find_target(engine, card.session_id), SHOWN_TRANSCRIPT_LINES)


@operation
def dismiss(
    engine: Services, id: NonEmptyText, reason: ReasonArgument | Literal[""] | None = "", *, decided_by: DecidedBy
) -> Document:
    """Dismiss a card, or give the reason for an earlier dismissal. It is learned from; `never-here` and
    `never-anywhere` switch the kind of card off."""
    card_id = find_target(engine, id).card_id
    if reason and engine.cards.get(card_id).status is Status.DISMISSED:
        return _make_decision_document(engine, engine.cards.explain(card_id, reason))
    return _make_decision_document(engine, engine.cards.dismiss(card_id, reason=reason or None, by=decided_by))


@operation
def muted(engine: Services, action: Literal["list", "unmute"] = "list", id: Text = "") -> Document:
    """List muted subjects, or unmute one."""
    mutes = engine.cards.list_mutes()
    if action == "unmute":
        ids = [mute.id for mute in mutes]
        mute_id = match_prefix(require_argument("id", id), ids, what="mute", see="clawpy muted")
        mutes = [engine.cards.unmute(mute_id)]
    return {"muted": document(mutes)}


@operation
def snooze(engine: Services, id: NonEmptyText, seconds: Seconds = 7200) -> Document:
    """Show a card again later, after 2 hours by default."""
    card_id = find_target(engine, id).card_id
    return _make_decision_document(engine, engine.cards.snooze(card_id, span=timedelta(seconds=seconds)))


@operation
def undo(engine: Services, id: NonEmptyText) -> Document:
    """Undo a decision, end its session, or reverse its landing (SPEC 2.7)."""
    return _make_decision_document(engine, engine.cards.undo(find_target(engine, id).card_id)[0])


def _make_pending_document(
    engine: Services, workspaces: Sequence[str], channel: str | None, *, snoozed: bool, shown: bool
) -> Document:
    pending = engine.cards.list_pending(channel=require_channel(engine, channel), include_snoozed=snoozed)
    selected_cards: list[Card] = []
    elsewhere: Counter[str] = Counter()
    for card in pending:
        if not workspaces or card.assignment.workspace in workspaces:
            selected_cards.append(card)
        else:
            elsewhere[card.assignment.workspace] += 1
    if shown:
        # Cards that a person saw may later count as passed over (SPEC 2.9).
        engine.cards.mark_shown([card.id for card in selected_cards])
    reply: Document = {"predictions": document(selected_cards)}
    if elsewhere:
        reply["elsewhere"] = dict(elsewhere.most_common())
    if not selected_cards and (problems := list_problems(engine, workspaces)):
        reply["problems"] = problems
    return reply


def _describe_faults_since(engine: Services, event_id: int) -> list[str]:
    """The faults that were reported after an event, for instance that a line of a predictor cannot be read."""
    newest_first = engine.ledger.read_newest(MAX_LISTED_FAULTS, kinds=("FaultReported",))
    new_faults = [fault.payload for fault in reversed(newest_first) if fault.id > event_id]
    return [f"{fault['where']}: {fault['message']}" for fault in new_faults]


def _make_decision_document(engine: Services, card: Card) -> Document:
    """A card that was decided, with the note of the decision."""
    reply = find_target(engine, card.id).document()
    return reply | {"prediction": reply["prediction"] | {"note": card.note}} if card.note else reply


# -- phones, scripts, agents


class ChatMessage(BaseModel, extra="forbid", strict=True):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=4_000)]


@quiet_operation
def latest(
    engine: Services,
    count: Limit = 3,
    channel: Annotated[str, Field(min_length=1, max_length=100, examples=["koji-core"])] | None = None,
    shown: bool = False,
) -> Document:
    """Pending predictions, best first. `shown`: a person looks at them, so they may later count as passed over."""
    pending = engine.cards.list_pending(channel=require_channel(engine, channel))[:count]
    if shown:
        engine.cards.mark_shown([card.id for card in pending])
    return {"predictions": document(pending), "count": len(pending), **make_reply_head(engine)}


@quiet_operation
def trigger(
    engine: Services,
    target_channel: Text | None = None,
    hint: NonEmptyText | None = None,
    force: bool = False,
    prediction_id: Text | None = None,
    from_channel: Text | None = None,
    workspace: Text | None = None,
    *,
    decided_by: DecidedBy,
) -> Document:
    """With `predictionId` that card is approved, by you. Without it a program asks: the card that says `hint` (made, if
    there is none), or else the best one, is run if every rail lets it; `force` skips the rate alone. With `fromChannel`
    an agent asks that works on that channel, and is no approval either: what goes in circles is stopped."""
    channel = require_channel(engine, target_channel)
    require_channel(engine, from_channel)
    card = (
        _choose_card(engine, hint, channel, workspace)
        if prediction_id is None
        else _get_described_card(engine, prediction_id, hint, channel)
    )
    if card is None:
        where = f" for #{channel}" if channel else ""
        return _make_trigger_document(engine, None, channel, f"nothing to propose{where} now")
    if prediction_id is not None and from_channel is None:
        engine.autonomy.note_activity()
        start = partial(engine.cards.approve, card.id, by=decided_by)
    else:
        start = partial(engine.cards.trigger, card.id, force=force, by=from_channel or TRIGGER_SOURCE)
    return _make_trigger_document(engine, card.id, channel, _try_to_start(start))


@quiet_operation
def twin(
    engine: Services,
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=10)],
    model: Annotated[str, Field(max_length=200)] | None = None,
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.3,
    max_tokens: Annotated[int, Field(ge=1, le=200, alias="max_tokens"), ACCEPT_WHOLE_FLOAT] = 200,
) -> Document:
    """The single most valuable action to take right now, as the Twin sees it (SPEC 2.3): the answer of the configured
    model within every cap, else the best card. What `user` says is the situation; the engine uses its own instruction
    in place of `system`."""
    model_id = engine.model_twin.model_id if engine.settings.current.twin_model_enabled else ""
    if model is not None and (not model_id or model not in (model_id, model_id.partition(":")[2])):
        message = f"the Twin model is {model_id}" if model_id else "no Twin model is enabled"
        raise Refusal("another_model", message, "leave `model` out")
    if model_id:
        situation = "\n\n".join(message.content for message in messages if message.role == "user")
        try:
            reply = engine.model_twin.predict(model_id, situation, temperature=temperature, max_tokens=max_tokens)
            return {"model": model_id, "source": "twin-model", **reply.model_dump()}
        except (NoAnswer, UnusableReply):
            pass  # if the model cannot be asked, the best card is the answer (SPEC 2.3), as in a cycle
    best = next(iter(engine.cards.list_pending()), None)
    if best is None:
        raise Refusal("nothing_to_predict", "nothing to propose now", "trigger a cycle first")
    return {
        "model": best.source.value,
        "source": best.source.value,
        "prompt": best.assignment.prompt,
        "channel": best.assignment.channel,
        "confidence": round(best.confidence, 4),
        "reasoning": best.reasoning,
    }


@quiet_operation
def suggest(
    engine: Services,
    text: NonEmptyText,
    by: NonEmptyText,
    workspace: NonEmptyText,
    reason: Text = "",
    channel: Text | None = None,
) -> Document:
    """Make a card with `text`, suggested `by` an agent; the same text again returns the pending card."""
    name = parse_agent_name(by)
    if (pending := _find_pending_card(engine, text, workspace)) is not None:
        return {"predictions": [document(pending)], "new": False}
    reason = one_line(reason)[:MAX_REASON_CHARS]
    reasoning = f"suggested by {name}" + (f": {reason}" if reason else "")
    card = engine.cards.suggest(text, workspace=workspace, channel=channel, reasoning=reasoning)
    return {"predictions": [document(card)], "new": True}


def _get_described_card(engine: Services, card_id: str, hint: str | None, channel: str | None) -> Card:
    """The card of an id. Raises `Refusal` `another_card` if its prompt or channel is not that of the request."""
    card = engine.cards.get(card_id)
    work = card.assignment
    if channel not in (None, work.channel) or hint not in (None, work.prompt):
        message = f"{card.id} is “{work.prompt}” on {work.channel}"
        raise Refusal("another_card", message, "read it again, then approve it")
    return card


def _choose_card(engine: Services, hint: str | None, channel: str | None, workspace: str | None) -> Card | None:
    """The card of the hint, else the best card after a check for new ones."""
    if hint:
        return _find_card_of_hint(engine, hint, channel, workspace)
    engine.checks.run(requested=True)
    return next(iter(engine.cards.list_pending(channel=channel)), None)


def _try_to_start(start: Callable[[], object]) -> str:
    """Start a card by calling `start`. Returns why it stays pending, "" if it does not."""
    try:
        start()
    except Refusal as refusal:
        if refusal.code not in ("blocked", "needs_acknowledgement", "no_runner"):
            raise
        return f"it is pending as a card: {refusal.message}"
    return ""


def _find_card_of_hint(engine: Services, hint: str, channel: str | None, workspace: str | None) -> Card:
    if workspace is not None and workspace not in engine.workspaces:
        watched = ", ".join(map(sanitise, engine.workspaces))
        fix = f"one of {watched}" if watched else "start clawpy in a git repository"
        raise Refusal("unknown_workspace", f"{sanitise(workspace)} is not watched", fix)
    watched_workspace = workspace or next(iter(engine.workspaces), None)
    if watched_workspace is None:
        raise Refusal("unknown_workspace", "no workspace is watched", "start clawpy in a git repository")
    return _find_pending_card(engine, hint, watched_workspace, channel) or engine.cards.suggest(
        hint, workspace=watched_workspace, channel=channel, reasoning=HINT_REASONING
    )


def _find_pending_card(engine: Services, text: str, workspace: str, channel: str | None = None) -> Card | None:
    """The pending card that has `text` as its prompt, on a channel, by default on any; None if there is none."""
    prompt = sanitise(text).strip()
    for card in engine.cards.list_pending(include_snoozed=True):
        work = card.assignment
        if (work.prompt, work.workspace) == (prompt, workspace) and channel in (None, work.channel):
            return card
    return None


def _make_trigger_document(engine: Services, card_id: str | None, channel: str | None, obstacle: str) -> Document:
    target: Document = {"prediction": None, "session": None}
    if card_id:
        target = find_target(engine, card_id).document()
        channel = target["prediction"]["targetChannel"]
    return {
        "triggered": not obstacle,
        "prediction": target["prediction"],
        "targetChannel": channel,
        "message": obstacle or f"Cross-pollination prompt started on #{channel}",
        "session": target["session"],
        "status": cross_poll_status(engine),
    }

"""Facts of the ledger as messages of `/pulse` (SPEC 10.1), each with the id of its fact, from which a client
resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.api import crosspoll
from engine.api.documents import Document, document, instant
from engine.model import Refusal
from engine.storage.ledger import LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

HELD_STATES = frozenset({"PAUSED", "DISABLED"})
"""States of SPEC 7.1 in which nothing runs by itself."""

STATUS_FACT_KINDS = frozenset(
    {
        "StateChanged",
        "HoldPlaced",
        "HoldLifted",
        "SettingChanged",
        "CycleFinished",
        "CostSettled",
        "CostReserved",
        "LoopDetected",
        "PredictionCreated",
        "PredictionConfirmed",
        "PredictionRejected",
        "PredictionSnoozed",
        "PredictionExpired",
        "PredictionReopened",
        "PredictionExecuted",
    }
)
"""Facts after which `crossPollStatus` may have changed; it is sent once for all that came together."""


def status_message(engine: Services, event_id: int) -> Document:
    """The message with the present status."""
    now = instant(engine.clock.now())
    return {"type": "crosspoll.status", "id": event_id, "at": now, "status": crosspoll.status(engine)}


def messages(engine: Services, facts: Sequence[LedgerEntry]) -> list[tuple[int, str]]:
    """The messages of these facts, each with its id, serialised."""
    return [(fact.id, serialise(message)) for fact in facts for message in _messages_of(engine, fact)]


def serialise(document: Mapping[str, Any]) -> str:
    """A message as it is sent."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def join_messages(texts: Sequence[str], last: int) -> str:
    """One frame: a single message, or several as a batch."""
    return texts[0] if len(texts) == 1 else f'{{"type":"batch","id":{last},"events":[{",".join(texts)}]}}'


def _messages_of(engine: Services, fact: LedgerEntry) -> Iterable[Document]:
    about: dict[str, Any] = {"id": fact.id, "at": instant(fact.at)}
    if fact.kind in ("PredictionCreated", "PredictionReopened"):
        try:
            card = engine.cards.get(fact.subject)
        except Refusal:
            return
        yield {"type": "prediction.new", **about, "prediction": document(card)}
    elif fact.kind == "PredictionExecuted":
        yield {"type": "prediction.executed", **about, **_execution_document(engine, fact)}
    elif fact.kind == "PredictionExpired":
        payload = fact.payload
        yield {
            "type": "prediction.expired",
            **about,
            "predictionId": fact.subject,
            "withdrawn": payload["withdrawn"],
            "reason": payload["reason"],
        }
    elif fact.kind == "StateChanged":
        was_held, is_held = fact.payload["before"] in HELD_STATES, fact.payload["after"] in HELD_STATES
        if is_held:
            yield {"type": "crosspoll.paused", **about, "reason": _hold_reason(engine, fact.payload["cause"])}
        elif was_held:
            yield {"type": "crosspoll.resumed", **about}


def _hold_reason(engine: Services, cause: str) -> str:
    """Why nothing runs, in the words of the active hold."""
    return next((hold.reason for hold in engine.safety.holds()), cause)


def _execution_document(engine: Services, fact: LedgerEntry) -> Document:
    result: Document = {"outcome": fact.payload["outcome"], "session": None, "summary": "", "cost": 0.0}
    task = None
    try:
        card = engine.cards.get(fact.subject)
        task = card.task_id
        if card.session_id is not None:
            session = engine.sessions.get(card.session_id)
            session_document = document(session)
            result |= {
                "session": session.id,
                "summary": session.summary,
                "cost": session_document["cost"],
                "error": session_document["error"],
            }
    except Refusal:
        pass  # what is gone meanwhile is told as far as it is known
    return {"predictionId": fact.subject, "taskId": task, "result": result}

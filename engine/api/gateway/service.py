"""The logic behind the routes and RPC methods; it has no rules of its own.

A decision over the gateway is yours (`decided_by` "api", SPEC 2.7): only you have the token. A trigger without a card's
id comes from a program, so it passes every rail like work that runs by itself (SPEC 3.1).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from engine.api import documents
from engine.api.documents import Document, check_channel, document, find_target, instant, target_document
from engine.api.gateway.models import ConfigBody, ConfirmBody, TriggerBody, TwinBody
from engine.api.operations.cards import decision_document, dismiss_card
from engine.model import Card, DecidedBy, DismissReason, NoAnswer, Refusal, sanitise
from engine.prediction.predictors import UnusableReply

if TYPE_CHECKING:
    from engine.services import Services

TRIGGER_SOURCE = "gateway"
"""The source of triggers from programs, for the loop rail (SPEC 3.3)."""

CARD_REASONING = "requested over the gateway"

RUN_SETTINGS = {
    "interval_ms": "cross_poll_interval_ms",
    "cost_cap_per_hour": "cross_poll_cost_cap_per_hour",
    "auto_execute_threshold": "cross_poll_auto_execute_threshold",
    "quiet_hours_start": "quiet_hours_start",
    "quiet_hours_end": "quiet_hours_end",
}
"""Fields of `PATCH …/config`, and the settings they change."""


class GatewayService:
    """Blocking calls, from any thread. Each raises `Refusal` for what is not done."""

    def __init__(self, engine: Services, *, max_slow_requests: int) -> None:
        """`max_slow_requests`: slow requests that may be in progress at a time."""
        self._engine = engine
        self._slow_slots = threading.BoundedSemaphore(max_slow_requests)

    # -- looking

    def latest_cards(self, count: int = 3, channel: str | None = None, *, shown: bool = False) -> Document:
        """Pending cards, best first. `shown`: a person looks at them, so that they may later count as passed over."""
        pending = self._engine.cards.pending(channel=channel)[:count]
        if shown:
            self._engine.cards.mark_shown([card.id for card in pending])
        return {"predictions": document(pending), "count": len(pending), **self._timestamp_and_status()}

    def status(self) -> Document:
        """The document `crossPollStatus`."""
        return documents.status(self._engine)

    def health(self) -> Document:
        """The document of a health check."""
        return {"status": "ok", "version": self._engine.version, **self._timestamp_and_status()}

    def _timestamp_and_status(self) -> Document:
        return {"timestamp": instant(self._engine.clock.now()), "crossPollStatus": self.status()}

    # -- deciding

    def confirm(self, card_id: str, body: ConfirmBody) -> Document:
        """Approve a card and start its session."""
        self._note_presence(card_id, "confirm")
        card = self._engine.cards.approve(
            card_id,
            edit=body.edit,
            parameters=body.parameters,
            by=DecidedBy.API,
            without_sandbox=body.without_sandbox,
        )
        return decision_document(self._engine, card)

    def reject(self, card_id: str, reason: DismissReason | None) -> Document:
        """Dismiss a card, or give the reason for an earlier dismissal."""
        self._note_presence(card_id, "reject")
        return decision_document(self._engine, dismiss_card(self._engine, card_id, reason, by=DecidedBy.API))

    def snooze(self, card_id: str, seconds: int) -> Document:
        """Show a card again later."""
        self._note_presence(card_id, "snooze")
        return decision_document(self._engine, self._engine.cards.snooze(card_id, span=timedelta(seconds=seconds)))

    def undo(self, card_id: str) -> Document:
        """Undo the last decision."""
        self._note_presence(card_id, "undo")
        return decision_document(self._engine, self._engine.cards.undo(card_id))

    def _note_presence(self, card_id: str, action: str) -> None:
        self._engine.cards.get(card_id)  # the whole id, or nothing: a phone does not guess
        self._engine.autonomy.heard(f"gateway {action}")

    # -- triggering

    def trigger(self, body: TriggerBody) -> Document:
        """Run a card: the one with this id, which approves it unless an agent (`from_channel`) asks; else the one that
        a program hints at, or the best, if every rail allows it."""
        cards, channel = self._engine.cards, body.target_channel
        if body.prediction_id is not None and body.from_channel is None:
            return self._approve_and_report(body.prediction_id, body)
        for name in (channel, body.from_channel):
            check_channel(self._engine, name)
        with self._slow_slot():
            if body.prediction_id is not None:
                card: Card | None = cards.get(body.prediction_id)
            elif body.hint:
                card = self._card_of_hint(body.hint, channel, body.workspace)
            else:
                self._engine.predictions.run_cycle(requested=True)
                card = next(iter(cards.pending(channel=channel)), None)
            if card is None:
                where = f" for #{channel}" if channel else ""
                return self._trigger_document(None, channel, f"nothing to propose{where} now")
            try:
                cards.trigger(card.id, force=body.force, by=body.from_channel or TRIGGER_SOURCE)
            except Refusal as refusal:
                if refusal.code not in ("blocked", "needs_acknowledgement", "no_runner"):
                    raise
                return self._trigger_document(card.id, channel, f"it is pending as a card: {refusal.message}")
            return self._trigger_document(card.id, channel, "")

    def _approve_and_report(self, card_id: str, body: TriggerBody) -> Document:
        work = self._engine.cards.get(card_id).assignment
        if body.target_channel not in (None, work.channel) or body.hint not in (None, work.prompt):
            raise Refusal(
                "another_card", f"{card_id} is “{work.prompt}” on {work.channel}", "read it again, then approve it"
            )
        try:
            self.confirm(card_id, ConfirmBody())
        except Refusal as refusal:
            if refusal.code != "blocked":
                raise
            return self._trigger_document(card_id, body.target_channel, refusal.message)
        return self._trigger_document(card_id, body.target_channel, "")

    def _card_of_hint(self, hint: str, channel: str | None, workspace: str | None) -> Card:
        workspaces = self._engine.workspaces
        if workspace is not None and workspace not in workspaces:
            raise Refusal("unknown_workspace", f"{sanitise(workspace)} is not watched", "see `clawpy status`")
        where = workspace or next(iter(workspaces), None)
        if where is None:
            raise Refusal("unknown_workspace", "no workspace is watched", "start clawpy in a git repository")
        words = sanitise(hint).strip()
        for card in self._engine.cards.pending(include_snoozed=True):
            work = card.assignment
            if (work.prompt, work.workspace) == (words, where) and channel in (None, work.channel):
                return card
        return self._engine.cards.propose(hint, workspace=where, channel=channel, reasoning=CARD_REASONING)

    def _trigger_document(self, card_id: str | None, channel: str | None, obstacle: str) -> Document:
        about = (
            target_document(find_target(self._engine, card_id)) if card_id else {"prediction": None, "session": None}
        )
        card = about["prediction"]
        channel = card["targetChannel"] if card else channel
        return {
            "triggered": not obstacle,
            "prediction": card,
            "targetChannel": channel,
            "message": obstacle or f"Cross-pollination prompt started on #{channel}",
            "session": about["session"],
            "status": self.status(),
        }

    # -- the rest

    def configure(self, body: ConfigBody) -> Document:
        """Change settings for this run (SPEC 10.1), all or none. Holds stay until they are resumed."""
        self._engine.autonomy.heard("gateway config")
        values = body.model_dump(exclude_none=True)
        if changed := {RUN_SETTINGS[name]: value for name, value in values.items() if name in RUN_SETTINGS}:
            self._engine.settings.set_for_this_run(changed)
        if body.enabled is not None:  # last, for it cannot fail
            self._engine.safety.kill_switch.set_enabled(body.enabled)
        status, settings = self.status(), self._engine.settings.current
        now = {name: getattr(settings, setting) for name, setting in RUN_SETTINGS.items()}
        config = ConfigBody.model_construct(enabled=status["enabled"], **now).model_dump(by_alias=True)
        return {"config": config, "crossPollStatus": status}

    def serve_twin(self, body: TwinBody) -> Document:
        """The Twin's proposal (SPEC 2.3): the answer of the configured model within every cap, else the best
        card."""
        twin = self._engine.model_twin
        model = twin.named if self._engine.settings.current.twin_model_enabled else None
        if body.model is not None and (model is None or body.model not in (str(model), model.model)):
            message = f"the Twin model is {model}" if model else "no Twin model is enabled"
            raise Refusal("another_model", message, "leave `model` out")
        if model is not None:
            situation = "\n\n".join(message.content for message in body.messages if message.role == "user")
            with self._slow_slot():
                try:
                    reply = twin.answer(str(model), situation, temperature=body.temperature, max_tokens=body.max_tokens)
                except (NoAnswer, UnusableReply):
                    pass  # what cannot be asked falls back (SPEC 2.3), as in a cycle
                else:
                    return {"model": str(model), "source": "twin-model", **reply.model_dump()}
        best = next(iter(self._engine.cards.pending()), None)
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

    @contextmanager
    def _slow_slot(self) -> Iterator[None]:
        """Take one of the slots for slow requests. Raises `Refusal` `busy`."""
        if not self._slow_slots.acquire(blocking=False):
            raise Refusal("busy", "other requests are being processed", "try again in a few seconds")
        try:
            yield
        finally:
            self._slow_slots.release()

"""What the gateway is asked, answered by the engine's ports: the same for paths and RPC, and no rule of its own.

A decision over the gateway is the operator's (`decided_by` "api", SPEC 2.7): who has the token is he. A trigger without
a card's id is none: a program asks for it, and every rail is asked as for what runs by itself (SPEC 3.1).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine.api import crosspoll
from engine.api.documents import Document, document, instant
from engine.api.find import find, shown
from engine.api.operations import dispatch
from engine.api.operations.cards import decided, turn_down
from engine.model import Card, DecidedBy, DismissReason, NoAnswer, Refusal, sanitise
from engine.prediction.model_twin import Unusable

if TYPE_CHECKING:
    from engine.engine import Engine

GATEWAY = "gateway"
"""Where chains of triggers begin that a program asks for (SPEC 3.3)."""

ASKED_BY = "requested over the gateway"

RUN_SETTINGS = {
    "interval_ms": "cross_poll_interval_ms",
    "cost_cap_per_hour": "cross_poll_cost_cap_per_hour",
    "auto_execute_threshold": "cross_poll_auto_execute_threshold",
    "quiet_hours_start": "quiet_hours_start",
    "quiet_hours_end": "quiet_hours_end",
}
"""What `PATCH …/config` names, and the setting it is."""


class Desk:
    """Blocking calls, from any thread. Each raises `Refusal` for what is not done."""

    def __init__(self, engine: Engine, *, at_once: int) -> None:
        """`at_once`: so many slow questions are waited for at a time."""
        self._engine = engine
        self._slow = threading.BoundedSemaphore(at_once)

    # -- looking

    def latest(self, count: int = 3, channel: str | None = None, *, seen: bool = False) -> Document:
        """What is pending, best first. `seen`: a person looks at it, so that it may later count as passed over."""
        pending = self._engine.cards.pending(channel=channel)[:count]
        if seen:
            self._engine.cards.mark_shown([one.id for one in pending])
        return {
            "predictions": document(pending),
            "count": len(pending),
            "timestamp": instant(self._engine.clock.now()),
            "crossPollStatus": self.status(),
        }

    def status(self) -> Document:
        """`crossPollStatus`."""
        return crosspoll.status(self._engine)

    def health(self) -> Document:
        """That the engine answers."""
        return {
            "status": "ok",
            "version": self._engine.version,
            "timestamp": instant(self._engine.clock.now()),
            "crossPollStatus": self.status(),
        }

    def metrics(self, days: int) -> Document:
        """How good the predictions of the last `days` were."""
        return dispatch(self._engine, "metrics", {"days": days})

    def tasks(self, state: str | None, workspace: str | None, limit: int) -> Document:
        """The task board."""
        return dispatch(
            self._engine, "tasks", {"action": "list", "state": state, "workspace": workspace, "limit": limit}
        )

    # -- deciding

    def confirm(
        self,
        card_id: str,
        edit: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        *,
        without_sandbox: bool = False,
    ) -> Document:
        """Approve and start. `without_sandbox` confirms that it runs unconfined."""
        return self._decide(
            card_id,
            "confirm",
            lambda: self._engine.cards.approve(
                card_id, edit=edit, parameters=parameters, by=DecidedBy.API, without_sandbox=without_sandbox
            ),
        )

    def reject(self, card_id: str, reason: DismissReason | None = None) -> Document:
        """Turn down; of one that was turned down already, say why."""
        return self._decide(card_id, "reject", lambda: turn_down(self._engine, card_id, reason, by=DecidedBy.API))

    def snooze(self, card_id: str, seconds: int) -> Document:
        """Put off."""
        span = timedelta(seconds=seconds)
        return self._decide(card_id, "snooze", lambda: self._engine.cards.snooze(card_id, span=span))

    def undo(self, card_id: str) -> Document:
        """Take the last decision back."""
        return self._decide(card_id, "undo", lambda: self._engine.cards.undo(card_id))

    def _decide(self, card_id: str, what: str, act: Callable[[], Card]) -> Document:
        self._engine.cards.get(card_id)  # the whole id, or nothing: a phone does not guess
        self._engine.autonomy.heard(f"gateway {what}")
        return decided(self._engine, act())

    def _about(self, card_id: str) -> Document:
        return shown(find(self._engine, card_id))

    # -- triggering

    def trigger(
        self,
        *,
        channel: str | None = None,
        hint: str | None = None,
        force: bool = False,
        card_id: str | None = None,
        from_channel: str | None = None,
        workspace: str | None = None,
    ) -> Document:
        """Run a card: the one with this id, which approves it unless an agent `from_channel` asks; or what a program
        hints at, or the best, as the rails will have it."""
        if card_id is not None and from_channel is None:
            return self._approved(card_id, channel, hint)
        known = self._engine.settings.current.channels
        for one in (channel, from_channel):
            if one is not None and one not in known:
                raise Refusal("unknown_channel", f"there is no channel {sanitise(one)}", f"one of {', '.join(known)}")
        with self._waiting():
            if card_id is not None:
                card: Card | None = self._engine.cards.get(card_id)
            else:
                card = self._hinted(hint, channel, workspace) if hint else self._best(channel)
            if card is None:
                where = f" for #{channel}" if channel else ""
                return self._triggered(None, channel, f"nothing to propose{where} now")
            try:
                self._engine.cards.trigger(card.id, force=force, by=from_channel or GATEWAY)
            except Refusal as refusal:
                if refusal.code not in ("blocked", "needs_acknowledgement", "no_runner"):
                    raise
                return self._triggered(card.id, channel, f"it is pending as a card: {refusal.message}")
            return self._triggered(card.id, channel, "")

    def _approved(self, card_id: str, channel: str | None, hint: str | None) -> Document:
        card = self._engine.cards.get(card_id)
        asked = card.assignment
        if channel not in (None, asked.channel) or hint not in (None, asked.prompt):
            raise Refusal(
                "another_card", f"{card_id} is “{asked.prompt}” on {asked.channel}", "read it again, then approve it"
            )
        try:
            self.confirm(card_id)
        except Refusal as refusal:
            if refusal.code != "blocked":
                raise
            return self._triggered(card_id, channel, refusal.message)
        return self._triggered(card_id, channel, "")

    def _hinted(self, hint: str, channel: str | None, workspace: str | None) -> Card:
        known = self._engine.workspaces
        if workspace is not None and workspace not in known:
            raise Refusal("unknown_workspace", f"{sanitise(workspace)} is not watched", "see `clawpy status`")
        where = workspace or next(iter(known), None)
        if where is None:
            raise Refusal("unknown_workspace", "no workspace is watched", "start clawpy in a git repository")
        pending = self._engine.cards.pending(include_snoozed=True)
        words = sanitise(hint).strip()
        for one in pending:
            asked = one.assignment
            if (asked.prompt, asked.workspace) == (words, where) and channel in (None, asked.channel):
                return one
        return self._engine.cards.propose(hint, workspace=where, channel=channel, reasoning=ASKED_BY)

    def _best(self, channel: str | None) -> Card | None:
        """The best card after one cycle."""
        self._engine.predictions.run_cycle(requested=True)
        return next(iter(self._engine.cards.pending(channel=channel)), None)

    def _triggered(self, card_id: str | None, channel: str | None, held: str) -> Document:
        about = self._about(card_id) if card_id else {"prediction": None, "session": None}
        card = about["prediction"]
        channel = card["targetChannel"] if card else channel
        return {
            "triggered": not held,
            "prediction": card,
            "targetChannel": channel,
            "message": held or f"Cross-pollination prompt started on #{channel}",
            "session": about["session"],
            "status": self.status(),
        }

    # -- the rest

    def configure(self, values: Mapping[str, Any]) -> Document:
        """Change settings for this run alone (SPEC 10.1), all or none of them. Holds are lifted by their own words."""
        self._engine.autonomy.heard("gateway config")
        changed = {RUN_SETTINGS[name]: value for name, value in values.items() if name in RUN_SETTINGS}
        if changed:
            self._engine.settings.for_this_run(changed)
        if "enabled" in values:  # last, for it cannot fail
            self._engine.safety.kill_switch.set_enabled(values["enabled"])
        status, settings = self.status(), self._engine.settings.current
        return {
            "config": {
                "enabled": status["enabled"],
                "intervalMs": settings.cross_poll_interval_ms,
                "costCapPerHour": settings.cross_poll_cost_cap_per_hour,
                "autoExecuteThreshold": settings.cross_poll_auto_execute_threshold,
                "quietHoursStart": settings.quiet_hours_start,
                "quietHoursEnd": settings.quiet_hours_end,
            },
            "crossPollStatus": status,
        }

    def serve_twin(self, situation: str, *, model: str | None, temperature: float, most_tokens: int) -> Document:
        """What the Twin would do (SPEC 2.3): the model that the settings name, within every cap; where none may be
        asked, or none answers, the best card."""
        named = self._engine.twin.named if self._engine.settings.current.twin_model_enabled else None
        if model is not None and (named is None or model not in (str(named), named.model)):
            told = f"the Twin model is {named}" if named else "no Twin model is enabled"
            raise Refusal("another_model", told, "leave `model` out")
        if named is not None:
            with self._waiting():
                try:
                    reply = self._engine.twin.answer(
                        str(named), situation, temperature=temperature, most_tokens=most_tokens
                    )
                except (NoAnswer, Unusable):
                    pass  # what cannot be asked falls back (SPEC 2.3), as in a cycle
                else:
                    return {"model": str(named), "source": "twin-model", **reply.model_dump()}
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
    def _waiting(self) -> Iterator[None]:
        """One of the few that are waited for at a time."""
        if not self._slow.acquire(blocking=False):
            raise Refusal("busy", "other requests are being processed", "try again in a few seconds")
        try:
            yield
        finally:
            self._slow.release()

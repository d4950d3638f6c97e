"""The cards of the stand-in engine."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from engine.model import Card, DecidedBy, DismissReason, Mute, RailVerdict, Refusal, Source, Status
from tests.console.stand_in_data import StandInService, make_card, read_cards


class StandInCards(StandInService):
    """The service `cards`."""

    def fill(self):
        self.all = {card.id: card for card in read_cards()}
        self.mutes: list[Mute] = []

    def list_pending(self, **_: object) -> list[Card]:
        return [item for item in self.all.values() if item.status is Status.PENDING and item.snoozed_until is None]

    def get(self, id: str) -> Card:
        return self.all[id]

    def list_recent(self, **_: object) -> list[Card]:
        return [item for item in self.all.values() if item.status is not Status.PENDING]

    def _decide(self, id: str, status: Status) -> Card:
        self.all[id] = dataclasses.replace(
            self.all[id], status=status, decided_by=DecidedBy.OPERATOR, decided_at=self._engine.now
        )
        return self.all[id]

    def approve(
        self, id: str, *, edit: str | None = None, parameters: Mapping[str, Any] | None = None, **_: object
    ) -> Card:
        self.record_call("approve", id, edit if edit is not None else parameters)
        return self._decide(id, Status.APPROVED)

    def allow_once(self, id: str):
        self.record_call("allow_once", id)
        self._engine.safety.allowed_once.add(id)

    def dismiss(self, id: str) -> Card:
        self.record_call("dismiss", id)
        return self._decide(id, Status.DISMISSED)

    def explain(self, id: str, reason: DismissReason) -> Card:
        self.record_call("explain", id, reason.value)
        return self.all[id]

    def snooze(self, id: str, *, span: timedelta = timedelta(hours=2)) -> Card:
        self.record_call("snooze", id)
        self.all[id] = dataclasses.replace(self.all[id], snoozed_until=self._engine.now + span)
        return self.all[id]

    def undo(self, id: str) -> tuple[Card, int]:
        self.record_call("undo", id)
        self.all[id] = dataclasses.replace(self.all[id], status=Status.PENDING, snoozed_until=None, decided_by=None)
        return self.all[id], 0

    def propose(self, text: str, *, workspace: str, continues: str = "", may_wait: bool = True) -> Card:
        if not may_wait and not self._engine.channel_setup.serves:
            raise Refusal("no_model", "No model or agent can run this text", "clawpy key set openai")
        self.record_call("propose", text, workspace, *([continues] if continues else []))
        own_prompt = make_card(90, text, flow=None, source=Source.OPERATOR, workspace=workspace, confidence=1.0)
        self.all[own_prompt.id] = own_prompt
        return own_prompt

    def mark_shown(self, ids: list[str]):
        self.record_call("mark_shown", *ids)

    def list_mutes(self) -> list[Mute]:
        return self.mutes

    def unmute(self, id: str) -> Mute:
        self.record_call("unmute", id)
        return next(mute for mute in self.mutes if mute.id == id)

    def preview_rails(self, id: str) -> tuple[RailVerdict, ...]:
        return self.all[id].verdicts

    def count_similar(self, id: str) -> tuple[int, int]:
        return 6, 7

    def describe_sandbox(self, id: str) -> str:
        return "bubblewrap: read-only system, no network"


class StandInApprovals(StandInService):
    """The service `approvals`."""

    def refresh_runners(self) -> int:
        self.record_call("refresh_runners")
        return 0

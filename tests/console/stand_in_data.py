"""The data of the stand-in engine, from `stand_in_data.toml`: two repositories at one moment; and the base of its
services."""

import dataclasses
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from engine import LedgerEntry
from engine.execution.runners.flows import describe_changes, gives_change_set, name_work
from engine.model import (
    COLD_START_CONFIDENCE,
    AgentView,
    Band,
    Card,
    PermissionRequest,
    SessionView,
    SpendingWindow,
    Status,
    Tier,
    TranscriptLine,
)
from tests.support import read_table

T = TypeVar("T")

NOW = datetime(2026, 1, 5, 14, 12, 30, tzinfo=UTC)
"""The time that the console shows."""
SHOP = "/home/ada/src/shop"
BLOG = "/home/ada/src/blog"
AGENT = "sess_000000000009"
"""The session of an agent."""

SOUL_FILE = "/home/ada/.local/share/clawpy/agents/backend_builder/soul.md"
TABLES = read_table(__file__)


class StandInService:
    """A service of which tests may read and change the data."""

    def __init__(self, engine: Any):
        self._engine = engine
        self.fill()

    def fill(self):
        """Set the data that the service returns."""

    def record_call(self, name: str, *arguments: Any):
        """Note a call, and raise the refusal that a test has set for the next call of this name."""
        self._engine.call_log.append((name, *arguments))
        if (refusal := self._engine.refuse.pop(name, None)) is not None:
            raise refusal


def read_values(kind: type[T], name: str) -> list[T]:
    """The values of a class of `engine.model` in the tables `name`."""
    return list(_read_values(kind, name))


@cache
def _read_values(kind: Any, name: str) -> tuple[Any, ...]:
    missing = dataclasses.MISSING
    required = [item.name for item in dataclasses.fields(kind) if item.default is item.default_factory is missing]
    common = dict.fromkeys(required) | TABLES["common"].get(name, {})
    return TypeAdapter(tuple[kind, ...]).validate_python([_merge(common, table) for table in TABLES[name]])


def _merge(common: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The fields of a table, and the common ones that it does not give."""
    nested = {name: _merge(common[name], value) for name, value in table.items()
              if isinstance(value, dict) and isinstance(common.get(name), dict)}  # fmt: skip
    return common | table | nested


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def make_card(
    number: int, prompt: str, *, flow: str | None = "run_tests", workspace: str = SHOP, **fields: Any
) -> Card:
    """Another pending card, like the fourth of the stack."""
    base = read_stack()[3]
    assignment = replace(base.assignment, prompt=prompt, workspace=workspace, flow=flow)
    fields = {"created_at": ago(minutes=8 + number), **fields}
    card = replace(base, id=f"pred_{number:012}", kind=flow or "prose", assignment=assignment, **fields)
    return describe_by_flow(card)


def read_cards() -> list[Card]:
    """Every card of the table, also decided ones."""
    return list(map(describe_by_flow, read_values(Card, "cards")))


def describe_by_flow(card: Card) -> Card:
    """The card with the words for its work and its changes, which the engine takes from its flow."""
    flow = card.assignment.flow
    work = name_work(flow) if flow else card.assignment.channel
    changes = "read-only" if card.check_only else describe_changes(flow)
    return replace(card, work=work, changes=changes, gives_change_set=gives_change_set(flow))


def read_stack(*, stated: bool = True) -> list[Card]:
    """The stack from the top. `stated`: the Twin has learnt, so that a confidence is stated."""
    stack = [card for card in read_cards() if card.status is Status.PENDING]
    return stack if stated else sorted(map(_remove_confidence, stack), key=lambda card: card.tier)


def _remove_confidence(card: Card) -> Card:
    """The same card before the Twin has learnt and moved it up."""
    tier = Tier.CHECK if "moved up" in card.parts.words[-1] else card.tier
    parts = replace(card.parts, total=COLD_START_CONFIDENCE, stated=False, words=card.parts.words[:4])
    return replace(card, confidence=COLD_START_CONFIDENCE, band=Band.CARD, parts=parts, tier=tier)


def read_sessions() -> list[SessionView]:
    return [session for session in read_values(SessionView, "sessions") if session.id != AGENT]


def read_transcript(session_id: str) -> list[TranscriptLine]:
    lines = enumerate(TABLES["transcripts"].get(session_id, ()), 1)
    return [TranscriptLine(number, NOW, kind, text) for number, (kind, text) in lines]


def read_agents() -> list[AgentView]:
    return read_values(AgentView, "agents")


def read_permissions() -> list[PermissionRequest]:
    return read_values(PermissionRequest, "permissions")


def read_burns() -> tuple[SpendingWindow, ...]:
    return tuple(read_values(SpendingWindow, "burns"))


HUNKS = """@@ -12,7 +12,7 @@ def total(cart: Cart) -> Decimal:
     lines = [line.amount * line.price for line in cart.lines]
-    return round(sum(lines),2)
+    return round(sum(lines), 2)


@@ -31,5 +31,4 @@ def discount(cart: Cart) -> Decimal:
-import os
     if cart.coupon is None:
         return Decimal(0)
"""


def make_ledger(limit: int = 50, *, kinds: tuple[str, ...] = (), before: int | None = None) -> list[LedgerEntry]:
    """Rows of the event ledger, the newest first: 450 of them."""
    rows = [
        LedgerEntry(
            id=number, at=ago(minutes=450 - number), workspace=SHOP,
            kind=("SessionEnded", "CostSettled", "TriggerBlocked")[number % 3],
            subject=f"sess_{number % 5 + 1:012}", payload={"state": "succeeded", "cost": number},
        )
        for number in range(450, 0, -1)
    ]  # fmt: skip
    return [row for row in rows if before is None or row.id < before][:limit]


def make_found_agent(name: str, title: str, missing: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, title=title, missing=missing, hosts=("api.example.com",), login=f"run {name}")

"""Notifications over a real database and ledger, of which cards and sessions are values. At the end, some events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from engine.api.notify import Notifications
from engine.api.notify.addresses import Address, Addresses
from engine.api.notify.delivery import Button, DeliveryFailure, deliver
from engine.api.notify.notes import Note
from engine.api_keys import Key, Keys
from engine.clock import FakeClock
from engine.config.external_sections import NotifySettings, Surface, SurfaceSettings
from engine.config.settings import Settings
from engine.events import Event, EventBus
from engine.events.engine import CostWarned, StateChanged
from engine.events.work import PredictionCreated, SessionEnded
from engine.model import Card, CheckResult, Refusal, SessionView, Source, Status
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.wording import to_microusd
from tests.support.card_rows import make_card
from tests.support.settings import MutableSettings


class StandInKeys(Keys):
    """Keys by name, which are in a keyring, and one known secret."""

    def __init__(self, values: dict[str, str] | None = None):
        self.values = values or {}

    def secrets(self) -> tuple[str, ...]:
        return ("hunter2hunter2",)

    def get(self, name: str) -> Key | None:
        return Key(name, "keyring", self.values[name]) if name in self.values else None


@dataclass
class StandInCourier:
    """Records the notes that are delivered, and fails on the surfaces in `failures`."""

    sent: list[tuple[Surface, Note]] = field(default_factory=list)
    failures: dict[Surface, DeliveryFailure] = field(default_factory=dict)

    def deliver(self, address: Address, note: Note, buttons: Mapping[str, Button]) -> DeliveryFailure | None:
        self.sent.append((address.surface, note))
        return self.failures.get(address.surface)

    def find_notes(self, surface: Surface) -> list[Note]:
        return [note for sent_to, note in self.sent if sent_to is surface]


@dataclass
class StandInCards:
    """Cards that are values."""

    cards_by_id: dict[str, Card] = field(default_factory=dict)

    def get(self, card_id: str) -> Card:
        if card_id not in self.cards_by_id:
            raise Refusal("unknown_card", "there is none")
        return self.cards_by_id[card_id]

    def list_pending(self) -> list[Card]:
        return [card for card in self.cards_by_id.values() if card.status is Status.PENDING]


class NotifyWorld:
    """Notifications of an engine whose cards and sessions a test sets. A stand-in delivers them unless `real`."""

    def __init__(self, database: Database, clock: FakeClock, bus: EventBus, *, real: bool = False):
        self.database, self.clock = database, clock
        self.settings = MutableSettings(Settings(glasses_alerts_enabled=True))
        self.keys = StandInKeys()
        self.environment: dict[str, str] = {}
        self.cards = StandInCards()
        self.sessions: dict[str, SessionView] = {}
        self.courier = StandInCourier()
        self.quiet = False
        """Whether these are quiet hours."""
        engine = SimpleNamespace(
            database=database,
            clock=clock,
            bus=bus,
            settings=self.settings,
            keys=self.keys,
            ledger=Ledger(database),
            cards=self.cards,
            sessions=SimpleNamespace(get=self._get_session),
            autonomy=SimpleNamespace(find_quiet_reason=lambda: "quiet hours" if self.quiet else ""),
        )
        self.notifications = Notifications(
            engine,
            issue_pass=lambda method, path, *, until: "",
            addresses=Addresses(self.settings, self.keys, environment=self.environment),
            deliver_note=deliver if real else lambda *parcel: self.courier.deliver(*parcel),
        )

    def set_addresses(self, **urls: str):
        """Set the addresses of surfaces."""
        sections = {name: SurfaceSettings(url=url) for name, url in urls.items()}
        notify = NotifySettings(digest_minutes=5, **sections)
        self.settings.current = self.settings.current.model_copy(update={"notify": notify})

    def _get_session(self, session_id: str) -> SessionView:
        if session_id not in self.sessions:
            raise Refusal("unknown_session", "there is none")
        return self.sessions[session_id]

    def add_card(self, card_id: str = "pred_a", **changes: Any) -> Card:
        added = make_card(card_id, self.clock.now(), **changes)
        self.cards.cards_by_id[card_id] = added
        return added

    def dismiss(self, card_id: str):
        self.cards.cards_by_id[card_id] = replace(self.cards.get(card_id), status=Status.DISMISSED)

    def record_events(self, *events: Event):
        """Record events, and have them read."""
        for event in events:
            self.database.write(lambda tx, event=event: tx.record(event))
        self.notifications.catch_up()

    def deliver(self, surfaces: Sequence[Surface] = tuple(Surface)):
        """Send everything that is due."""
        for surface in surfaces:
            while self.notifications.senders[surface].deliver_due() == 0:
                pass


EVERYWHERE = {surface.value: "json://nowhere.invalid/x" for surface in Surface}
"""An address for each surface."""


def make_created(
    card_id: str = "pred_a", confidence: float = 0.72, source: Source = Source.TEMPLATE, **more: Any
) -> PredictionCreated:
    fields = {"flow": "run_tests", "channel": "koji-core", "stated": True} | more
    return PredictionCreated(subject=card_id, confidence=confidence, source=source.value, **fields)


def make_ended(state: str = "succeeded", summary: str = "41 passed") -> SessionEnded:
    return SessionEnded(subject="sess_a", prediction_id="pred_a", state=state, summary=summary, cost=0)


ONE_FAILED_TEST = CheckResult("pytest", passed=40, failed=1, errors=0, skipped=0, seconds=1.0, failing=("test_a",))
PAUSED_EVENT = StateChanged(before="WATCHING", after="PAUSED", cause="3 dismissals in a row")
COST_WARNING = CostWarned(window="day", spent=to_microusd(16.4), cap=to_microusd(20))
"""82 % of the day's cap is spent."""

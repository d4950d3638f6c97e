"""Keeps `cache/complication.json`, from which a status bar is answered (SPEC 10.3).

A status bar asks every few seconds, so it opens no engine and asks none. The file has the expiry of each card and hold,
so that it stays true when nobody writes it any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine.api.documents import instant
from engine.background import Background
from engine.events import Subscription
from engine.files import write_json
from engine.model import Card, Refusal, sanitise

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

VERSION = 1

MAX_CARDS = 200
"""Maximum number of cards in the file."""

MAX_PROMPT_CHARS = 120
"""Maximum length of a prompt in the file."""

MIN_INTERVAL_S = 1.0
"""Minimum seconds between two writes: events may come by the thousand, and a bar asks every few seconds."""

RELEVANT_KIND_PREFIXES = ("Prediction", "CycleFinished", "Hold", "StateChanged", "MemoryForgotten")
"""The file is written again after events whose kind begins so."""


class StatusBarFile:
    """Writes the file whenever cards, holds or the state change. Callable from any thread."""

    def __init__(self, engine: Services) -> None:
        self.file = engine.home.status_bar_file
        self._engine = engine
        self._background = Background("clawpy-status-bar", self._write_if_concerned)
        self._subscription: Subscription | None = None
        self._last_document: dict[str, Any] | None = None
        self._dropped = 0

    def start(self) -> None:
        """Start to follow events."""
        self._subscription = self._engine.bus.subscribe(self._background.wake, capacity=500)
        self._background.wake()

    def close(self) -> None:
        """Write the file a last time. Safe to call twice."""
        if self._subscription is None:
            return
        self._subscription.close()
        self._subscription = None
        self._background.close()
        self.write()

    def document(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "version": VERSION,
            "holds": [{"word": hold.word, "until": instant(hold.until)} for hold in self._engine.safety.holds()],
            "cards": [
                {
                    "prompt": " ".join(sanitise(card.assignment.prompt).split())[:MAX_PROMPT_CHARS],
                    "targetChannel": card.assignment.channel,
                    "confidence": round(card.confidence, 4),
                    "howSure": card.how_sure,
                    "createdAt": instant(card.created_at),
                    "expiresAt": instant(card.expires_at),
                    "snoozedUntil": instant(card.snoozed_until),
                }
                for card in self._unexpired_cards()[:MAX_CARDS]
            ],
        }

    def _unexpired_cards(self) -> list[Card]:
        """Pending cards in order, and snoozed ones: the status bar itself knows when a card wakes up."""
        cards, now = self._engine.cards, self._engine.clock.now()
        pending = {card.id for card in cards.pending()}
        return [card for card in cards.pending(include_snoozed=True) if card.id in pending or card.snoozed(now)]

    def _write_if_concerned(self) -> float | None:
        """Write the file if an event concerns it. Returns the seconds until the next call, None to wait for an
        event."""
        subscription = self._subscription
        if subscription is None:
            return None
        events = subscription.drain()
        missed, self._dropped = subscription.dropped > self._dropped, subscription.dropped
        if (
            self._last_document is None
            or missed
            or any(event.kind.startswith(RELEVANT_KIND_PREFIXES) for event in events)
        ):
            self.write()
        return MIN_INTERVAL_S if events else None

    def write(self) -> None:
        """Write the file if its content changed, or it is gone."""
        try:
            document = self.document()
            if document == self._last_document and self.file.exists():
                return
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.file, document)
            self._last_document = document
        except (OSError, Refusal) as error:
            log.warning("the status bar's file cannot be written: %s", error)

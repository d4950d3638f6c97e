"""What a status bar shows (SPEC 10.3), kept in `cache/complication.json` when it changes.

A status bar asks every few seconds, so it is answered from this file: no engine is asked, and none is opened. The file
says for each card until when it counts, so that it stays true with nobody to write it.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.api.documents import instant
from engine.background import Background
from engine.events import Subscription
from engine.model import Card, Refusal, sanitise

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

VERSION = 1

MAX_CARDS = 200
"""So many cards are kept; more do not fit the bar's number anyway."""

LONGEST = 120
"""Characters of a prompt."""

EVERY = 1.0
"""Seconds between two looks at what happened: facts may come by the thousand, and a bar asks every few seconds."""

CONCERNS = ("Prediction", "CycleFinished", "Hold", "StateChanged", "MemoryForgotten")
"""How the kinds of facts begin after which it is written anew."""


class Complication:
    """Keeps the file. From any thread."""

    def __init__(self, engine: Services) -> None:
        self.file = engine.home.complication
        self._engine = engine
        self._background = Background("clawpy-complication", self._step)
        self._subscription: Subscription | None = None
        self._written: Any = None
        self._dropped = 0

    def start(self) -> None:
        """Begin to keep it."""
        self._subscription = self._engine.bus.subscribe(self._background.wake, capacity=500)
        self._background.wake()

    def close(self) -> None:
        """Write it a last time. Safe to call twice."""
        if self._subscription is None:
            return
        self._subscription.close()
        self._subscription = None
        self._background.close()
        self._write()

    def document(self) -> dict[str, Any]:
        """What the file says."""
        return {
            "version": VERSION,
            "holds": [{"word": hold.word, "until": instant(hold.until)} for hold in self._engine.safety.holds()],
            "cards": [
                {
                    "prompt": " ".join(sanitise(card.assignment.prompt).split())[:LONGEST],
                    "targetChannel": card.assignment.channel,
                    "confidence": round(card.confidence, 4),
                    "howSure": card.how_sure,
                    "createdAt": instant(card.created_at),
                    "expiresAt": instant(card.expires_at),
                    "snoozedUntil": instant(card.snoozed_until),
                }
                for card in self._stack()[:MAX_CARDS]
            ],
        }

    def _stack(self) -> list[Card]:
        """The stack from the top, with what is snoozed now: the status bar knows by itself when that wakes."""
        cards, now = self._engine.cards, self._engine.clock.now()
        waiting = {card.id for card in cards.pending()}
        return [
            card
            for card in cards.pending(include_snoozed=True)
            if card.id in waiting or (card.snoozed_until is not None and card.snoozed_until > now)
        ]

    def _step(self) -> float | None:
        """One look, and when the next one is due: whatever comes until then is looked at together."""
        subscription = self._subscription
        if subscription is None:
            return None
        events = subscription.drain()
        missed, self._dropped = subscription.dropped > self._dropped, subscription.dropped
        if self._written is None or missed or any(event.kind.startswith(CONCERNS) for event in events):
            self._write()
        return EVERY if events else None

    def _write(self) -> None:
        try:
            document = self.document()
            if document == self._written and self.file.exists():
                return
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".clawpy-tmp-", dir=self.file.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(document, out, ensure_ascii=False)
            Path(name).replace(self.file)
            self._written = document
        except (OSError, Refusal) as error:
            log.warning("the status bar's file cannot be written: %s", error)

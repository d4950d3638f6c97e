"""Keeps `cache/complication.json`, from which `clawpy status --format short` answers a status bar (SPEC 10.3).

A status bar asks every few seconds, so the verb reads only this file and needs no engine. The engine writes it after
events, and before it answers a verb. The file has the expiry of each card and hold, so it stays correct after the
engine has ended.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from engine.api.documents import Document, instant
from engine.background import BackgroundWorker
from engine.events import Subscription
from engine.files import write_json
from engine.model import Refusal
from engine.text import one_line

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

FORMAT_VERSION = 1

MAX_CARDS = 200
"""Maximum number of cards in the file."""

MAX_PROMPT_CHARS = 120
"""Maximum length of a prompt in the file."""

MIN_INTERVAL_S = 1.0
"""Minimum seconds between two writes. There may be thousands of events, and a bar asks only every few seconds."""


class StatusBarFile:
    """Writes the file when its content has changed. Callable from any thread."""

    def __init__(self, engine: Services) -> None:
        self.file = engine.home.status_bar_file
        self._engine = engine
        self._background = BackgroundWorker("clawpy-status-bar", self._follow)
        self._subscription: Subscription | None = None
        self._last_document: Document | None = None
        self._write_lock = threading.Lock()
        """Held from reading the engine until the file is written, so that older content is never written last."""

    def start(self) -> None:
        """Begin to follow events."""
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

    def make_document(self) -> Document:
        """The content of the file."""
        return {
            "version": FORMAT_VERSION,
            "holds": [
                {"word": hold.word, "until": instant(hold.until)}
                for hold in self._engine.safety.kill_switch.list_holds()
            ],
            "cards": [
                {
                    "prompt": one_line(card.assignment.prompt)[:MAX_PROMPT_CHARS],
                    "targetChannel": card.assignment.channel,
                    "confidence": round(card.confidence, 4),
                    "howSure": card.confidence_text,
                    "createdAt": instant(card.created_at),
                    "expiresAt": instant(card.expires_at),
                    "snoozedUntil": instant(card.snoozed_until),
                }
                for card in self._engine.cards.list_pending(include_snoozed=True)[:MAX_CARDS]
            ],
        }

    def _follow(self) -> float | None:
        """Write the file after events. Returns the seconds until the next call, None to wait for an event."""
        subscription = self._subscription  # `close` may take it away meanwhile, in another thread
        if subscription is None:
            return None
        events = subscription.drain()
        self.write()
        return MIN_INTERVAL_S if events else None

    def write(self) -> None:
        """Write the file if its content changed or it is missing."""
        with self._write_lock:
            try:
                document = self.make_document()
                if document == self._last_document and self.file.exists():
                    return
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.file, document)
                self._last_document = document
            except (OSError, Refusal) as error:
                log.warning("the status bar's file cannot be written: %s", error)

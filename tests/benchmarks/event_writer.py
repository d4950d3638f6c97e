"""Records events at an even rate, as a busy engine does, for the benchmarks of the gateway's `/pulse`."""

import time

from engine.engine import Engine
from engine.events.work import PredictionCreated, PredictionExecuted, PredictionExpired, TaskChanged

EVENTS_PER_SECOND = 1_000

BEAT = 0.02
"""Seconds between two transactions."""


class EventWriter:
    """Records events about the card `card_id`. One in ten says that it is new, so that its whole text is sent."""

    def __init__(self, engine: Engine, card_id: str):
        self._engine = engine
        self.written = 0
        self.transaction_seconds: list[float] = []
        self._events = [
            PredictionCreated(
                subject=card_id, workspace="", flow="", channel="koji-core", confidence=0.7, source="template"
            ),
            *[PredictionExecuted(subject="pred_gone", outcome="succeeded")] * 4,
            *[PredictionExpired(subject="pred_gone", withdrawn=True, reason="what it was about is no longer so")] * 5,
        ]

    def run(self, seconds: float):
        """Record `EVENTS_PER_SECOND` for so many seconds, in a transaction each `BEAT`."""
        began = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            self._record(int((now - began + BEAT) * EVENTS_PER_SECOND) - self.written)
            self.transaction_seconds.append(time.monotonic() - now)
            time.sleep(max(0.0, BEAT - (time.monotonic() - now)))
        self._engine.database.write(lambda tx: tx.record(TaskChanged(subject="the end", state="done")))

    def _record(self, count: int):
        """Record the next `count` events in one transaction."""
        numbers = range(self.written, self.written + count)
        due = [self._events[number % len(self._events)] for number in numbers]
        self._engine.database.write(lambda tx: [tx.record(event) for event in due])
        self.written += count

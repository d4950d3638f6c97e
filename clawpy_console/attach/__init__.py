"""One engine for many terminals: a light client holds each terminal, and the engine's process draws on all of them.

`clawpy` without a verb is the client (`client.py`). It asks the engine of the home for a console, or forks the process
that opens the engine. That process runs one `ConsoleApp` for each terminal (`consoles.py`), over a connection
(`terminal.py`, `protocol.py`).

Here is that process, as a console knows it (`Host`): whether it outlives a console, and how it collects garbage without
delaying a key. Its engine works in threads. The event loop needs the interpreter lock whenever it wakes, and a
computing thread gives it up only after the switch interval. A full garbage collection stops all threads, and
a key would wait for it.

For clients and verbs, too, it says how signals end a process. The client imports this before it can answer, so it
imports little.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SWITCH_INTERVAL_S = 0.001
"""Seconds after which a computing thread lets another one run. Python's default of 5 ms delays keys noticeably."""

IDLE_S = 1.5
"""Seconds without a key after which the operator counts as reading."""

DUE_COLLECTIONS = 10
"""Number of collections of the middle generation, each of about 7,000 new objects, after which a full collection is due
while nobody types."""

OVERDUE_COLLECTIONS = 200
"""The same number after which a full collection is due in any case."""


class GarbageCollector:
    """Runs full collections in place of the interpreter, while nobody types."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key_at = float("-inf")
        self._is_active = False

    def allow_collections(self) -> None:
        """Let the interpreter collect garbage, from the first frame on, which that would delay. What exists now is
        excluded, because almost all of it stays."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def take_over_full_collections(self) -> None:
        """Leave full collections to `collect_if_due`, once the engine is open; the interpreter keeps the others. The
        objects that exist now are excluded. Safe to call twice."""
        if self._is_active:
            return
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.freeze()
        first, second, _ = gc.get_threshold()
        gc.set_threshold(first, second, 100 * OVERDUE_COLLECTIONS)  # far above: the interpreter runs no full one
        self._is_active = True

    def free_console(self) -> None:
        """Free the objects of a console that was closed."""
        from textual._styles_cache import StylesCache  # not before the first frame

        StylesCache.get_inner_outer.cache_clear()  # it keeps what the last thousand widgets drew
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def note_key(self) -> None:
        """Note that the operator pressed a key."""
        self._key_at = self._clock()

    def collect_if_due(self) -> None:
        """Run a full collection when one is due and nobody types, or when it is overdue."""
        count = gc.get_count()[2] if self._is_active else 0
        is_idle = self._clock() - self._key_at >= IDLE_S
        if count >= OVERDUE_COLLECTIONS or (count >= DUE_COLLECTIONS and is_idle):
            gc.collect()


class Host:
    """What a console knows of the process that it shares with the other consoles of its engine."""

    def __init__(self, *, owns_engine: bool) -> None:
        self.owns_engine = owns_engine
        """Whether the engine ends with the last console."""
        self.keeps_running = False
        """Whether the engine keeps running without a console, because the operator wants that."""
        self.garbage_collector = GarbageCollector()
        self.apps: dict[Any, Any] = {}
        """The open consoles, each by its terminal. `Consoles` has their types: both are imported after the first
        frame."""

    def outlives_console(self) -> bool:
        """Whether the engine would keep running if one console closed now. Call it on the event loop."""
        return not self.owns_engine or len(self.apps) > 1


SHUTDOWN_S = 5
"""Seconds that an engine or a console has to end after a signal, or after its last client ended."""


@contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Have signals handled by `handlers`, and afterwards as before."""
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def exit_after(seconds: float, code: int) -> None:
    """Exit with `code` after `seconds`, whatever is still in progress."""
    import threading  # no client needs it

    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()

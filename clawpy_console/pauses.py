"""What holds the event loop although nobody asked it to: the interpreter's full collections and thread switches.

The engine works in threads of the console's process. Each time the loop wakes it needs the interpreter lock; a thread
that computes gives it up only after the switch interval. And a full garbage collection looks at every object there
is, in whichever thread happens to allocate: 30 ms with an engine at work.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

SWITCH_INTERVAL_S = 0.001
"""Seconds after which a computing thread lets another one run; the interpreter's own 5 ms, several times in the way
of a key, are felt."""

IDLE_S = 1.5
"""Seconds without a key after which the operator may be taken to be reading."""

DUE, OVERDUE = 10, 200
"""Collections of the middle generation (each about 7,000 objects made and kept) after which a full one is due while
nobody types, and at the latest."""


class Pauses:
    """Takes over from the interpreter when it collects. `begin` once everything is imported, `pressed` on each key,
    `collect` now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pressed_at = float("-inf")
        self._ours = False

    def begin(self) -> None:
        """From now on full collections wait for `collect`; what there is now is not looked at again. Once is enough."""
        if self._ours:
            return
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.freeze()
        first, second, _ = gc.get_threshold()
        gc.set_threshold(first, second, 100 * OVERDUE)
        self._ours = True

    def let_go(self) -> None:
        """A console was closed: free what it was made of."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def pressed(self) -> None:
        """The operator pressed a key."""
        self._pressed_at = self._clock()

    def collect(self) -> None:
        """A full collection, when one is due and nobody types, or when it is overdue."""
        waiting = gc.get_count()[2] if self._ours else 0
        if waiting >= OVERDUE or (waiting >= DUE and self._clock() - self._pressed_at >= IDLE_S):
            gc.collect()

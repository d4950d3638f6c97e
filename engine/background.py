"""A thread that works whenever it is woken, and waits otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable

CLOSE_SECONDS = 5.0
"""So long `close` waits for a step that is being made."""


class Background:
    """One such thread; it is started when it is first woken. All methods may be called from any thread."""

    def __init__(self, name: str, step: Callable[[], float | None], *, interruptible: bool = False) -> None:
        """`step()` does some work and must not raise. It says after how many seconds there is to be another step, 0 for
        at once; None when there is nothing left to do before it is woken again.
        `interruptible`: when it is woken meanwhile there is one at once."""
        self._name = name
        self._step = step
        self._interruptible = interruptible
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._asked = False
        """Whether `wake` was called since the last step began; `_woken` is also set by the step itself."""
        self._busy = False
        self._closed = False

    @property
    def begun(self) -> bool:
        """Whether it was ever woken."""
        return self._thread is not None

    @property
    def closed(self) -> bool:
        """Whether no further step is made."""
        return self._closed

    @property
    def woken(self) -> bool:
        """Whether there is to be another step."""
        return self._woken

    @property
    def idle(self) -> bool:
        """Whether nothing is being done, and nothing to be done."""
        return not self._woken and not self._busy

    def wake(self) -> None:
        """There is something to do. Returns at once; after `close` nothing happens."""
        with self._condition:
            if self._closed:
                return
            self._woken = self._asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it is true, looked at after each step; False after `timeout` seconds."""
        with self._condition:
            return self._condition.wait_for(condition, timeout)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop after the step that is being made, for which it waits so long. Safe to call twice."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._woken or self._closed)
                if self._closed:
                    return
                self._woken, self._asked, self._busy = False, False, True
            delay = self._step()
            with self._condition:
                self._busy = False
                self._woken = self._woken or delay is not None
                self._condition.notify_all()
                if delay:
                    self._condition.wait_for(lambda: self._closed or (self._interruptible and self._asked), delay)

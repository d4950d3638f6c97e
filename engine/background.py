"""Daemon threads for services: one that runs a step when it is woken, and one for a single call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0
"""Seconds that `close` waits for the step in progress."""


def run_in_thread(name: str, work: Callable[[], T]) -> Future[T]:
    """Run `work` on a daemon thread. Neither the caller nor the exit of the interpreter has to wait for it."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # so that a caller that stops waiting cannot cancel it

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class Background:
    """A thread that runs a step whenever it is woken. It starts with the first `wake`. Callable from any thread."""

    def __init__(self, name: str, step: Callable[[], float | None], *, interruptible: bool = False) -> None:
        """`step()` does some work and must not raise. It returns the seconds until the next step, 0 for at once, None
        to wait for `wake`. If `interruptible`, `wake` ends the pause before the next step."""
        self._name = name
        self._step = step
        self._interruptible = interruptible
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._woken_by_caller = False
        """Whether `wake` was called since the last step began. `_woken` is also set if a step asks for another one."""
        self._busy = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def woken(self) -> bool:
        """Whether another step will follow."""
        return self._woken

    @property
    def idle(self) -> bool:
        """Whether no step is in progress and none will follow."""
        return not self._woken and not self._busy

    def wake(self) -> None:
        """Run a step soon. Returns at once; does nothing after `close`."""
        with self._condition:
            if self._closed:
                return
            self._woken = self._woken_by_caller = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `condition` is true, checked after each step; False after `timeout` seconds."""
        with self._condition:
            return self._condition.wait_for(condition, timeout)

    def close(self, seconds: float = CLOSE_TIMEOUT_S) -> None:
        """Stop after the step in progress, and wait up to `seconds` for it. Safe to call twice."""
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
                self._woken, self._woken_by_caller, self._busy = False, False, True
            delay = self._step()
            with self._condition:
                self._busy = False
                self._woken = self._woken or delay is not None
                self._condition.notify_all()
                if delay:
                    self._condition.wait_for(
                        lambda: self._closed or (self._interruptible and self._woken_by_caller), delay
                    )

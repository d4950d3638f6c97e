"""Remembers what git answered about a workspace, so that it is asked again only when something changed."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

from engine.frozen import frozen

log = logging.getLogger(__name__)

T = TypeVar("T")
Key = tuple[str, ...]

MAX_ANSWERS: Final = 512
"""Answers of one workspace that are remembered, most of them on pairs of commits."""
RETRY_S: Final = 600.0
"""Seconds until a question that failed is asked again, though nothing changed."""


@frozen
class _Answer:
    """The answer to a question, or its error; `at` in seconds of the monotonic clock."""

    key: Key
    at: float
    value: object = None
    error: Exception | None = None


class GitAnswers:
    """The answers about one workspace. Safe to call from several threads."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, _Answer] = OrderedDict()

    def once(self, key: Key, ask: Callable[[], T]) -> T:
        """Ask once for what never changes between two ids; the oldest answers are forgotten."""
        return self._remember(key, key, ask, keep_errors=False)

    def latest(self, name: str, key: Key, ask: Callable[[], T], *, keep_errors: bool = True) -> T:
        """Ask once for what holds while `key` does; only the last answer of that name is kept, for it may be large.
        With `keep_errors` an error is an answer, too, for `RETRY_S`."""
        return self._remember((name,), key, ask, keep_errors=keep_errors)

    def _remember(self, slot: Key, key: Key, ask: Callable[[], T], *, keep_errors: bool) -> T:
        with self._lock:
            answer = self._answers.get(slot)
            if answer is not None:
                self._answers.move_to_end(slot)
        if answer is None or answer.key != key or (answer.error and time.monotonic() - answer.at > RETRY_S):
            try:
                answer = _Answer(key, time.monotonic(), ask())
            except Exception as error:
                if not keep_errors:
                    raise
                log.warning("%s: reading %s failed: %s", self.workspace, slot[0], error)
                answer = _Answer(key, time.monotonic(), error=error)
            with self._lock:
                self._answers[slot] = answer
                while len(self._answers) > MAX_ANSWERS:
                    self._answers.popitem(last=False)
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return cast("T", answer.value)

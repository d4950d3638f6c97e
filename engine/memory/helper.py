"""The engine's side of memory's helper process, which is started when it is first needed, and again after it died.

Requests and answers are pickled and sent over its pipes; both ends are this program. The helper gets only texts that
are embedded, and no key except that of a Chroma server. It has a process group of its own.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import IO, Any, ClassVar, NamedTuple

from engine.background import HelperGone, HelperProcess, HelperSupervisor

HELPER_COMMAND = (sys.executable, "-m", "engine.memory.helper_main")
"""The command of the process."""

RESTART_DELAY_S = 10.0
"""A helper that dies within this many seconds is not started again for as long."""


class HelperFailed(Exception):
    """The helper could not do what was asked. The message says why."""


class HelperRequest(NamedTuple):
    """A call of a method of the model or of the index. Requests that are not `bulk` are answered first."""

    bulk: bool
    number: int
    method: str
    arguments: tuple[Any, ...]


class HelperAnswer(NamedTuple):
    """The answer to the request of this number: what the method returned, or its `error`, in words."""

    number: int
    result: Any
    error: str = ""


class Helper(HelperSupervisor["_MemoryProcess"]):
    """Starts the process, and sends it requests."""

    def __init__(self) -> None:
        super().__init__(_MemoryProcess, HELPER_COMMAND, restart_seconds=RESTART_DELAY_S)

    def submit(self, method: str, *arguments: Any, bulk: bool = True) -> Future[Any]:
        """Send a request. The future has the answer, or raises `HelperGone` or `HelperFailed`. Raises `HelperGone`."""
        return self.get_or_start().ask(method, arguments, bulk=bulk)

    def call(self, method: str, *arguments: Any, timeout: float, bulk: bool = True) -> Any:
        """Send a request and wait for the answer. Raises `HelperGone`, `HelperFailed`, and TimeoutError after `timeout`
        seconds."""
        return self.submit(method, *arguments, bulk=bulk).result(timeout)


class _MemoryProcess(HelperProcess):
    """One run of the helper."""

    title = "memory's helper process"
    extra_variables: ClassVar = {
        "TOKENIZERS_PARALLELISM": "false",
        "ANONYMIZED_TELEMETRY": "False",
        "OMP_NUM_THREADS": "1",
    }
    """Settings of its libraries: one thread, no telemetry."""

    def __init__(self, command: Sequence[str]) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        super().__init__(command)

    def ask(self, method: str, arguments: tuple[Any, ...], *, bulk: bool) -> Future[Any]:
        """Send a request; the future receives the answer. Raises `HelperGone`."""
        future: Future[Any] = Future()
        number = next(self._numbers)
        with self._lock:
            self._pending[number] = future
        self.write(pickle.dumps(tuple(HelperRequest(bulk, number, method, arguments))))
        return future

    def read(self, output: IO[bytes]) -> None:
        while True:
            answer = HelperAnswer(*pickle.load(output))
            future = self._pop(answer.number)
            if future is not None and answer.error:
                future.set_exception(HelperFailed(answer.error))
            elif future is not None:
                future.set_result(answer.result)

    def fail_pending(self) -> None:
        with self._lock:
            unanswered, self._pending = [*self._pending.values()], {}
        for future in unanswered:
            future.set_exception(HelperGone(f"{self.title} has ended"))

    def _pop(self, number: int) -> Future[Any] | None:
        with self._lock:
            return self._pending.pop(number, None)

"""Memory's helper process as the engine sees it: started when it is first needed, started again when it died.

Requests and answers are pickled over its pipes; both ends are this program. It carries no text beyond what is to be
embedded and no key but that of a Chroma server; it has a process group of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from engine import programs

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "engine.memory.helper_main")

END_TIMEOUT_S = 1.0
RESTART_DELAY_S = 10.0
"""Seconds; a helper that dies sooner is not started again for as long."""

ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "ANONYMIZED_TELEMETRY": "False", "OMP_NUM_THREADS": "1"}
"""Settings of its libraries: one thread, no telemetry."""


class HelperGone(Exception):
    """The helper ended before it answered, or cannot be started."""


class HelperFailed(Exception):
    """The helper answered that it cannot do it, in its own words."""


class Request(NamedTuple):
    """A call of a method of the model or of the index; what is not `bulk` comes first."""

    bulk: bool
    number: int
    method: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """The answer to the request of this number: what the method returned, or its `error`, in words."""

    number: int
    result: Any
    error: str = ""


class Helper:
    """Starts and keeps the process. All methods may be called from any thread."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._running: _Process | None = None
        self._started = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The number of its process, None while there is none."""
        running = self._running
        return running.pid if running is not None and running.alive else None

    def submit(self, method: str, *arguments: Any, bulk: bool = True) -> Future[Any]:
        """Ask; the answer comes as a future that may raise `HelperGone` or `HelperFailed`. Raises `HelperGone`."""
        return self._process().ask(bulk, method, arguments)

    def call(self, method: str, *arguments: Any, timeout: float, bulk: bool = True) -> Any:
        """Ask and wait. Raises `HelperGone`, `HelperFailed`, and TimeoutError after `timeout` seconds."""
        return self.submit(method, *arguments, bulk=bulk).result(timeout)

    def end(self) -> None:
        """End the process; pending requests fail with `HelperGone`. The next request starts a new one."""
        with self._lock:
            running, self._running = self._running, None
            self._started = 0.0
        if running is not None:
            running.end()

    def close(self) -> None:
        """The same for good."""
        with self._lock:
            self._closed = True
        self.end()

    def _process(self) -> _Process:
        with self._lock:
            if self._closed:
                raise HelperGone("the engine is closing")
            if self._running is None or not self._running.alive:
                now = time.monotonic()
                if self._started and now - self._started < RESTART_DELAY_S:
                    raise HelperGone("memory's helper process ended as soon as it was started")
                try:
                    self._running = _Process(self._command)
                except OSError as error:
                    raise HelperGone(f"memory's helper process cannot be started: {error.strerror}") from error
                self._started = now
            return self._running


class _Process:
    """One run of the helper."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = programs.start_helper(command, extra=ENVIRONMENT)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.alive = True
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._waiting_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="clawpy-memory-helper", daemon=True)
        self._reader.start()

    def ask(self, bulk: bool, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        with self._waiting_lock:
            if not self.alive:
                raise HelperGone("memory's helper process ended")
            self._waiting[number] = future
        try:
            with self._write_lock:
                pickle.dump(tuple(Request(bulk, number, method, arguments)), self._requests)
                self._requests.flush()
        except (OSError, ValueError) as error:
            with self._waiting_lock:
                self._waiting.pop(number, None)
            raise HelperGone("memory's helper process ended") from error
        return future

    def end(self) -> None:
        """See it gone: kindly, then not."""
        programs.kill_helper(self._process)
        self._reader.join(END_TIMEOUT_S)

    def _read(self) -> None:
        try:
            while True:
                answer = Answer(*pickle.load(self._answers))
                with self._waiting_lock:
                    future = self._waiting.pop(answer.number, None)
                if future is not None and answer.error:
                    future.set_exception(HelperFailed(answer.error))
                elif future is not None:
                    future.set_result(answer.result)
        except EOFError:
            pass
        except Exception:  # half a message can fail to be unpickled in any way
            log.exception("memory's helper process sent an unreadable message; it is killed")
        programs.kill_helper(self._process)
        self._process.wait()
        with self._waiting_lock:
            self.alive = False
            unanswered, self._waiting = [*self._waiting.values()], {}
        for future in unanswered:
            future.set_exception(HelperGone("memory's helper process ended"))
        self._answers.close()
        with contextlib.suppress(OSError):  # what was not sent any more is lost with the process
            self._requests.close()

"""Work beside the caller: in daemon threads, and in helper processes.

`run_in_thread` is for a single call, `BackgroundWorker` runs a step when it is woken. `HelperProcess` is a process of
the engine's own code, for work that is heavy to import or holds the interpreter, and `HelperSupervisor` keeps one
running. Memory, the host of the models and the training of a Twin model use them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, ClassVar, Generic, TypeVar

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""Seconds that `BackgroundWorker.close` waits for the step in progress."""

END_TIMEOUT_S = 2.0
"""Seconds to wait for the end of a process that was killed."""

_BASIC_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""Environment variables that every helper gets."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Environment variables that a helper may need to reach a provider, for `inherited_variables`."""

_IMPORT_ROOT = Path(__file__).parents[1]
"""The folder from which `engine` is imported."""

Result = TypeVar("Result")


def run_in_thread(name: str, work: Callable[[], Result]) -> Future[Result]:
    """Run `work` on a daemon thread. Neither the caller nor the exit of the interpreter has to wait for it."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # so that a caller that stops waiting cannot cancel it

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class BackgroundWorker:
    """A thread that runs a step whenever it is woken. It starts with the first `wake`. Callable from any thread."""

    def __init__(self, name: str, step: Callable[[], float | None], *, interruptible: bool = False) -> None:
        """`step()` does some work and must not raise. It returns the seconds until the next step, 0 for at once, None
        to wait for `wake`. If `interruptible`, `wake` ends the pause before the next step."""
        self._name = name
        self._step = step
        self._is_interruptible = interruptible
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_called = False
        """Whether `wake` was called since the last step began."""
        self._wants_step = False
        """Whether the last step asked for another one."""
        self._is_busy = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def has_next_step(self) -> bool:
        """Whether another step will follow."""
        return self._is_called or self._wants_step

    @property
    def is_idle(self) -> bool:
        """Whether no step is in progress and none will follow."""
        with self._condition:
            return not self.has_next_step and not self._is_busy

    def wake(self) -> None:
        """Run a step soon. Returns at once; does nothing after `close`."""
        with self._condition:
            if self._is_closed:
                return
            self._is_called = True
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
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self.has_next_step or self._is_closed)
                if self._is_closed:
                    return
                self._is_called, self._wants_step, self._is_busy = False, False, True
            delay = self._step()
            with self._condition:
                self._is_busy = False
                self._wants_step = delay is not None
                self._condition.notify_all()
                if delay:
                    self._condition.wait_for(
                        lambda: self._is_closed or (self._is_interruptible and self._is_called), delay
                    )


def start_helper(
    command: Sequence[str], *, inherited_variables: Iterable[str], extra_variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start `command` in its own process group, with pipes for standard input and output.

    The process gets only the basic variables, those that are named in `inherited_variables`, and `extra_variables`. So
    it gets no key of the operator. Raises `OSError`.
    """
    environment = {name: os.environ[name] for name in (*_BASIC_VARIABLES, *inherited_variables) if name in os.environ}
    return subprocess.Popen(
        list(command),
        cwd="/",
        env=environment | dict(extra_variables) | {"PYTHONPATH": str(_IMPORT_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_helper(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group, unless the process was reaped: its id may belong to another process then."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class HelperGone(Exception):
    """A helper process ended before it answered, was killed, or cannot be started."""


class HelperProcess(ABC):
    """One run of a helper process. A thread reads its output until the process ends.

    All methods may be called from any thread.
    """

    title: ClassVar[str]
    """Its name in messages and logs."""
    inherited_variables: ClassVar[Sequence[str]] = ()
    """Names of the engine's own environment variables that it gets, besides the basic ones."""
    extra_variables: ClassVar[Mapping[str, str]] = {}
    """Further environment variables, with their values."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process and its thread. A subclass must set the fields that `read` and `fail_pending` use before it
        calls this. Raises `OSError`."""
        self._process = start_helper(
            command, inherited_variables=self.inherited_variables, extra_variables=self.extra_variables
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._write_lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"clawpy-{self.title}".replace(" ", "-"), daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs and its output is read."""
        return not self._ended.is_set()

    def write(self, data: bytes) -> None:
        """Send a message to the process. Waits until the process reads it. Raises `HelperGone`."""
        try:
            with self._write_lock:
                self._input.write(data)
                self._input.flush()
        except (OSError, ValueError) as error:
            raise HelperGone(f"{self.title} has ended") from error

    def kill(self) -> None:
        """End the process at once, with all processes that it started."""
        kill_helper(self._process)  # `_run` reaps it only when its output has ended

    def end(self) -> None:
        """End the process and wait until it is gone, at most `END_TIMEOUT_S`."""
        self.kill()
        self._ended.wait(END_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.read(self._output)
        except EOFError:
            pass
        except Exception:  # an incomplete message may raise anything
            log.exception("%s sent an unreadable message; it is killed", self.title)
        self.kill()
        self._process.wait()
        with self._write_lock, contextlib.suppress(OSError):  # unsent data is lost with the process
            self._input.close()
        self._output.close()
        self._ended.set()
        self.fail_pending()

    @abstractmethod
    def read(self, output: IO[bytes]) -> None:
        """Read and pass on the output, until it ends. Called in the thread of the process."""

    @abstractmethod
    def fail_pending(self) -> None:
        """Report the end of the process to all callers that wait for an answer. A later `write` raises `HelperGone`."""


Process = TypeVar("Process", bound=HelperProcess)


class HelperSupervisor(Generic[Process]):
    """Keeps one helper process: starts it when it is first needed, and again after it has died.

    All methods may be called from any thread.
    """

    def __init__(self, process_type: type[Process], command: Sequence[str], *, restart_seconds: float = 0.0) -> None:
        """If the process dies within `restart_seconds` of its start, it is not started again until they are over."""
        self._process_type = process_type
        self._command = tuple(command)
        self._restart_seconds = restart_seconds
        self._lock = threading.Lock()
        self._running: Process | None = None
        self._not_before = 0.0
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        running = self._running
        return running.pid if running is not None and running.is_alive else None

    def get_or_start(self) -> Process:
        """The process, which is started if there is none. Does not wait for it. Raises `HelperGone`."""
        with self._lock:
            if self._is_closed:
                raise HelperGone("the engine is closing")
            if self._running is None or not self._running.is_alive:
                title = self._process_type.title
                if time.monotonic() < self._not_before:
                    raise HelperGone(f"{title} ended as soon as it was started")
                try:
                    self._running = self._process_type(self._command)
                except OSError as error:
                    raise HelperGone(f"{title} cannot be started: {error.strerror}") from error
                self._not_before = time.monotonic() + self._restart_seconds
            return self._running

    def end(self) -> None:
        """End the process. Pending requests fail; the next request starts a new process."""
        with self._lock:
            running, self._running = self._running, None
            self._not_before = 0.0
        if running is not None:
            running.end()

    def close(self) -> None:
        """End the process, and never start one again."""
        with self._lock:
            self._is_closed = True
        self.end()

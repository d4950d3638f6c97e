"""Processes of the engine's own code that run beside it, for work that is heavy to import or holds the interpreter.

`HelperProcess` is one such process, and `HelperKeeper` keeps one running. Memory, the host of the models and the
training of a Twin model use them.
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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Generic, TypeVar

log = logging.getLogger(__name__)

END_SECONDS = 2.0
"""Seconds to wait for the end of a process that was killed."""

_BASIC_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Environment variables that a process may need to reach a provider."""

_IMPORT_ROOT = Path(__file__).parents[1]
"""The folder from which `engine` is imported."""


def start_helper(
    command: Sequence[str], *, inherited: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in its own process group, with pipes for standard input and output.

    The process gets only the basic variables, the variables named in `inherited`, and `extra`. So it gets no key of the
    operator. Raises `OSError`.
    """
    environment = {name: os.environ[name] for name in (*_BASIC_VARIABLES, *inherited) if name in os.environ}
    return subprocess.Popen(
        list(command),
        cwd="/",
        env=environment | dict(extra or {}) | {"PYTHONPATH": str(_IMPORT_ROOT)},
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
    inherited: ClassVar[Sequence[str]] = ()
    extra: ClassVar[Mapping[str, str]] = {}
    """`inherited` and `extra` are variables of its environment, see `start_helper`."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process and its thread. A subclass must set the fields that `read` and `fail_pending` use before it
        calls this. Raises `OSError`."""
        self._process = start_helper(command, inherited=self.inherited, extra=self.extra)
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
        """End the process and wait until it is gone, at most `END_SECONDS`."""
        self.kill()
        self._ended.wait(END_SECONDS)

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


class HelperKeeper(Generic[Process]):
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
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        running = self._running
        return running.pid if running is not None and running.is_alive else None

    def running(self) -> Process:
        """The process, which is started if there is none. Does not wait for it. Raises `HelperGone`."""
        with self._lock:
            if self._closed:
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
            self._closed = True
        self.end()

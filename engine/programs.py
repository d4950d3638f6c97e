"""Programs beside the engine: finds the operator's, never those of a repository, and keeps helper processes running."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, ClassVar, Generic, TypeVar

# -- Programs of the operator ---------------------------------------------------------------------------------------


def search_path(*without: Path) -> str:
    """The PATH without relative folders and without those inside the folders `without`: a `.` on the PATH, or the
    active environment of a project, would let a repository choose which `git` runs."""
    return _search_path(os.environ.get("PATH", os.defpath), without)


@lru_cache(maxsize=64)
def _search_path(path: str, without: tuple[Path, ...]) -> str:
    refused = [os.path.realpath(folder) for folder in without]
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in refused)
    ]
    return os.pathsep.join(folders)


def find_program(program: str, *without: Path) -> str | None:
    """The absolute path of `program`; None when there is none outside of `without`."""
    return shutil.which(program, path=search_path(*without))


# -- Helper processes -----------------------------------------------------------------------------------------------
#
# What holds the interpreter for long, or is heavy to import, runs in one of them.

log = logging.getLogger(__name__)

END_SECONDS = 2.0
"""Seconds to wait for the end of a process that was killed."""

_BASIC_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Variables that are needed to reach a provider."""

_IMPORT_ROOT = Path(__file__).parents[1]
"""Where `engine` is imported from."""


def start_helper(
    command: Sequence[str], *, inherited: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in its own process group, with pipes for standard input and output.

    It inherits only basic variables and those `inherited` by name, so no key of the operator. Raises `OSError`.
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
    """Kill the process group. The process id cannot be reused before it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class HelperGone(Exception):
    """A helper process ended before it answered, was killed, or cannot be started."""


class HelperProcess(ABC):
    """One run of a helper process. A thread passes on what it writes, until it ends. All methods from any thread."""

    title: ClassVar[str]
    """Its name in messages and logs."""
    inherited: ClassVar[Sequence[str]] = ()
    extra: ClassVar[Mapping[str, str]] = {}
    """Variables of its environment, as for `start_helper`."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it. The fields that `read` and `fail_pending` use must be there before. Raises `OSError`."""
        self._process = start_helper(command, inherited=self.inherited, extra=self.extra)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._write_lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"clawpy-{self.title}".replace(" ", "-"), daemon=True).start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still answers."""
        return not self._ended.is_set()

    def write(self, data: bytes) -> None:
        """Send it a message; waits until it reads. Raises `HelperGone`."""
        try:
            with self._write_lock:
                self._input.write(data)
                self._input.flush()
        except (OSError, ValueError) as error:
            raise HelperGone(f"{self.title} has ended") from error

    def kill(self) -> None:
        """End it at once, with all it may have started."""
        kill_helper(self._process)  # `_run` reaps it only when its output has ended

    def end(self) -> None:
        """End it and wait until it is gone."""
        self.kill()
        self._ended.wait(END_SECONDS)

    def _run(self) -> None:
        try:
            self.read(self._output)
        except EOFError:
            pass
        except Exception:  # half a message can be unreadable in any way
            log.exception("%s sent an unreadable message; it is killed", self.title)
        self.kill()
        self._process.wait()
        with self._write_lock, contextlib.suppress(OSError):  # what was not sent is lost with the process
            self._input.close()
        self._output.close()
        self._ended.set()
        self.fail_pending()

    @abstractmethod
    def read(self, output: IO[bytes]) -> None:
        """Pass on what it writes, until the end of its output."""

    @abstractmethod
    def fail_pending(self) -> None:
        """Report its end to all who wait for an answer; a later `write` raises `HelperGone`."""


P = TypeVar("P", bound=HelperProcess)


class HelperKeeper(Generic[P]):
    """Keeps one helper process: started when it is first needed, started again when it died. All methods from any
    thread."""

    def __init__(self, process_type: type[P], command: Sequence[str], *, restart_seconds: float = 0.0) -> None:
        """A process that dies within `restart_seconds` is not started again until then."""
        self._process_type = process_type
        self._command = tuple(command)
        self._restart_seconds = restart_seconds
        self._lock = threading.Lock()
        self._running: P | None = None
        self._not_before = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The number of its process, None while there is none."""
        running = self._running
        return running.pid if running is not None and running.is_alive else None

    def running(self) -> P:
        """The process, which is started when there is none. Returns at once. Raises `HelperGone`."""
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
        """End the process; pending requests fail. The next one starts a new process."""
        with self._lock:
            running, self._running = self._running, None
            self._not_before = 0.0
        if running is not None:
            running.end()

    def close(self) -> None:
        """End the process for good: none is started any more."""
        with self._lock:
            self._closed = True
        self.end()

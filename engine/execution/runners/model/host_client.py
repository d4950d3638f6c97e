"""Starts the model host when it is first needed, speaks with it, and kills it when it does not obey.

One process for all sessions, in a process group of its own. Keys travel over its pipe alone. It carries no session's
mark: its life is the engine's, or until `end`, after which the next conversation starts a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue

from engine import programs
from engine.execution.runners.model import host_protocol
from engine.execution.runners.model.host_protocol import Failure, Kind, Message, Model

log = logging.getLogger(__name__)

CANCEL_SECONDS = 0.5
"""Seconds in which the host must cancel a request; after that it is killed."""

WRITE_SECONDS = 10.0
"""Seconds in which the host must read a message, also while it loads its modules."""

END_SECONDS = 0.5
"""Seconds in which the host must exit when its input ends."""

COMMAND = (sys.executable, "-m", "engine.execution.runners.model.host_main")

_WAKE: Message = {"type": "alive"}
"""A message that only makes `Conversation.next_message` return."""


class HostGone(Exception):
    """The host ended, was killed, or does not read its input."""


class ModelHost:
    """Starts and keeps the process. All methods may be called from any thread."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._running: _HostProcess | None = None
        self._closed = False
        self._numbers = itertools.count(1)

    @property
    def pid(self) -> int | None:
        """The number of its process, None while there is none."""
        with self._lock:
            running = self._running
        return running.pid if running is not None and running.is_alive else None

    def start(self) -> None:
        """Start the process, so that the first conversation need not wait. Returns at once. Raises `HostGone`."""
        self._running_process()

    def open_conversation(self) -> Conversation:
        """Make a conversation that is not open yet. Raises `HostGone` when no host can be started."""
        return self._running_process().add(f"c{next(self._numbers)}")

    def end(self) -> None:
        """End the process and wait for it; open conversations fail. The next conversation starts a new host."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.end()

    def close(self) -> None:
        """End it for good: no new host is started."""
        with self._lock:
            self._closed = True
        self.end()

    def _running_process(self) -> _HostProcess:
        with self._lock:
            if self._closed:
                raise HostGone("the engine is closing")
            if self._running is None or not self._running.is_alive:
                try:
                    self._running = _HostProcess(self._command)
                except OSError as error:
                    raise HostGone(f"the model host cannot be started: {error.strerror}") from error
            return self._running


class Conversation:
    """The conversation of one session with one model. `next_message` is for the session's thread, the rest for any."""

    def __init__(self, process: _HostProcess, name: str) -> None:
        self.name = name
        self._process = process
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._cancelled = threading.Event()
        self._is_asking = False
        self._is_cancelling = False

    def open(
        self, model: Model, *, instructions: str, tools: Sequence[Mapping[str, object]], history: Path | None
    ) -> None:
        """Open it at the host, which answers `opened` or `failed`. Raises `HostGone`."""
        self._send(
            "open",
            model=asdict(model),
            instructions=instructions,
            tools=list(tools),
            history=str(history) if history else None,
        )

    def ask(
        self,
        *,
        texts: Sequence[str],
        results: Sequence[Mapping[str, object]],
        max_tokens: int,
        temperature: float | None = None,
    ) -> None:
        """Begin a request; `temperature` None is the model's own. Raises `HostGone`."""
        self._is_asking = True
        self._send("ask", texts=list(texts), results=list(results), max_tokens=max_tokens, temperature=temperature)

    def next_message(self, timeout: float) -> Message | None:
        """The next message, None when none came within `timeout` seconds."""
        try:
            message = self._messages.get(timeout=timeout)
        except Empty:
            return None
        if message["type"] in ("done", "failed"):
            self._is_asking = False
        return message

    def receive(self, message: Message) -> None:
        """Accept a message of the host."""
        if message["type"] in ("cancelled", "failed"):
            self._cancelled.set()
        self._messages.put(message)

    def cancel(self) -> None:
        """Cancel the request. Returns at once; a host that does not cancel within `CANCEL_SECONDS` is killed."""
        self._messages.put(_WAKE)
        if self._is_asking:
            self._is_cancelling = True
            threading.Thread(target=self.cancel_or_kill, name=f"clawpy-cancel-{self.name}", daemon=True).start()

    def close(self) -> None:
        """End the conversation."""
        if self._is_cancelling:
            return  # the thread that waits for the cancellation closes it
        self._process.drop(self.name)
        with contextlib.suppress(HostGone):
            self._send("close")

    def cancel_or_kill(self) -> None:
        """Cancel the request and wait until the host did, or is killed: at most about `CANCEL_SECONDS`."""
        try:
            # A host that hangs may not read the request either.
            with self._process.killed_after(CANCEL_SECONDS, "it did not cancel a request"):
                self._send("cancel")
                self._cancelled.wait(2 * CANCEL_SECONDS)
        except HostGone:
            pass  # then nothing is asked any more
        finally:
            self._process.drop(self.name)

    def _send(self, request: str, **fields: object) -> None:
        self._process.write({"request": request, "conversation": self.name, **fields})


class _HostProcess:
    """One run of the host."""

    def __init__(self, command: Sequence[str]) -> None:
        self._popen = programs.start_helper(command, inherited=programs.NETWORK_VARIABLES)
        self.pid = self._popen.pid
        self._conversations: dict[str, Conversation] = {}
        self._conversations_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="clawpy-model-host", daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still answers."""
        return not self._ended.is_set()

    def add(self, name: str) -> Conversation:
        """A new conversation of this process."""
        conversation = Conversation(self, name)
        with self._conversations_lock:
            self._conversations[name] = conversation
        if self._ended.is_set():
            conversation.receive(_gone_message())
        return conversation

    def drop(self, name: str) -> None:
        """Pass no more messages to a conversation."""
        with self._conversations_lock:
            self._conversations.pop(name, None)

    def write(self, message: Message) -> None:
        """Send the host a message, which it reads at once. Raises `HostGone`."""
        assert self._popen.stdin is not None
        try:
            with self.killed_after(WRITE_SECONDS, "it does not read"), self._write_lock:
                self._popen.stdin.write(host_protocol.encode(message))
                self._popen.stdin.flush()
        except (OSError, ValueError) as error:
            raise HostGone("the model host has ended") from error

    @contextmanager
    def killed_after(self, seconds: float, reason: str) -> Iterator[None]:
        """Kill the host when the block takes longer; a thread that writes to it fails then."""

        def kill() -> None:
            log.warning("the model host is killed: %s", reason)
            self.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it at once, with all it may have started."""
        programs.kill_helper(self._popen)  # `_read` reaps it only when its output has ended

    def end(self) -> None:
        """End its input so that it exits, or kill it; returns when it is gone."""
        if self._write_lock.acquire(timeout=END_SECONDS):
            try:
                self._close_input()
            finally:
                self._write_lock.release()
        if not self._ended.wait(END_SECONDS):
            self.kill()
        self._reader.join(2.0)

    def _close_input(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.close()

    def _read(self) -> None:
        """Pass the messages of the host to their conversations; when it ends, every conversation receives a failure."""
        assert self._popen.stdout is not None
        reason = ""
        try:
            for line in self._popen.stdout:
                message = host_protocol.decode(line)
                if message["type"] == "broken":
                    reason = str(message["message"])
                    continue
                with self._conversations_lock:
                    conversation = self._conversations.get(message["conversation"])
                if conversation is not None:
                    conversation.receive(message)
        except (ValueError, KeyError):
            log.exception("the model host sent an unreadable message; it is killed")
        self.kill()
        self._popen.wait()
        self._popen.stdout.close()
        self._ended.set()
        with self._write_lock:  # a thread that writes just now fails at once
            self._close_input()
        if reason:
            log.error("the model host cannot work: %s", reason)
        with self._conversations_lock:
            conversations, self._conversations = [*self._conversations.values()], {}
        for conversation in conversations:
            conversation.receive(_gone_message(reason))


def _gone_message(reason: str = "") -> Message:
    failure = Failure(Kind.HOST, reason) if reason else Failure(Kind.GONE, "the model host ended")
    return host_protocol.failure_message(failure)

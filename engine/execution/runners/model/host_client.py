"""Speaks with the model host, which is started when it is first needed, and kills it when it does not obey.

One host serves all sessions, as a process with its own process group. Keys reach it only through its pipe. It has no
session's mark, so it does not end with a session: it lives as long as the engine, or until it is ended. The next
conversation then starts a new one.
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
from typing import IO

from engine.execution.runners.model import host_protocol
from engine.execution.runners.model.host_protocol import Failure, FailureKind, Message, Model
from engine.helper_processes import NETWORK_VARIABLES, HelperGone, HelperKeeper, HelperProcess

log = logging.getLogger(__name__)

CANCEL_SECONDS = 0.5
"""Seconds in which the host must cancel a request; after that it is killed."""

WRITE_SECONDS = 10.0
"""Seconds in which the host must read a message, also while it loads its modules."""

COMMAND = (sys.executable, "-m", "engine.execution.runners.model.host_main")

_WAKE: Message = {"type": "alive"}
"""A message that only makes `Conversation.next_message` return."""


class ModelHost(HelperKeeper["_HostProcess"]):
    """Keeps the process, and opens conversations in it."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        super().__init__(_HostProcess, command)
        self._numbers = itertools.count(1)

    def open_conversation(self) -> Conversation:
        """Make a conversation that is not open yet. Raises `HelperGone` when no host can be started."""
        return self.running().add(f"c{next(self._numbers)}")


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
        """Open it at the host, which answers `opened` or `failed`. Raises `HelperGone`."""
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
        """Begin a request; `temperature` None is the model's own. Raises `HelperGone`."""
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
        with contextlib.suppress(HelperGone):
            self._send("close")

    def cancel_or_kill(self) -> None:
        """Cancel the request, and wait until the host has done so or is killed, about `CANCEL_SECONDS` at most."""
        try:
            # A host that hangs may not read the request either.
            with self._process.killed_after(CANCEL_SECONDS, "it did not cancel a request"):
                self._send("cancel")
                self._cancelled.wait(2 * CANCEL_SECONDS)
        except HelperGone:
            pass  # then nothing is asked any more
        finally:
            self._process.drop(self.name)

    def _send(self, request: str, **fields: object) -> None:
        self._process.send({"request": request, "conversation": self.name, **fields})


class _HostProcess(HelperProcess):
    """One run of the host."""

    title = "the model host"
    inherited = NETWORK_VARIABLES

    def __init__(self, command: Sequence[str]) -> None:
        self._conversations: dict[str, Conversation] = {}
        self._lock = threading.Lock()
        self._problem = ""
        super().__init__(command)

    def add(self, name: str) -> Conversation:
        """A new conversation of this process."""
        conversation = Conversation(self, name)
        with self._lock:
            self._conversations[name] = conversation
        return conversation

    def drop(self, name: str) -> None:
        """Pass no more messages to a conversation."""
        with self._lock:
            self._conversations.pop(name, None)

    def send(self, message: Message) -> None:
        """Send the host a message, which it reads at once. Raises `HelperGone`."""
        with self.killed_after(WRITE_SECONDS, "it does not read"):
            self.write(host_protocol.encode(message))

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

    def read(self, output: IO[bytes]) -> None:
        for line in output:
            message = host_protocol.decode(line)
            if message["type"] == "broken":
                self._problem = str(message["message"])
                log.error("the model host cannot work: %s", self._problem)
                continue
            with self._lock:
                conversation = self._conversations.get(message["conversation"])
            if conversation is not None:
                conversation.receive(message)

    def fail_pending(self) -> None:
        gone = Failure(FailureKind.GONE, "the model host ended")
        failure = Failure(FailureKind.HOST, self._problem) if self._problem else gone
        with self._lock:
            conversations, self._conversations = [*self._conversations.values()], {}
        for conversation in conversations:
            conversation.receive(host_protocol.failure_message(failure))

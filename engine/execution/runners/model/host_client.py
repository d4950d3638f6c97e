"""Talks to the model host over a pipe. It starts the host when it is first needed, and kills it if it does not answer.

One host serves all sessions. It is a process with its own process group, and gets keys only through the pipe. It does
not have the mark of a session, so it does not end with one. It ends with the engine, or when it is killed. The next
conversation then starts a new host.

The process runs `main` of this module, which loads `host_server`. It ends as soon as its standard input ends, whatever
it is doing. So no host is left when the engine is gone.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from engine.background import NETWORK_VARIABLES, HelperGone, HelperProcess, HelperSupervisor
from engine.execution.runners.model import (
    Failure,
    FailureKind,
    Message,
    Model,
    decode_message,
    encode_message,
    make_failure_message,
)

log = logging.getLogger(__name__)

CANCEL_S = 0.5
"""Seconds in which the host must cancel a request. After that it is killed."""

WRITE_S = 10.0
"""Seconds in which the host must read a message, even while it loads its modules."""

COMMAND = (sys.executable, "-m", "engine.execution.runners.model.host_client")
"""The command that starts a host."""

_WAKE: Message = {"type": "alive"}
"""A message without content, which makes `Conversation.read_message` return."""


class ModelHost(HelperSupervisor["_HostProcess"]):
    """Keeps the process, and opens conversations in it."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        super().__init__(_HostProcess, command)
        self._numbers = itertools.count(1)

    def open_conversation(self) -> Conversation:
        """Make a conversation, on which `open` must be called. Raises `HelperGone` if no host can be started."""
        return self.get_or_start().add(f"c{next(self._numbers)}")


@dataclass(eq=False)
class Conversation:
    """The conversation of one session with one model. Only the thread of the session may call `read_message`. The other
    methods are thread-safe."""

    process: _HostProcess
    name: str
    _messages: SimpleQueue[Message] = field(default_factory=SimpleQueue)
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _is_asking: bool = False
    _is_cancelling: bool = False

    def open(
        self, model: Model, *, instructions: str, tools: Sequence[Mapping[str, object]], history: Path | None
    ) -> None:
        """Open the conversation at the host, which answers `opened` or `failed`. Raises `HelperGone`."""
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
        """Begin a request. With the `temperature` None, the model uses its default. Raises `HelperGone`."""
        self._is_asking = True
        self._send("ask", texts=list(texts), results=list(results), max_tokens=max_tokens, temperature=temperature)

    def read_message(self, timeout: float) -> Message | None:
        """The next message; None if none came within `timeout` seconds."""
        try:
            message = self._messages.get(timeout=timeout)
        except Empty:
            return None
        if message["type"] in ("done", "failed"):
            self._is_asking = False
        return message

    def receive(self, message: Message) -> None:
        """Queue a message that came from the host."""
        if message["type"] in ("cancelled", "failed"):
            self._cancelled.set()
        self._messages.put(message)

    def cancel(self) -> None:
        """Cancel the request. Returns at once. The host is killed if it does not cancel within `CANCEL_S`."""
        self._messages.put(_WAKE)
        if self._is_asking:
            self._is_cancelling = True
            threading.Thread(target=self.cancel_or_kill, name=f"clawpy-cancel-{self.name}", daemon=True).start()

    def close(self) -> None:
        """End the conversation."""
        if self._is_cancelling:
            return  # the thread that waits for the cancellation closes it
        self.process.drop(self.name)
        with contextlib.suppress(HelperGone):
            self._send("close")

    def cancel_or_kill(self) -> None:
        """Cancel the request, and wait until the host has cancelled it or is killed, for about `CANCEL_S` at
        most."""
        try:
            # A host that hangs may not read the request either.
            with self.process.killed_after(CANCEL_S, "it did not cancel a request"):
                self._send("cancel")
                self._cancelled.wait(2 * CANCEL_S)
        except HelperGone:
            pass  # without a host there is no request
        finally:
            self.process.drop(self.name)

    def _send(self, request: str, **fields: object) -> None:
        self.process.send({"request": request, "conversation": self.name, **fields})


class _HostProcess(HelperProcess):
    """One process of the host."""

    title = "the model host"
    inherited_variables = NETWORK_VARIABLES

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
        """Forget a conversation, so that it gets no more messages."""
        with self._lock:
            self._conversations.pop(name, None)

    def send(self, message: Message) -> None:
        """Send the host a message. If it does not read it soon, it is killed. Raises `HelperGone`."""
        with self.killed_after(WRITE_S, "it does not read"):
            self.write(encode_message(message))

    @contextmanager
    def killed_after(self, seconds: float, reason: str) -> Iterator[None]:
        """Kill the host if the block takes longer than `seconds`. A thread that waits for the pipe then gets an
        error."""

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
        """Give each message to its conversation, until the host ends."""
        for line in output:
            message = decode_message(line)
            if message["type"] == "broken":
                self._problem = str(message["message"])
                log.error("the model host cannot work: %s", self._problem)
                continue
            with self._lock:
                conversation = self._conversations.get(message["conversation"])
            if conversation is not None:
                conversation.receive(message)

    def fail_pending(self) -> None:
        """Report to all conversations that the host has ended."""
        gone = Failure(FailureKind.GONE, "the model host ended")
        failure = Failure(FailureKind.HOST, self._problem) if self._problem else gone
        with self._lock:
            conversations, self._conversations = [*self._conversations.values()], {}
        for conversation in conversations:
            conversation.receive(make_failure_message(failure))


# -- in the process of the host


def main() -> None:
    """Answer the messages on standard input until it ends."""
    output_fd = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the messages
    input_lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            input_lines.put(line)
        os._exit(0)

    # Messages are read from the beginning, even while the large modules are loaded.
    threading.Thread(target=read, daemon=True).start()
    try:
        from engine.execution.runners.model import host_server

        host_server.serve(input_lines, output_fd)
    except BaseException as error:
        message = encode_message({"type": "broken", "message": f"{type(error).__name__}: {error}"})
        os.write(output_fd, message)
    os._exit(1)


if __name__ == "__main__":
    main()

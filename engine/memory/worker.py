"""Memory's helper process: embeds texts and keeps the Chroma index. Started by `helper`.

Both hold Python's lock for long, so that they must not live where the screen does. It ends when its standard input
does, whatever it is doing: an engine that is gone leaves no helper behind.

Three lanes: questions, which somebody waits for; texts that are remembered, at low priority; and the index, which
answers questions before it takes anything new.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from queue import PriorityQueue, SimpleQueue
from typing import Any

from engine.memory import wire
from engine.memory.minilm import MiniLM
from engine.memory.wire import Message

BULK_THREADS = max(1, min(2, os.cpu_count() or 1))
BULK_NICE = 10

Answer = Callable[[Message], None]


class Lanes:
    """Takes requests from one thread, and answers from its own."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._model = MiniLM()
        self._index: Any = None
        self._numbers = itertools.count()
        self._questions: SimpleQueue[Message] = SimpleQueue()
        self._bulk: SimpleQueue[Message] = SimpleQueue()
        self._indexing: PriorityQueue[tuple[int, int, Message]] = PriorityQueue()
        self._start(self._run_questions)
        for _ in range(BULK_THREADS):
            self._start(self._run_bulk)
        self._start(self._run_index)

    def take(self, message: Message) -> None:
        """Put a request on its lane."""
        match message.head["do"]:
            case "embed" | "offsets":
                (self._questions if message.head.get("now") else self._bulk).put(message)
            case other:
                waits = 0 if other == "query" else 1
                self._indexing.put((waits, next(self._numbers), message))

    def _start(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, daemon=True).start()

    def _run_questions(self) -> None:
        while True:
            self._reply(self._questions.get(), self._embed)

    def _run_bulk(self) -> None:
        if sys.platform == "linux":  # a thread has a priority of its own there; elsewhere it is the process that has
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BULK_NICE)
        while True:
            self._reply(self._bulk.get(), self._embed)

    def _run_index(self) -> None:
        while True:
            self._reply(self._indexing.get()[2], self._do_index)

    def _reply(self, message: Message, work: Callable[[Message], Message]) -> None:
        number = message.head["n"]
        try:
            done = work(message)
            self._answer(Message({**done.head, "n": number}, done.body))
        except Exception as error:
            self._answer(Message({"n": number, "error": f"{type(error).__name__}: {error}"[:500]}))

    def _embed(self, message: Message) -> Message:
        if message.head["do"] == "offsets":
            return Message({"offsets": self._model.offsets(message.head["text"])})
        head = message.head
        made = [self._model.embed(text, own=own) for text, own in zip(head["texts"], head["keep"], strict=True)]
        body = b"".join(one.vector for one in made) + b"".join(one.kept for one in made)
        answer: dict[str, Any] = {"kept": [len(one.kept) for one in made]}
        if head["now"]:
            answer["tokens"] = [one.tokens for one in made]
        return Message(answer, body)

    def _do_index(self, message: Message) -> Message:
        if self._index is None:
            from engine.memory.chroma import Chroma  # a second, and 60 MB

            self._index = Chroma()
        head: Mapping[str, Any] = message.head
        match head["do"]:
            case "open":
                self._index.open(head["folder"], head["stamp"])
                return Message({})
            case "connect":
                self._index.connect(**{name: head[name] for name in ("url", "database", "token", "stamp", "clear")})
                return Message({})
            case "ids":
                return Message({"ids": self._index.ids(head["layer"], head["offset"], head["limit"])})
            case "add":
                self._index.add(head["layer"], head["ids"], message.body)
                return Message({})
            case "delete":
                self._index.delete(head["layer"], head["ids"])
                return Message({})
            case "query":
                ids, distances = self._index.query(head["layer"], message.body, head["k"])
                return Message({"ids": ids, "distances": distances})
        raise ValueError(f"unknown request: {head['do']!r}")


def main() -> None:
    """Answer what comes on standard input until it ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the messages
    writing = threading.Lock()

    def answer(message: Message) -> None:
        data = memoryview(wire.encode(message))
        with writing:
            while data:
                data = data[os.write(answers, data) :]

    lanes = Lanes(answer)
    while (message := wire.read(sys.stdin.buffer)) is not None:
        lanes.take(message)
    os._exit(0)


if __name__ == "__main__":
    main()

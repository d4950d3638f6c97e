"""Memory's helper process: answers requests for the local model and the Chroma index. Started by `helper`.

Both hold Python's interpreter lock for long, which would freeze the screen in the engine's process. The helper ends
when its standard input closes, so that it does not outlive its engine.

It has three lanes: questions, for which somebody waits; texts that are remembered, at low priority; and the index,
which answers searches before it adds vectors.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from queue import PriorityQueue

from engine.memory.chroma_index import ChromaIndex
from engine.memory.helper import Answer, Request
from engine.memory.local_model import MiniLM

BULK_THREADS = max(1, min(2, os.cpu_count() or 1))
BULK_NICE = 10
MODEL_METHODS = frozenset({"embed_question", "embed_passage", "offsets"})
"""Methods of the model. All others are methods of the index."""


class RequestLanes:
    """Takes requests from one thread, and answers them in threads of its own."""

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        self._answer = answer
        model = MiniLM()
        self._questions = self._start_lane(model)
        self._bulk = self._start_lane(model, threads=BULK_THREADS, nice=BULK_NICE)
        self._indexing = self._start_lane(ChromaIndex())

    def submit(self, request: Request) -> None:
        """Put a request on its lane."""
        lane = self._bulk if request.bulk else self._questions
        (lane if request.method in MODEL_METHODS else self._indexing).put(request)

    def _start_lane(self, target: MiniLM | ChromaIndex, *, threads: int = 1, nice: int = 0) -> PriorityQueue[Request]:
        requests: PriorityQueue[Request] = PriorityQueue()

        def run() -> None:
            if nice and sys.platform == "linux":  # a thread has a priority of its own there; elsewhere the process has
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
            while True:
                request = requests.get()
                try:
                    answer = Answer(request.number, getattr(target, request.method)(*request.arguments))
                except Exception as error:
                    answer = Answer(request.number, None, f"{type(error).__name__}: {error}"[:500])
                self._answer(answer)

        for _ in range(threads):
            threading.Thread(target=run, daemon=True).start()
        return requests


def main() -> None:
    """Answer the requests on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    write_lock = threading.Lock()

    def send(answer: Answer) -> None:
        with write_lock:
            pickle.dump(tuple(answer), answers)
            answers.flush()

    lanes = RequestLanes(send)
    while True:
        try:
            request = Request(*pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)
        lanes.submit(request)


if __name__ == "__main__":
    main()

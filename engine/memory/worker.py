"""Memory's helper process: embeds texts and keeps the Chroma index. Started by `helper`.

Both hold Python's lock for long, so that they must not live where the screen does. It ends when its standard input
does, whatever it is doing: an engine that is gone leaves no helper behind.
"""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    """Answer what comes on standard input until it ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the messages
    from engine.memory import wire

    writing = threading.Lock()

    def answer(message: wire.Message) -> None:
        data = memoryview(wire.encode(message))
        with writing:
            while data:
                data = data[os.write(answers, data) :]

    from engine.memory.working import Lanes

    lanes = Lanes(answer)
    while (message := wire.read(sys.stdin.buffer)) is not None:
        lanes.take(message)
    os._exit(0)


if __name__ == "__main__":
    main()

"""The model host: a process of its own that speaks to providers of models. Started by `client`.

It ends when its standard input does, whatever it is doing: an engine that is gone leaves no host behind.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from engine.execution.runners.model import wire


def main() -> None:
    """Answer what comes on standard input until it ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the messages
    lines: SimpleQueue[bytes] = SimpleQueue()
    arrived = threading.Event()
    told: list[object] = []

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
            arrived.set()
            for wake in told:
                wake()  # type: ignore[operator]
        os._exit(0)

    # Read from the first moment, also while the heavy modules are loaded.
    threading.Thread(target=read, daemon=True).start()
    try:
        from engine.execution.runners.model import hosting

        hosting.serve(lines, told.append, answers)
    except BaseException as error:
        broken = wire.encode({"is": "broken", "message": f"{type(error).__name__}: {error}"})
        os.write(answers, broken)
    os._exit(1)


if __name__ == "__main__":
    main()

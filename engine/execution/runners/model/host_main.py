"""The model host: a process of its own that speaks to providers of models. Started by `host_client`.

It ends when its standard input does, whatever it is doing: an engine that is gone leaves no host behind.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from engine.execution.runners.model import host_protocol


def main() -> None:
    """Answer what comes on standard input until it ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the messages
    lines: SimpleQueue[bytes] = SimpleQueue()
    arrived = threading.Event()
    wakers: list[object] = []

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
            arrived.set()
            for wake in wakers:
                wake()  # type: ignore[operator]
        os._exit(0)

    # Read from the first moment, also while the heavy modules are loaded.
    threading.Thread(target=read, daemon=True).start()
    try:
        from engine.execution.runners.model import host_server

        host_server.serve(lines, wakers.append, answers)
    except BaseException as error:
        message = host_protocol.encode({"is": "broken", "message": f"{type(error).__name__}: {error}"})
        os.write(answers, message)
    os._exit(1)


if __name__ == "__main__":
    main()

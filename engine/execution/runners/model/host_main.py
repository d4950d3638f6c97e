"""The main module of the model host, a process that talks to providers of models. `host_client` starts it.

It ends as soon as its standard input ends, whatever it is doing. So no host is left when the engine is gone.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from engine.execution.runners.model import host_protocol


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
        message = host_protocol.encode({"type": "broken", "message": f"{type(error).__name__}: {error}"})
        os.write(output_fd, message)
    os._exit(1)


if __name__ == "__main__":
    main()

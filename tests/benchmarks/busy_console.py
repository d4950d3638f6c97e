"""Runs a console whose engine records events at an even rate once its gateway has a client, for
`test_key_latency_gateway`: `python -m tests.benchmarks.busy_console --home DIR`.
"""

import sys
import threading
import time
from typing import Any

from clawpy_console import cli
from clawpy_console.__main__ import main as run_clawpy
from engine.home import Home
from tests.benchmarks.event_writer import EventWriter


def main() -> int:
    """Run `clawpy` with an engine that records events."""
    open_engine = cli.open_engine

    def open_busy_engine(home: Home, **options: Any) -> Any:
        engine = open_engine(home, **options)

        def write():
            while engine.gateway.state().clients == 0:
                time.sleep(0.2)
            EventWriter(engine, "pred_nobodys").run(10_000.0)

        threading.Thread(target=write, daemon=True).start()
        return engine

    cli.open_engine = open_busy_engine
    return run_clawpy()  # the console is opened in a forked process, which has this engine


if __name__ == "__main__":
    sys.exit(main())

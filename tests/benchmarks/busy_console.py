"""The console, in whose engine facts happen at an even rate as soon as somebody listens to its gateway:
`python -m tests.benchmarks.busy_console --home DIR`.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from clawpy_console.__main__ import main as run_clawpy
from clawpy_console.cli import main as cli
from engine.home import Home
from tests.benchmarks.test_pulse import Writer


def main() -> int:
    """Run `clawpy` with an engine that writes."""
    really = cli.open_engine

    def opened(home: Home, **options: Any) -> Any:
        engine = really(home, **options)

        def write() -> None:
            while engine.gateway.state().clients == 0:
                time.sleep(0.2)
            Writer(engine, "pred_nobodys").run(10_000.0)

        threading.Thread(target=write, daemon=True).start()
        return engine

    cli.open_engine = opened
    return run_clawpy()  # the console is opened in a forked process, which has this engine


if __name__ == "__main__":
    sys.exit(main())

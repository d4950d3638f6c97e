"""Waits for what real processes, threads and servers do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 10.0, describe: Callable[[], str] = str) -> None:
    """Wait for `condition`; fail with what `describe` says when it does not come true within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen in {seconds} s: {describe()}"
        time.sleep(0.01)

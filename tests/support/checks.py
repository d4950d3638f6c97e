"""What tests check in many places: a refusal, parts of a text, and what comes true in a while."""

import threading
import time
from collections.abc import Callable

import pytest

from engine.model import Refusal


def refused(code: str, action: Callable[[], object]) -> Refusal:
    """Check that an action is refused with this code and an advice, and return the refusal."""
    with pytest.raises(Refusal) as refusal:
        action()
    assert refusal.value.code == code
    assert refusal.value.fix
    return refusal.value


def assert_contains(text: str, *parts: str):
    """Check that `text` contains each of the `parts`."""
    missing = [part for part in parts if part not in text]
    assert missing == [], text


def wait_until(condition: Callable[[], object], seconds: float = 15.0, describe: Callable[[], str] = str):
    """Wait for a process, thread or server until `condition` is true.

    After `seconds` the test fails, with what `describe` returns.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in {seconds} s: {describe()}"
        time.sleep(0.01)


def wait_for_threads(beginning: str):
    """Wait until no thread is alive whose name begins like this."""
    wait_until(lambda: not any(thread.name.startswith(beginning) for thread in threading.enumerate()))

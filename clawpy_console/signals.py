"""Handles signals in another way for a while."""

from __future__ import annotations

import signal
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


@contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Have signals handled by `handlers`, and afterwards as before."""
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

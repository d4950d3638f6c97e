"""Full garbage collections wait until nobody types."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from clawpy_console.attach.host import DUE, IDLE_S, OVERDUE, GarbageCollector


@pytest.fixture
def restore_collector() -> Iterator[None]:
    """Puts the interpreter's collector and its switch interval back."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.long
def test_full_collections_wait_until_nobody_types(restore_collector: None) -> None:
    now = [0.0]
    collector = GarbageCollector(lambda: now[0])

    def young(count: int) -> None:
        for _ in range(count):
            gc.collect(1)

    def waiting() -> int:
        return gc.get_count()[2]

    collector.collect_if_due()  # before the beginning the interpreter does it by itself
    collector.take_over()
    young(DUE)
    collector.note_key()
    now[0] = IDLE_S - 0.1
    collector.collect_if_due()
    assert waiting() >= DUE, "a key was pressed just now"
    now[0] = IDLE_S
    collector.collect_if_due()
    assert waiting() == 0
    young(DUE // 2)
    collector.collect_if_due()
    assert waiting() >= DUE // 2, "none is due"
    collector.note_key()
    young(OVERDUE)
    collector.collect_if_due()
    assert waiting() == 0, "who types on and on does not keep the rubbish for ever"

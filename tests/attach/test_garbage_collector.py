"""Garbage is collected while nobody types (SPEC 11.4)."""

import gc
import sys
from collections.abc import Iterator

import pytest

from clawpy_console.attach import DUE_COLLECTIONS, IDLE_S, OVERDUE_COLLECTIONS, GarbageCollector


@pytest.fixture(autouse=True)
def _restore_collector() -> Iterator[None]:
    """Puts the interpreter's collector and its switch interval back."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.long
def test_full_collections_wait_until_nobody_types():
    seconds = 0.0
    collector = GarbageCollector(lambda: seconds)

    def collect_middle_generation(times: int):
        for _ in range(times):
            gc.collect(1)

    def count_collections_since_full() -> int:
        """The number of collections of the middle generation since the last full one."""
        return gc.get_count()[2]

    collector.collect_if_due()  # not active yet: the interpreter does it by itself
    collector.take_over_full_collections()
    collect_middle_generation(DUE_COLLECTIONS)
    collector.note_key()
    seconds = IDLE_S - 0.1
    collector.collect_if_due()
    assert count_collections_since_full() >= DUE_COLLECTIONS, "a key was pressed just now"
    seconds = IDLE_S
    collector.collect_if_due()
    assert count_collections_since_full() == 0
    collect_middle_generation(DUE_COLLECTIONS // 2)
    collector.collect_if_due()
    assert count_collections_since_full() >= DUE_COLLECTIONS // 2, "none is due"
    collector.note_key()
    collect_middle_generation(OVERDUE_COLLECTIONS)
    collector.collect_if_due()
    assert count_collections_since_full() == 0, "an overdue one comes while keys are pressed"

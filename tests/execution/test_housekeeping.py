"""Housekeeping: when a full disk is urgent, and which caches of a workspace are kept (SPEC 3.8)."""

import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.housekeeping import MAX_UNUSED_S, NOT_URGENT_BYTES, URGENT_BYTES, Caches, is_urgent


def fill_cache(caches: Caches, head: str):
    """Use a cache for a commit that descends from no other, and leave a file of this name in it."""
    with caches.use_cache("/srv/shop", head, lambda commit: False) as folder:
        (folder / head).touch()


def list_caches(folder: Path) -> list[Path]:
    """The files of `fill_cache` that are left, by their names."""
    return sorted(folder.glob("*/*/files/*"), key=lambda file: file.name)


@given(st.booleans(), st.lists(st.integers(0, 5_000_000_000)))
def test_an_urgent_disk_stays_urgent_up_to_the_second_limit(before: bool, sizes: list[int]):
    limits = (URGENT_BYTES - 1, URGENT_BYTES, NOT_URGENT_BYTES - 1, NOT_URGENT_BYTES)
    for free in [*sizes, *limits, *reversed(limits)]:
        after = is_urgent(free, before=before)
        assert after is (free < URGENT_BYTES or (before and free < NOT_URGENT_BYTES))
        before = after


def test_a_workspace_keeps_its_last_three_caches(tmp_path: Path):
    caches = Caches(tmp_path)
    for head in "abcdef":
        fill_cache(caches, head)
    assert [file.name for file in list_caches(tmp_path)] == ["d", "e", "f"]


def test_a_cache_that_no_session_used_for_long_is_swept(tmp_path: Path):
    caches = Caches(tmp_path)
    for head in "ab":
        fill_cache(caches, head)
    unused, used = (file.parent.parent for file in list_caches(tmp_path))
    long_ago = time.time() - MAX_UNUSED_S - 1
    os.utime(unused / "head", (long_ago, long_ago))
    (tmp_path / "workspace" / "without a head").mkdir(parents=True)
    caches.sweep()
    assert [*tmp_path.iterdir(), *tmp_path.glob("*/*")] == [used.parent, used]

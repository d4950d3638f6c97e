"""Housekeeping: when a full disk is urgent, and which caches of a workspace are kept (SPEC 3.8)."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.housekeeping import NOT_URGENT_BYTES, URGENT_BYTES, Caches, is_urgent


@given(st.booleans(), st.lists(st.integers(0, 5_000_000_000)))
def test_an_urgent_disk_stays_urgent_up_to_the_second_limit(before: bool, sizes: list[int]) -> None:
    limits = (URGENT_BYTES - 1, URGENT_BYTES, NOT_URGENT_BYTES - 1, NOT_URGENT_BYTES)
    for free in [*sizes, *limits, *reversed(limits)]:
        after = is_urgent(free, before=before)
        assert after is (free < URGENT_BYTES or (before and free < NOT_URGENT_BYTES))
        assert after is before or free < URGENT_BYTES or free >= NOT_URGENT_BYTES
        before = after


def test_a_workspace_keeps_three_caches_and_the_unused_are_swept(tmp_path: Path) -> None:
    caches = Caches(tmp_path / "build")
    for head in "abcdef":
        with caches.use_cache("/srv/shop", head, lambda commit: False) as folder:
            (folder / head).touch()
    names = sorted(path.name for path in tmp_path.glob("build/*/*/files/*"))
    assert names == ["d", "e", "f"]
    (tmp_path / "build" / "left" / "mypy").mkdir(parents=True)
    caches.sweep()
    assert not (tmp_path / "build" / "left").exists()
    assert sorted(path.name for path in tmp_path.glob("build/*/*/files/*")) == names

"""Housekeeping on the disk: when it is nearly full, and which caches stay (SPEC 3.8)."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.execution.housekeeping import MAX_UNUSED_S, NOT_URGENT_BYTES, URGENT_BYTES, Caches, Housekeeping
from engine.home import Home


def test_an_urgent_disk_stays_urgent_up_to_the_second_limit(
    tmp_path: Path, clock: FakeClock, caches: Caches, monkeypatch: pytest.MonkeyPatch
):
    changes: Any = SimpleNamespace(worktrees=SimpleNamespace(list_sessions=dict))
    housekeeping = Housekeeping(Home.locate(tmp_path), clock, changes=changes, caches=caches, list_running=tuple)
    limits = (URGENT_BYTES, URGENT_BYTES - 1, NOT_URGENT_BYTES - 1, NOT_URGENT_BYTES, URGENT_BYTES)
    disks = []
    for free in limits:
        monkeypatch.setattr(housekeeping, "read_free_space", lambda free=free: (free, 1 << 62))
        disks.append(housekeeping.find_full_disk())
    assert [disk.urgent for disk in disks] == [False, True, True, False, False]


@pytest.fixture
def caches(tmp_path: Path) -> Caches:
    """With a cache for each of six commits that descend from no other, and a file of its name in it."""
    caches = Caches(tmp_path)
    for head in "abcdef":
        with caches.use_cache("/srv/shop", head, lambda commit: False) as folder:
            (folder / head).touch()
    return caches


def test_a_workspace_keeps_its_last_three_caches(tmp_path: Path, caches: Caches):
    assert sorted(file.name for file in tmp_path.glob("*/*/files/*")) == ["d", "e", "f"]


def test_a_cache_that_no_session_used_for_long_is_swept(tmp_path: Path, caches: Caches):
    unused, *used = (file.parent.parent for file in tmp_path.glob("*/*/files/*"))
    long_ago = time.time() - MAX_UNUSED_S - 1
    os.utime(unused / "head", (long_ago, long_ago))
    (tmp_path / "workspace" / "without a head").mkdir(parents=True)
    caches.sweep()
    assert {*tmp_path.glob("*/*")} == {*used}

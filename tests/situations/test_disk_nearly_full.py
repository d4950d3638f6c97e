"""The disk is nearly full, and caches of clawpy are a good part of what could be freed."""

from __future__ import annotations

import pytest

from engine.execution import housekeeping
from engine.model import ChangeState
from engine.prediction.templates import changes
from tests.situations.conftest import Situation


@pytest.mark.long
def test_caches_go_and_undecided_work_stays(monday: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monday.commit_shop()
    culprit = monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=1)
    waiting = monday.approve(monday.propose(f"rehearse_revert commit={culprit}"))
    assert waiting.change_set_id is not None
    assert "reclaim_space" not in monday.kinds()

    # No test can fill a disk: what counts as nearly full is any disk, and as worth it any byte.
    monkeypatch.setattr(housekeeping, "MIN_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(housekeeping, "MIN_FREE_SHARE", 1.1)
    monkeypatch.setattr(changes, "MIN_SPACE", 1)
    monkeypatch.setattr(changes, "MAX_FREE_RATIO", 1 << 40)
    slot = monday.home / "cache" / "build" / "0123456789abcdef" / "0"
    (slot / "files").mkdir(parents=True)
    (slot / "head").write_text("x")
    (slot / "files" / "big").write_bytes(b"0" * 3_000_000)
    monday.advance(hours=1)

    card = monday.card("reclaim_space")
    assert card.assignment.prompt.startswith("Remove 0.0 GB of old worktrees and caches")
    done = monday.approve(card)
    assert done.summary.startswith("Freed 3.0 MB: ")
    assert not slot.exists()
    assert "1 worktree of undecided work kept" in monday.transcript(done)
    change = monday.engine.changes.get(waiting.change_set_id)
    assert change.state is ChangeState.WAITING
    monday.engine.changes.land(change.id)  # nothing of it is lost

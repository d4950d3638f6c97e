"""Upkeep, each at its moment: a full disk, the evening; and the times when nothing is wrong."""

from __future__ import annotations

import pytest

from engine.execution import housekeeping
from engine.model import ChangeState, Tier
from engine.prediction.templates import changes
from tests.situations.conftest import Situation

# Everything is committed, pushed and green: nothing stands in front of you.


@pytest.mark.long
def test_a_clean_pushed_and_tested_project_has_no_cards_at_any_hour(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    for _ in range(8):
        assert monday.kinds() == []
        monday.advance(hours=3)


@pytest.mark.long
def test_the_first_run_of_the_tests_is_an_upkeep_card(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    assert monday.kinds() == ["first_run"]
    done = monday.approve(monday.cards()[0])
    assert done.summary.startswith("The one test passed")
    assert monday.kinds() == []


def test_a_repository_without_a_commit_has_no_cards(monday: Situation) -> None:
    assert monday.kinds() == []
    monday.write("notes.txt", "buy milk\n")
    assert monday.kinds() == []


def test_a_repository_of_texts_has_no_cards(monday: Situation) -> None:
    monday.commit("Letters", {"letter.txt": "Dear Ada\n"}, days_ago=3)
    monday.write("letter.txt", "Dear Ada,\n")
    assert monday.kinds() == []


# The disk is nearly full, and caches of clawpy are a good part of what could be freed.


@pytest.mark.long
def test_on_a_full_disk_caches_go_and_undecided_work_stays(monday: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monday.commit_shop()
    culprit = monday.commit("Faster", {"cart.py": "def total(prices):\n    return sum(prices) + 0\n"}, days_ago=1)
    waiting = monday.approve(monday.propose(f"rehearse_revert commit={culprit}"))
    assert waiting.change_set_id is not None
    assert "reclaim_space" not in monday.kinds()

    # No test can fill a disk: what counts as nearly full is any disk, and as worth it any byte.
    monkeypatch.setattr(housekeeping, "NEARLY_FULL_BYTES", 1 << 62)
    monkeypatch.setattr(housekeeping, "NEARLY_FULL_SHARE", 1.1)
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


@pytest.fixture
def pushed(monday: Situation) -> Situation:
    """A project of which everything is pushed and tested."""
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    return monday


def commit_and_push(monday: Situation) -> None:
    monday.commit("A coupon", {"notes.md": "Coupons\n"}, days_ago=0)
    monday.git("push", "-q", "origin", "main")


@pytest.mark.long
def test_the_day_is_summed_up_in_the_evening_after_own_work(pushed: Situation) -> None:
    commit_and_push(pushed)
    assert "summarise_day" not in pushed.kinds()
    pushed.advance(hours=10)
    done = pushed.approve(pushed.first("summarise_day", Tier.UPKEEP))
    assert "1 commit" in done.summary
    assert "A coupon" in pushed.transcript(done)


def test_a_day_without_own_work_is_not_summed_up(pushed: Situation) -> None:
    pushed.advance(hours=10)
    assert pushed.kinds() == []


def test_the_day_is_not_summed_up_at_two_in_the_morning(pushed: Situation) -> None:
    commit_and_push(pushed)
    pushed.advance(hours=17)
    assert pushed.kinds() == []

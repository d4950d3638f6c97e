"""The cards of upkeep, each at its moment: stashes, branches, a full disk, the evening, a late release (SPEC 2.11).

A repository in which everything is committed, pushed and tested has no card.
"""

import shutil

import pytest

from engine.execution import housekeeping
from engine.model import ChangeState, SessionState, Tier
from engine.prediction.templates import failures
from tests.situations.situation import HARMLESS_TOTAL, ROUNDED_TOTAL, Situation

CHANGE_LOG = "# Changelog\n\n## 1.0.0\n\n- The shop\n"


@pytest.fixture
def finished(pushed: Situation) -> Situation:
    """A project of which everything is pushed and tested."""
    pushed.record_test_run()
    return pushed


def commit_and_push(situation: Situation):
    situation.commit("A coupon", {"notes.md": "Coupons\n"}, days_ago=0)
    situation.git("push", "-q", "origin", "main")


# Everything is committed, pushed and tested: there are no cards.


@pytest.mark.long
def test_a_clean_pushed_and_tested_project_has_no_cards_at_any_hour(finished: Situation):
    for _ in range(8):
        assert finished.predict_kinds() == []
        finished.advance(hours=3)


@pytest.mark.long
def test_the_first_run_of_the_tests_comes_before_upkeep(situation: Situation):
    situation.commit_shop(days_ago=0)
    situation.add_remote()
    assert situation.predict_kinds() == ["first_run"]
    situation.advance(hours=10)
    assert situation.predict_kinds() == ["first_run", "summarise_day"]
    session = situation.approve(situation.predict_top_card("first_run"))
    assert session.summary.startswith("The one test passed")
    assert situation.predict_kinds() == ["summarise_day"]


# The disk is nearly full, and the caches of clawpy are a large part of what could be freed.


@pytest.mark.long
def test_on_a_full_disk_caches_go_and_undecided_work_stays(shop: Situation, monkeypatch: pytest.MonkeyPatch):
    culprit = shop.commit("Faster", {"cart.py": HARMLESS_TOTAL}, days_ago=1)
    waiting = shop.approve(shop.propose(f"rehearse_revert commit={culprit}"))
    assert waiting.change_set_id is not None
    assert "reclaim_space" not in shop.predict_kinds()

    # No test can fill a disk. So any disk counts as nearly full, and any byte is worth freeing.
    monkeypatch.setattr(housekeeping, "NEARLY_FULL_BYTES", 1 << 62)
    monkeypatch.setattr(housekeeping, "NEARLY_FULL_SHARE", 1.1)
    monkeypatch.setattr(failures, "MIN_FREE_BYTES", 1)
    monkeypatch.setattr(failures, "MAX_FREE_RATIO", 1 << 40)
    slot = shop.home / "cache" / "build" / "0123456789abcdef" / "0"
    (slot / "files").mkdir(parents=True)
    (slot / "head").write_text("x")
    (slot / "files" / "big").write_bytes(b"0" * 3_000_000)
    shop.advance(hours=1)

    card = shop.predict_card("reclaim_space")
    assert card.assignment.prompt.startswith("Remove 0.0 GB of old worktrees and caches")
    assert card.undo_note == "not possible; what was removed is made again when it is needed"
    session = shop.approve(card)
    assert session.summary.startswith("Freed 3.0 MB: ")
    assert not slot.exists()
    assert "1 worktree of undecided work kept" in shop.read_transcript(session)
    change = shop.engine.changes.get(waiting.change_set_id)
    assert change.state is ChangeState.WAITING
    shop.engine.changes.land(change.id)  # nothing of it is lost


# The day is summed up in the evening, if you committed something.


@pytest.mark.long
def test_the_day_is_summed_up_in_the_evening_with_the_commits_of_all_branches(finished: Situation):
    finished.checkout("-b", "coupons")
    finished.commit("Another coupon", {"notes.md": "Coupon\n"}, days_ago=0)
    finished.checkout("main")
    commit_and_push(finished)
    assert "summarise_day" not in finished.predict_kinds()
    finished.advance(hours=10)
    card = finished.predict_card("summarise_day")
    assert (card.assignment.prompt, card.tier) == ("Sum up today: 2 commits", Tier.UPKEEP)
    session = finished.approve(card)
    assert session.summary.startswith("2 commits, ")
    assert "A coupon" in finished.read_transcript(session)


# A release is late, or prepared.


def release_weekly(situation: Situation):
    """Six releases a week apart, four commits each, the last three weeks ago."""
    situation.commit("The shop", {"cart.py": "0\n"}, days_ago=70)
    for week in range(6):
        for number in range(4):
            situation.commit(
                f"Add a discount {week}.{number}", {"cart.py": f"{week}.{number}\n"}, days_ago=63 - 7 * week - number
            )
        situation.git("tag", f"v1.{week}.0")


@pytest.mark.long
def test_a_late_release_is_named(situation: Situation):
    release_weekly(situation)
    for number in range(6):
        situation.commit(f"Fix the total of {number} carts", {"cart.py": f"new {number}\n"}, days_ago=6 - number)
    card = situation.predict_card("release_due", Tier.UPKEEP)
    assert card.reasoning == (
        "A release usually comes after 7 days and 4 commits; it has been 25 days and 6 commits since v1.5.0."
    )

    session = situation.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert session.summary == "6 commits since v1.5.0, 6 that users notice: 6 fixed"


@pytest.mark.long
def test_the_change_log_comes_first_and_only_when_a_release_is_prepared(situation: Situation):
    situation.commit("The shop", {"cart.py": "0\n", "CHANGELOG.md": CHANGE_LOG}, days_ago=20)
    situation.git("tag", "v1.0.0")
    situation.commit("Fix the total", {"cart.py": "1\n"}, days_ago=3)
    assert not {"draft_changelog", "release_due"} & set(situation.predict_kinds())

    situation.commit("Bump version to 1.1.0", {"version.py": '"1.1.0"\n'}, days_ago=1)
    card = situation.predict_card("draft_changelog", Tier.UPKEEP)
    assert card.reasoning == "“Bump version to 1.1.0” prepares a release, and no tag names it yet."

    situation.commit("Change log", {"CHANGELOG.md": CHANGE_LOG + "- The total\n"}, days_ago=0.5)
    kinds = situation.predict_kinds()
    assert "release_due" in kinds
    assert "draft_changelog" not in kinds

    situation.git("tag", "v1.1.0")
    assert "release_due" not in situation.predict_kinds()


# Stashes and branches are left lying.


@pytest.mark.long
def test_old_stashes_are_compared_with_head_and_stay(shop: Situation):
    shop.write("cart.py", ROUNDED_TOTAL)
    shop.git("stash", "push", "-q", "-m", "rounding", days_ago=22)
    shop.write("größe neu.txt", "a\n")
    shop.git("stash", "push", "-q", "-u", days_ago=21)
    shop.commit("Round the total", {"cart.py": ROUNDED_TOTAL}, days_ago=20)
    assert shop.git("stash", "list").count("\n") == 1

    card = shop.predict_card(
        "old_stash", Tier.UPKEEP, "Look at 2 old stashes: what is in them, and do they still apply?"
    )
    assert card.reasoning == (
        "“rounding” made on main with cart.py has been waiting since 14 December 2025, and 1 other older than two "
        "weeks."
    )
    session = shop.approve(card)
    assert "stash@{1} (rounding): already in HEAD" in session.summary
    assert "stash@{0} (" in session.summary
    assert ": still applies" in session.summary
    assert "`git stash drop stash@{1}`" in shop.read_transcript(session)
    assert shop.git("stash", "list").count("\n") == 1, "the stashes stay"


def test_a_stash_of_last_week_is_no_card(shop: Situation):
    shop.write("cart.py", ROUNDED_TOTAL)
    shop.git("stash", days_ago=6)
    assert "old_stash" not in shop.predict_kinds()


@pytest.mark.long
def test_merged_and_stale_branches_are_listed_but_not_checked_out_ones(situation: Situation):
    situation.commit_shop(days_ago=90)
    for name in ("done", "elsewhere"):
        situation.git("branch", "-q", name, days_ago=90)
    situation.git("worktree", "add", "-q", str(situation.path.parent / "elsewhere"), "elsewhere")
    situation.checkout("-b", "old", days_ago=60)
    situation.commit("Old idea", {"old.py": "x = 1\n"}, days_ago=60)
    situation.checkout("main")
    situation.commit("Now", {"now.py": "x = 1\n"}, days_ago=1)
    situation.git("branch", "-q", "just-made")
    situation.git("branch", "-q", "landed", days_ago=90)
    situation.run_tests()

    card = situation.predict_card(
        "report_branches", prompt="List 1 merged branch and 1 stale branch, with the commands that delete them"
    )
    assert card.reasoning.startswith("done: merged; old: without a commit for 30 days.")
    session = situation.approve(card)
    transcript = situation.read_transcript(session)
    assert all(f"git branch -d -- {name}" in transcript for name in ("done", "landed"))
    assert "git branch -D -- old  # loses 1 commit" in transcript
    assert not any(f"-- {name}" in transcript for name in ("elsewhere", "just-made"))
    situation.checkout("--detach", "done")
    transcript = situation.read_transcript(situation.approve(situation.propose("report_branches")))
    assert "git branch -d -- done" in transcript
    assert "git branch -D -- landed" in transcript, "HEAD does not have it, so git refuses -d"
    shutil.rmtree(situation.path.parent / "elsewhere")

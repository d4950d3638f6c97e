"""Cards that have their moment or stay away: a release, a dismissal, a partner file, a file for no repository."""

from __future__ import annotations

import pytest

from engine.model import SessionState, Tier
from tests.situations.conftest import Situation

# A project that is released every week has not been for long.


pytestmark = pytest.mark.long

LOG = "# Changelog\n\n## 1.0.0\n\n- The shop\n"


def release_weekly(monday: Situation) -> None:
    """Six releases a week apart, four commits each, the last three weeks ago."""
    monday.commit("The shop", {"cart.py": "0\n"}, days_ago=70)
    for week in range(6):
        for number in range(4):
            monday.commit(
                f"Add a discount {week}.{number}", {"cart.py": f"{week}.{number}\n"}, days_ago=63 - 7 * week - number
            )
        monday.git("tag", f"v1.{week}.0")


def test_a_release_that_is_late(monday: Situation) -> None:
    release_weekly(monday)
    for number in range(6):
        monday.commit(f"Fix the total of {number} carts", {"cart.py": f"new {number}\n"}, days_ago=6 - number)
    card = monday.card("release_due")
    assert card.tier is Tier.UPKEEP
    assert card.reasoning == (
        "A release usually comes after 7 days and 4 commits; it has been 25 days and 6 commits since v1.5.0."
    )

    done = monday.approve(card)
    assert done.state is SessionState.SUCCEEDED
    assert done.summary == "6 commits since v1.5.0, 6 that users notice: 6 fixed"


def test_the_change_log_comes_first_and_only_when_a_release_is_prepared(monday: Situation) -> None:
    monday.commit("The shop", {"cart.py": "0\n", "CHANGELOG.md": LOG}, days_ago=20)
    monday.git("tag", "v1.0.0")
    monday.commit("Fix the total", {"cart.py": "1\n"}, days_ago=3)
    assert not {"draft_changelog", "release_due"} & set(monday.kinds())

    monday.commit("Bump version to 1.1.0", {"version.py": '"1.1.0"\n'}, days_ago=1)
    card = monday.card("draft_changelog")
    assert card.tier is Tier.UPKEEP
    assert card.reasoning == "“Bump version to 1.1.0” prepares a release, and no tag names it yet."

    monday.commit("Change log", {"CHANGELOG.md": LOG + "- The total\n"}, days_ago=0.5)
    kinds = monday.kinds()
    assert "release_due" in kinds
    assert "draft_changelog" not in kinds

    monday.git("tag", "v1.1.0")
    assert "release_due" not in monday.kinds()


# A card that was dismissed stays away, whatever is committed meanwhile.


def test_a_dismissed_card_stays_away_for_seven_days_of_commits(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.record_test_run()
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    first = monday.first("run_tests")
    monday.engine.cards.dismiss(first.id)
    for number in range(6):
        monday.advance(days=1)
        monday.commit(
            f"Step {number}", {"cart.py": f"def total(prices):\n    return sum(prices) - {number}\n"}, days_ago=0
        )
        monday.write("other.py", f"x = {number}\n")
        assert "run_tests" not in monday.kinds()
    monday.advance(days=1, minutes=1)
    assert "run_tests" in monday.kinds()


# A file changed without the one that usually changes with it.


HABIT = 12


def commit_history(monday: Situation) -> None:
    """Commit prices and their rules together, but for one commit; other files change, too."""
    monday.commit(
        "The shop", {"price.py": "0\n", "rules.toml": "0\n", "README.md": "0\n", "stock.py": "0\n"}, days_ago=60
    )
    for number in range(HABIT):
        files = {"price.py": f"{number}a\n", "rules.toml": f"rate = {number}\n"}
        if number == 3:
            del files["rules.toml"]
        monday.commit(f"Price {number}", files, days_ago=50 - 2 * number)
        monday.commit(
            f"Stock {number}", {"stock.py": f"{number}\n", "README.md": f"{number}\n"}, days_ago=49 - 2 * number
        )


def test_a_file_that_usually_changes_too_is_shown(monday: Situation) -> None:
    commit_history(monday)
    monday.write("price.py", "new\n", days_ago=0.01)
    first = monday.first("changes_together", Tier.CHECK)
    assert first.reasoning == "In 12 of the last 13 commits `rules.toml` changed with `price.py`; not this time."

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert "“Price 11”" in done.summary
    assert "2 lines of rules.toml" in done.summary


def test_a_large_file_in_an_unpushed_commit(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.commit("Numbers", {"data/dump.bin": "0" * 60_000_000}, days_ago=0.1)

    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: data/dump.bin is 60 MB"
    done = monday.approve(first)
    assert done.summary == "Do not push: data/dump.bin is a large file, 60 MB (in 1 unpushed commit)"
    transcript = monday.transcript(done)
    assert "git rm -r --cached data/dump.bin" in transcript
    assert "git commit --amend" in transcript


def test_a_dump_that_was_removed_again_and_one_that_is_staged(monday: Situation) -> None:
    monday.commit_shop()
    monday.add_remote()
    monday.git("switch", "-q", "-c", "numbers")
    culprit = monday.commit("Numbers", {"db backup.sql": "insert\n" * 300_000}, days_ago=0.3)
    (monday.path / "db backup.sql").unlink()
    monday.commit("Without the numbers", days_ago=0.2)
    first = monday.first("large_file", Tier.BROKEN)
    assert first.assignment.prompt == "Do not push yet: db backup.sql is 2.1 MB (database dump)"
    assert f"edit {culprit[:10]}" in monday.transcript(monday.approve(first))

    monday.git("reset", "-q", "--hard", "main")
    monday.write("all.zip", "0" * 3_000_000)
    assert "large_file" not in monday.kinds()  # git does not know it
    monday.git("add", "all.zip")
    card = monday.card("large_file")
    assert card.tier is Tier.BLOCKS
    assert card.assignment.prompt == "Do not commit yet: all.zip is 3.0 MB (archive)"

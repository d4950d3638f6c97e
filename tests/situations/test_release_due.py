"""A project that is released every week has not been for long."""

from __future__ import annotations

import pytest

from engine.model import SessionState, Tier
from tests.situations.conftest import Situation

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


def test_not_before_its_time(monday: Situation) -> None:
    release_weekly(monday)
    monday.commit("Fix the total", {"cart.py": "new\n"}, days_ago=6)
    assert "release_due" not in monday.kinds()


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

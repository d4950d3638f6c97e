"""A file changed without the one that usually changes with it."""

from __future__ import annotations

import pytest

from engine.model import SessionState, Tier
from tests.situations.conftest import Situation

pytestmark = pytest.mark.long

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


def test_the_partner_is_named_and_shown(monday: Situation) -> None:
    commit_history(monday)
    monday.write("price.py", "new\n", days_ago=0.01)
    first = monday.first("changes_together", Tier.CHECK)
    assert first.reasoning == "In 12 of the last 13 commits `rules.toml` changed with `price.py`; not this time."

    done = monday.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert "“Price 11”" in done.summary
    assert "2 lines of rules.toml" in done.summary


def test_nothing_is_said_when_both_changed(monday: Situation) -> None:
    commit_history(monday)
    monday.write("price.py", "new\n", days_ago=0.01)
    assert "changes_together" in monday.kinds()
    monday.write("rules.toml", "rate = 99\n", days_ago=0.01)
    assert "changes_together" not in monday.kinds()


def test_a_partner_that_is_gone_is_not_named(monday: Situation) -> None:
    commit_history(monday)
    monday.git("rm", "-q", "rules.toml")
    monday.commit("No rules any more", days_ago=2)
    monday.write("price.py", "new\n", days_ago=0.01)
    assert "changes_together" not in monday.kinds()

"""You changed a source file: the linter is asked, and only what is new is told."""

from __future__ import annotations

import pytest

from engine.model import PROBLEM_FOUND, Tier
from tests.situations.conftest import Situation

OLD = "import os\n\n\ndef total(prices):\n    return sum(prices)\n"


@pytest.mark.long
def test_only_new_findings_are_told_and_their_fix_is_offered(monday: Situation) -> None:
    monday.commit_shop()
    monday.commit("Totals", {"cart.py": OLD}, days_ago=8)
    monday.record_test_run()
    assert "lint" not in monday.kinds(), "what was there before is no news"
    monday.write("cart.py", OLD.replace("import os\n", "import os\nimport sys\n"))
    card = monday.card("lint")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Lint cart.py with ruff"
    done = monday.approve(card)
    assert done.summary.startswith("ruff: 1 finding in 1 file is new (F401 1)"), "os was unused before"
    assert done.outcome == PROBLEM_FOUND, "it ran to its end"
    assert "fix_lint" in monday.kinds()


def test_settings_and_lock_files_are_not_linted(monday: Situation) -> None:
    monday.commit_shop()
    monday.record_test_run()
    monday.write(".gitignore", "__pycache__/\n.pytest_cache/\n.venv\n*.log\n")
    monday.write("uv.lock", "version = 1\n")
    assert "lint" not in monday.kinds()

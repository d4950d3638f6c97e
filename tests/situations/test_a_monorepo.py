"""Several projects in one repository: the one you changed is tested, by its own tools, and named."""

from __future__ import annotations

import shutil
import sys

import pytest

from engine.model import PROBLEM_FOUND, SessionState, Tier
from tests.situations.conftest import Situation

WEB = {
    "packages/web/package.json": '{"name": "web", "scripts": {"test": "node --test"}}\n',
    "packages/web/price.js": "exports.price = (cents) => cents / 100;\n",
    "packages/web/price.test.js": (
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "const { price } = require('./price.js');\n"
        "test('cents become euros', () => assert.strictEqual(price(250), 2.5));\n"
    ),
}
API = {
    "packages/api/pyproject.toml": '[project]\nname = "api"\nversion = "1"\n[tool.pytest.ini_options]\n',
    "packages/api/stock.py": "def left(have, sold):\n    return have - sold\n",
    "packages/api/tests/test_stock.py": "from stock import left\n\n\ndef test_left():\n    assert left(3, 1) == 2\n",
    "packages/api/conftest.py": "",
    ".gitignore": "__pycache__/\n.pytest_cache/\n.venv\nnode_modules\n",
}


@pytest.fixture
def both(monday: Situation) -> Situation:
    monday.commit("Both", WEB | API, days_ago=20)
    (monday.path / "packages/api/.venv").symlink_to(sys.prefix, target_is_directory=True)
    monday.add_remote()
    return monday


@pytest.mark.long
def test_the_project_that_changed_is_tested_by_its_own_tool(both: Situation) -> None:
    both.write("packages/api/stock.py", "def left(have, sold):\n    return max(0, have - sold)\n")
    first = both.first("run_tests", Tier.CHECK)
    assert first.assignment.parameters == {"paths": ["packages/api/stock.py"], "project": "packages/api"}
    assert "packages/api/stock.py" in first.assignment.prompt
    done = both.approve(first)
    assert done.state is SessionState.SUCCEEDED
    assert (done.check.tool, done.check.passed) == ("pytest", 1)


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed")
def test_the_other_one_too(both: Situation) -> None:
    both.write("packages/web/price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    first = both.first("run_tests")
    assert first.assignment.parameters["project"] == "packages/web"
    done = both.approve(first)
    assert (done.check.passed, done.check.failed) == (1, 0)


def test_where_nothing_changed_one_upkeep_card_stands_for_both(both: Situation) -> None:
    assert both.kinds() == ["first_run"]


@pytest.mark.long
def test_what_was_found_in_one_project_is_mended_in_that_one(both: Situation) -> None:
    both.commit("Tools", {"packages/tools/pyproject.toml": API["packages/api/pyproject.toml"]}, days_ago=0.5)
    for name in ("packages/api/stock.py", "packages/tools/tool.py"):
        both.write(name, "import os\n\n\ndef left(have, sold):\n    return have - sold\n", days_ago=0.01)

    card = both.card("lint")
    assert both.approve(card).outcome == PROBLEM_FOUND
    project = card.assignment.parameters["project"]
    fixes = [one for one in both.cards() if one.kind == "fix_lint"]
    assert [fix.assignment.parameters["project"] for fix in fixes] == [project]
    assert both.approve(fixes[0]).change_set_id
    assert "fix_lint" not in both.kinds()

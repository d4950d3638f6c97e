"""Several projects in one repository: the one that you changed is tested, by its own tools, and named (SPEC 2.9)."""

import pytest

from engine.model import PROBLEM_FOUND, SessionState, Tier
from tests.situations.situation import API, Situation

pytestmark = pytest.mark.long

WEB = {
    "packages/web/package.json": '{"name": "web", "scripts": {"test": "node --test"}}\n',
    "packages/web/price.js": "exports.price = (cents) => cents / 100;\n",
    "packages/web/price.test.js": (
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "const { price } = require('./price.js');\n"
        "test('cents become euros', () => assert.strictEqual(price(250), 2.5));\n"
    ),
}


@pytest.fixture
def both(situation: Situation) -> Situation:
    """A repository with the projects `WEB` and `API`."""
    situation.commit("Both", WEB | API, days_ago=20)
    situation.repository.link_environment("packages/api")
    situation.add_remote()
    return situation


def test_the_project_that_changed_is_tested_by_its_own_tool(both: Situation):
    both.write("packages/api/stock.py", "def left(have, sold):\n    return max(0, have - sold)\n")
    card = both.predict_top_card("run_tests", Tier.CHECK)
    assert card.assignment.parameters == {"paths": ["packages/api/stock.py"], "project": "packages/api"}
    assert "packages/api/stock.py" in card.assignment.prompt
    session = both.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert (session.check.tool, session.check.passed) == ("pytest", 1)


def test_findings_of_a_project_are_fixed_in_that_project(both: Situation):
    both.commit("Tools", {"packages/tools/pyproject.toml": API["packages/api/pyproject.toml"]}, days_ago=0.5)
    for name in ("packages/api/stock.py", "packages/tools/tool.py"):
        both.write(name, "import os\n\n\ndef left(have, sold):\n    return have - sold\n", days_ago=0.01)

    card = both.predict_card("lint")
    assert both.approve(card).outcome == PROBLEM_FOUND
    project = card.assignment.parameters["project"]
    fix = both.predict_card("fix_lint")
    assert fix.assignment.parameters["project"] == project
    assert both.approve(fix).change_set_id
    assert "fix_lint" not in both.predict_kinds()

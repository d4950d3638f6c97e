"""Several projects in a repository, what is not installed or out of step in one, and what cannot be seen for once."""

from __future__ import annotations

import shutil
import sys

import pytest

from engine.execution.runners.toolchains import python_projects
from engine.model import PROBLEM_FOUND, SessionState, Tier
from tests.situations.conftest import Situation

# Several projects in one repository: the one you changed is tested, by its own tools, and named.


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
def test_a_project_of_node_is_tested_by_its_own_tool(both: Situation) -> None:
    both.write("packages/web/price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    first = both.first("run_tests")
    assert first.assignment.parameters["project"] == "packages/web"
    done = both.approve(first)
    assert (done.check.passed, done.check.failed) == (1, 0)


def test_two_unchanged_projects_have_one_upkeep_card(both: Situation) -> None:
    assert both.kinds() == ["first_run"]


def test_a_dismissed_first_run_leaves_that_of_the_other_project(both: Situation) -> None:
    first = both.first("first_run")
    both.engine.cards.dismiss(first.id)
    second = both.first("first_run")
    assert {card.assignment.parameters["project"] for card in (first, second)} == {"packages/api", "packages/web"}


@pytest.mark.long
def test_a_first_run_that_cannot_run_leaves_that_of_the_other_project(monday: Situation) -> None:
    for name in ("api", "web"):
        files = {path.replace("packages/api", name): text for path, text in API.items()}
        monday.commit(name, files | {f"{name}/conftest.py": "import absent_module\n"}, days_ago=20)
        (monday.path / name / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    monday.add_remote()
    first = monday.first("first_run")
    assert monday.approve(first).state is SessionState.CANNOT_RUN
    assert monday.card("first_run").assignment.parameters != first.assignment.parameters


@pytest.mark.long
def test_findings_of_a_project_are_fixed_in_that_project(both: Situation) -> None:
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


# The tests need packages that are not installed.


NODE = {
    "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^10.0.0"}}\n',
    "package-lock.json": (
        '{"name": "web", "lockfileVersion": 3, "packages": {'
        '"": {"name": "web", "devDependencies": {"mocha": "^10.0.0"}}, "node_modules/mocha": {"version": "10.8.2"}}}\n'
    ),
    "price.js": "exports.price = (cents) => cents / 100;\n",
    "test/price.test.js": "it('works', () => {});\n",
    ".gitignore": "node_modules\n",
}


def test_missing_packages_block_you_where_you_changed_something(monday: Situation) -> None:
    monday.commit("Web", NODE, days_ago=9)
    monday.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    first = monday.first("prepare_environment", Tier.BLOCKS)
    assert first.assignment.prompt == "Install the packages: npm ci"
    assert "network: registry.npmjs.org" in first.reasoning
    assert "creates node_modules in your tree" in first.reasoning
    assert "run_tests" not in monday.kinds(), "they could not run"


def test_of_two_languages_the_one_that_lacks_packages_is_installed(monday: Situation) -> None:
    monday.commit("Shop and web", NODE | {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n'}, days_ago=9)
    monday.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    card = monday.card("prepare_environment")
    assert "need node_modules, which is not installed" in card.reasoning
    assert card.assignment.prompt == "Install the packages: npm ci"


def test_missing_packages_are_upkeep_where_you_changed_nothing(monday: Situation) -> None:
    monday.commit("Web", NODE, days_ago=9)
    monday.first("prepare_environment", Tier.UPKEEP)


def test_python_without_pytest(monday: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_projects, "find_interpreters", lambda workspace, top: [])
    monday.commit(
        "Shop",
        {
            "pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n',
            "shop.py": "PRICE = 1\n",
            "tests/test_shop.py": "import shop\n\n\ndef test_price():\n    assert shop.PRICE == 1\n",
        },
        days_ago=9,
    )
    monday.write("shop.py", "PRICE = 2\n")
    first = monday.first("prepare_environment", Tier.BLOCKS)
    assert first.assignment.prompt.startswith("Install the packages: python3 -m venv .venv && .venv/bin/pip install")
    (monday.path / ".venv").mkdir()
    monkeypatch.setattr(sys, "prefix", str(monday.path / ".venv"))
    assert "prepare_environment" not in monday.kinds(), "the console runs from there"


# The manifest asks for something that the lock file does not have.


LOCK = (
    '{{"name": "web", "lockfileVersion": 3, "packages": {{'
    '"": {{"name": "web", "dependencies": {{"is-number": "{0}"}}}}, '
    '"node_modules/is-number": {{"version": "7.0.0"}}}}}}\n'
)


def manifest(version: str) -> str:
    return f'{{"name": "web", "dependencies": {{"is-number": "{version}"}}}}\n'


@pytest.mark.long
def test_a_lock_file_out_of_step_is_named_with_what_differs(monday: Situation) -> None:
    monday.commit("Web", {"package.json": manifest("^7.0.0"), "package-lock.json": LOCK.format("^7.0.0")}, days_ago=5)
    assert "update_lock" not in monday.kinds()
    monday.write("package.json", manifest("^6.0.0"))
    first = monday.first("update_lock", Tier.BLOCKS)
    assert first.assignment.prompt.startswith("Bring package-lock.json in step: npm install --package-lock-only")
    assert "is-number" in first.reasoning
    assert "^6.0.0" in first.reasoning
    assert "the diff of package-lock.json waits for you" in first.reasoning
    monday.write("package-lock.json", LOCK.format("^6.0.0"))
    assert "update_lock" not in monday.kinds(), "you did it yourself"


def test_a_lock_file_out_of_step_below_the_top(monday: Situation) -> None:
    monday.commit(
        "Web",
        {
            "README.md": "x\n",
            "apps/web/package.json": manifest("^6.0.0"),
            "apps/web/package-lock.json": LOCK.format("^7.0.0"),
        },
        days_ago=5,
    )
    first = monday.first("update_lock")
    assert first.assignment.parameters["project"] == "apps/web"
    assert "apps/web/package-lock.json" in first.assignment.prompt


@pytest.mark.long
def test_cards_of_a_check_that_failed_stay(monday: Situation) -> None:
    monday.commit_shop()
    monday.write("notes.txt", "x\n", days_ago=40)
    monday.git("add", "notes.txt")
    monday.git("stash", "push", "-q", "-m", "notes", days_ago=40)
    monday.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices)\n", days_ago=0.01)
    assert {"leftovers", "old_stash"} <= {card.kind for card in monday.cards()}

    blob = monday.git("rev-parse", "HEAD:cart.py")
    lost = monday.path / ".git/objects" / blob[:2] / blob[2:]
    content = lost.read_bytes()
    lost.unlink()
    monday.git("stash", "drop", "-q")
    monday.write("cart.py", "def total(prices):\n    breakpoint()\n    return sum(prices) + 0\n", days_ago=0.005)
    report = monday.engine.card_cycle.run_cycle(requested=False)
    assert any("own: git diff" in error for error in report.errors), report.errors
    kinds = {card.kind for card in monday.engine.cards.pending()}
    assert "leftovers" in kinds, "nobody could see whether it is gone"
    assert "old_stash" not in kinds, "it was seen that it is gone"

    lost.write_bytes(content)
    monday.write("cart.py", "def total(prices):\n    return sum(prices) + 0\n")
    assert "leftovers" not in {card.kind for card in monday.cards()}

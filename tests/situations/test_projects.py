"""The cards about several projects in one repository, about missing packages, and about an outdated lock file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine.execution.runners.toolchains import python_projects
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import PROBLEM_FOUND, SessionState, Tier
from tests.situations.conftest import Situation
from tests.support.helpers import refused

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

WITHOUT_PACKAGES = {
    "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "devDependencies": {"mocha": "^10.0.0"}}\n',
    "package-lock.json": (
        '{"name": "web", "lockfileVersion": 3, "packages": {'
        '"": {"name": "web", "devDependencies": {"mocha": "^10.0.0"}}, "node_modules/mocha": {"version": "10.8.2"}}}\n'
    ),
    "price.js": "exports.price = (cents) => cents / 100;\n",
    "test/price.test.js": "it('works', () => {});\n",
    ".gitignore": "node_modules\n",
}
"""A project of node whose tests need a package that is not installed."""

LOCK = (
    '{{"name": "web", "lockfileVersion": 3, "packages": {{'
    '"": {{"name": "web", "dependencies": {{"is-number": "{0}"}}}}, '
    '"node_modules/is-number": {{"version": "7.0.0"}}}}}}\n'
)
"""The lock file of `manifest`; its field is the version."""


def make_manifest(version: str) -> str:
    return f'{{"name": "web", "dependencies": {{"is-number": "{version}"}}}}\n'


needs_npm_and_bwrap = pytest.mark.skipif(
    not (shutil.which("npm") and shutil.which("bwrap")), reason="npm or bubblewrap is not installed"
)


# Several projects in one repository: the one you changed is tested, by its own tools, and named.


@pytest.fixture
def both(situation: Situation) -> Situation:
    """A repository with the projects `WEB` and `API`."""
    situation.commit("Both", WEB | API, days_ago=20)
    (situation.path / "packages/api/.venv").symlink_to(sys.prefix, target_is_directory=True)
    situation.add_remote()
    return situation


@pytest.mark.long
def test_the_project_that_changed_is_tested_by_its_own_tool(both: Situation) -> None:
    both.write("packages/api/stock.py", "def left(have, sold):\n    return max(0, have - sold)\n")
    card = both.predict_top_card("run_tests", Tier.CHECK)
    assert card.assignment.parameters == {"paths": ["packages/api/stock.py"], "project": "packages/api"}
    assert "packages/api/stock.py" in card.assignment.prompt
    session = both.approve(card)
    assert session.state is SessionState.SUCCEEDED
    assert (session.check.tool, session.check.passed) == ("pytest", 1)


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed")
def test_a_project_of_node_is_tested_by_its_own_tool(both: Situation) -> None:
    both.write("packages/web/price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    card = both.predict_top_card("run_tests")
    assert card.assignment.parameters["project"] == "packages/web"
    session = both.approve(card)
    assert (session.check.passed, session.check.failed) == (1, 0)


def test_a_dismissed_first_run_leaves_that_of_the_other_project(both: Situation) -> None:
    assert both.predict_kinds() == ["first_run"], "two unchanged projects have one card"
    first_card = both.predict_top_card("first_run")
    both.engine.cards.dismiss(first_card.id)
    second_card = both.predict_top_card("first_run")
    projects = {card.assignment.parameters["project"] for card in (first_card, second_card)}
    assert projects == {"packages/api", "packages/web"}


@pytest.mark.long
def test_a_first_run_that_cannot_run_leaves_that_of_the_other_project(situation: Situation) -> None:
    for name in ("api", "web"):
        files = {path.replace("packages/api", name): text for path, text in API.items()}
        situation.commit(name, files | {f"{name}/conftest.py": "import absent_module\n"}, days_ago=20)
        (situation.path / name / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    situation.add_remote()
    card = situation.predict_top_card("first_run")
    assert situation.approve(card).state is SessionState.CANNOT_RUN
    assert situation.predict_card("first_run").assignment.parameters != card.assignment.parameters


@pytest.mark.long
def test_findings_of_a_project_are_fixed_in_that_project(both: Situation) -> None:
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


# The tests need packages that are not installed.


def test_missing_packages_are_upkeep_and_block_you_where_you_changed_something(situation: Situation) -> None:
    situation.commit("Web", WITHOUT_PACKAGES, days_ago=9)
    situation.predict_top_card("prepare_environment", Tier.UPKEEP)
    situation.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    card = situation.predict_top_card("prepare_environment", Tier.BLOCKS)
    assert card.assignment.prompt == "Install the packages: npm ci"
    assert "network: registry.npmjs.org" in card.reasoning
    assert "creates node_modules in your tree" in card.reasoning
    assert "run_tests" not in situation.predict_kinds(), "they could not run"


@pytest.fixture
def without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all programs, only git and a shell are installed."""
    find_best_sandbox()  # the process remembers it, and would remember that there is none
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))


def is_node_link_named(situation: Situation) -> bool:
    """Whether after an edit there is no card that would run npm, and the remarks say where to get it."""
    situation.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    return "prepare_environment" not in situation.predict_kinds() and list(
        situation.engine.card_cycle.remarks().values()
    ) == ["its tests need npm, which is not installed; install Node.js: https://nodejs.org"]


@pytest.mark.usefixtures("without_npm")
def test_without_the_package_manager_its_link_is_named_instead_of_a_card(situation: Situation) -> None:
    situation.commit("Web", WITHOUT_PACKAGES, days_ago=9)
    assert is_node_link_named(situation)
    refusal = refused("bad_parameters", lambda: situation.propose("run the tests"))
    assert refusal.message == "run_tests: its tests need npm, which is not installed"


@pytest.mark.usefixtures("without_npm")
def test_the_link_of_the_package_manager_is_named_beside_another_project(situation: Situation) -> None:
    situation.commit("Web", WITHOUT_PACKAGES | API, days_ago=9)
    (situation.path / "packages/api/.venv").symlink_to(sys.prefix, target_is_directory=True)
    assert is_node_link_named(situation)


def test_of_two_languages_the_one_that_lacks_packages_is_installed(situation: Situation) -> None:
    situation.commit(
        "Shop and web", WITHOUT_PACKAGES | {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n'}, days_ago=9
    )
    situation.write("price.js", "exports.price = (cents) => Math.round(cents) / 100;\n")
    card = situation.predict_card("prepare_environment")
    assert "need node_modules, which is not installed" in card.reasoning
    assert card.assignment.prompt == "Install the packages: npm ci"


def test_python_without_pytest_gets_a_virtual_environment_unless_the_console_runs_from_it(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_projects, "find_interpreters", lambda workspace, top: [])
    situation.commit(
        "Shop",
        {
            "pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n',
            "shop.py": "PRICE = 1\n",
            "tests/test_shop.py": "import shop\n\n\ndef test_price():\n    assert shop.PRICE == 1\n",
        },
        days_ago=9,
    )
    situation.write("shop.py", "PRICE = 2\n")
    card = situation.predict_top_card("prepare_environment", Tier.BLOCKS)
    assert card.assignment.prompt.startswith("Install the packages: python3 -m venv .venv && .venv/bin/pip install")
    (situation.path / ".venv").mkdir()
    monkeypatch.setattr(sys, "prefix", str(situation.path / ".venv"))
    assert "prepare_environment" not in situation.predict_kinds(), "the console runs from there"


# The manifest asks for another version than the lock file has.


@pytest.mark.long
def test_a_lock_file_out_of_step_is_named_with_what_differs(situation: Situation) -> None:
    situation.commit(
        "Web", {"package.json": make_manifest("^7.0.0"), "package-lock.json": LOCK.format("^7.0.0")}, days_ago=5
    )
    assert "update_lock" not in situation.predict_kinds()
    situation.write("package.json", make_manifest("^6.0.0"))
    card = situation.predict_top_card("update_lock", Tier.BLOCKS)
    assert card.assignment.prompt.startswith("Bring package-lock.json in step: npm install --package-lock-only")
    assert "is-number" in card.reasoning
    assert "^6.0.0" in card.reasoning
    assert "the diff of package-lock.json waits for you" in card.reasoning
    situation.write("package-lock.json", LOCK.format("^6.0.0"))
    assert "update_lock" not in situation.predict_kinds(), "you did it yourself"


def test_a_lock_file_out_of_step_below_the_top(situation: Situation) -> None:
    situation.commit(
        "Web",
        {
            "README.md": "x\n",
            "apps/web/package.json": make_manifest("^6.0.0"),
            "apps/web/package-lock.json": LOCK.format("^7.0.0"),
        },
        days_ago=5,
    )
    card = situation.predict_top_card("update_lock")
    assert card.assignment.parameters["project"] == "apps/web"
    assert "apps/web/package-lock.json" in card.assignment.prompt


def install_packages(situation: Situation, ignored: str) -> None:
    """Install the packages of a project that has no lock file, and ignores these files."""
    situation.commit(
        "Web",
        {
            "package.json": '{"name": "web", "scripts": {"test": "mocha"}, "dependencies": {"ms": "file:./ms"}}\n',
            "ms/package.json": '{"name": "ms", "version": "1.0.0"}\n',
            "test/price.test.js": "it('works', () => {});\n",
            ".gitignore": ignored,
        },
        days_ago=9,
    )
    installed = situation.approve(situation.predict_card("prepare_environment"))
    assert installed.state is SessionState.SUCCEEDED, situation.read_transcript(installed)


@needs_npm_and_bwrap
def test_the_first_lock_file_of_an_installation_is_offered_as_a_diff(situation: Situation) -> None:
    install_packages(situation, "node_modules\n")
    card = situation.predict_card("update_lock")
    assert card.tier is Tier.CHECK
    assert card.assignment.prompt == "Make package-lock.json: npm install --package-lock-only --ignore-scripts"
    made = situation.approve(card)
    assert situation.engine.changes.get(made.change_set_id).files[0].path == "package-lock.json"
    situation.land(made)
    assert "update_lock" not in situation.predict_kinds()


@needs_npm_and_bwrap
def test_the_first_lock_file_is_not_offered_where_it_is_ignored(situation: Situation) -> None:
    install_packages(situation, "node_modules\npackage-lock.json\n")
    assert "update_lock" not in situation.predict_kinds()

"""The flows `run_tests`, `check_clean_head` and `lint` with real tools: what runs, where, and what is said of it (SPEC
2.12)."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.execution.runners import CannotRun
from tests.execution.flows.flow_run import RunFlow, commit_shop
from tests.support import read_table
from tests.support.programs import make_program
from tests.support.repository import Repository

pytestmark = pytest.mark.long


def test_only_the_tests_of_changed_files_run(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    run = run_flow("run_tests", paths=["shop/cart.py", "README.md"])
    assert (run.check.passed, run.check.failed) == (1, 0)
    assert not run.result.full
    assert "shop/cart.py → tests/test_cart.py" in run.transcript
    assert project.git("status", "--porcelain") == ""
    assert not list(project.path.rglob("__pycache__"))


def test_a_folder_outside_of_the_repository_is_refused(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(CannotRun, match="link leads out of the repository"):
        run_flow("run_tests", paths=["link"])
    assert run_flow("run_tests", paths=["shop"]).check.passed == 1
    project.write("..data/a.py", "")
    assert "No tests found for ..data" in run_flow("run_tests", paths=["..data"]).result.summary


# A project in a folder of its repository


BELOW = {
    "packages/py/pyproject.toml": '[project]\nname = "cart"\n',
    "packages/py/cart.py": "def total(prices):\n    return sum(prices)\n",
    "packages/py/tests/test_cart.py": "from cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}
"""A project of Python in a folder of its repository."""


@pytest.fixture
def shop_below(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose top has no tests; the one project below it has its own environment."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repository.commit("begin", {".gitignore": ".venv\n", "README.md": "", **BELOW})
    repository.link_environment("packages/py")
    return repository


def test_tests_of_a_project_below_run_in_its_folder_and_environment(shop_below: Repository, run_flow: RunFlow):
    run = run_flow("run_tests", project="packages/py", paths=["packages/py/cart.py", "README.md"])
    assert (run.check.passed, run.result.full) == (1, False)
    assert "cart.py → tests/test_cart.py" in run.session.lines
    assert run.summary.endswith(" in packages/py (only the tests of this change)")
    assert run.session.commands[0][0] == str(shop_below.path / "packages/py/.venv/bin/python")


def test_the_top_names_the_projects_with_tests(shop_below: Repository, run_flow: RunFlow):
    with pytest.raises(CannotRun, match="the tests are in packages/py"):
        run_flow("run_tests")


# HEAD alone


CASES = read_table(__file__)["head_alone"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_of_each_failing_test_only_what_is_known_is_said(project: Repository, run_flow: RunFlow, case: dict[str, Any]):
    commit_shop(project)
    project.commit("work", case.get("committed", {}))
    for path, text in case.get("uncommitted", {}).items():
        project.write(path, text)
    run = run_flow("check_clean_head", tests=[case["test"]])
    assert re.fullmatch(rf"{case['summary']}(?: in [\d.]+ m?s)?", run.summary), run.summary


# Linters


def test_a_makefile_target_is_a_linter_when_it_names_lines(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"Makefile": "lint:\n\t@echo 'a.c:3: too long'; echo all is lost; exit 1\n"})
    assert run_flow("lint").summary == "make lint: 1 finding in 1 file (lint 1)"
    repository.commit("shorter", {"Makefile": "lint:\n\t@echo all is lost >&2; exit 1\n"})
    with pytest.raises(CannotRun, match="make lint ended with exit code 2 without naming a line"):
        run_flow("lint")
    repository.commit("well", {"Makefile": "lint:\n\t@echo 'a.c:3: well'\n"})
    assert run_flow("lint").summary == "make lint found nothing in the project"


def test_a_lock_file_that_is_still_out_of_step_is_named(
    repository: Repository, run_flow: RunFlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{make_program(tmp_path / 'bin/npm', 'true').parent}:/usr/bin:/bin")
    files = {"package.json": '{"dependencies": {"ms": "2"}}', "package-lock.json": '{"packages": {"": {}}}'}
    repository.commit("begin", files)
    command = "npm install --package-lock-only --ignore-scripts"
    run = run_flow("update_lock", command=[command])
    assert run.summary.startswith(f"package-lock.json is still out of step after `{command}`: ")
    repository.git("rm", "-q", "package-lock.json")
    assert run_flow("update_lock", command=[command]).summary == f"`{command}` left no package-lock.json"


def test_node_modules_are_linked_into_the_worktree_only_during_the_run(repository: Repository, run_flow: RunFlow):
    tidy = 'test -d node_modules || exit 9\nshift 2\nfor f; do echo "tidy" > "$f"; done'
    make_program(repository.path / "node_modules/.bin/prettier", tidy)
    repository.commit(
        "begin", {".gitignore": "node_modules/\n", "package.json": '{"scripts": {"test": "node --test"}}', "a.js": "x"}
    )
    run = run_flow("fix_lint", paths=["a.js"])
    assert run.facts["changed"] == ["a.js"]
    assert not (run.folder / "node_modules").exists()

"""The flow `run_tests` with the real pytest: what it runs, where, and what is no failed test (SPEC 2.12)."""

import sys

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow, commit_shop

pytestmark = pytest.mark.long

UV_PROJECT = '[project]\nname = "shop"\ndependencies = ["sqlalchemy_not_here"]\n[tool.uv]\n'


def test_only_the_tests_of_changed_files_run(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    run = run_flow("run_tests", paths=["shop/cart.py", "README.md"])
    assert (run.check.passed, run.check.failed) == (1, 0)
    assert not run.result.full
    assert run.facts["tests_by_path"] == {"shop/cart.py": ["tests/test_cart.py"]}
    assert "shop/cart.py → tests/test_cart.py" in run.transcript
    assert "one test passed" not in run.transcript  # the summary says it
    assert project.git("status", "--porcelain") == ""
    assert not list(project.path.rglob("__pycache__"))


def test_a_folder_outside_of_the_repository_is_refused(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(CannotRun, match="link leads out of the repository"):
        run_flow("run_tests", paths=["link"])
    project.write("..data/a.py", "")
    assert "No tests found for ..data" in run_flow("run_tests", paths=["..data"]).result.summary


@pytest.mark.parametrize("path", ["conftest.py", "shop/cart.py"])
def test_a_package_that_is_not_installed_is_no_failed_test(project: Repository, run_flow: RunFlow, path: str):
    commit_shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write(path, "import sqlalchemy_not_here\n")
    with pytest.raises(WorkFailed) as refusal:
        run_flow("run_tests")
    assert refusal.value.message == "pytest cannot run: the package `sqlalchemy_not_here` is not installed"
    assert refusal.value.fix.endswith("bin/pip install pytest")
    project.write("pyproject.toml", UV_PROJECT + '[dependency-groups]\ndev = ["pytest"]\n')
    with pytest.raises(WorkFailed) as refusal:
        run_flow("run_tests")
    assert refusal.value.fix == "uv sync"


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
    (repository.path / "packages/py/.venv").symlink_to(sys.prefix, target_is_directory=True)
    return repository


@pytest.mark.long
def test_tests_of_a_project_below_run_in_its_folder_and_environment(shop_below: Repository, run_flow: RunFlow):
    run = run_flow("run_tests", project="packages/py", paths=["packages/py/cart.py", "README.md"])
    assert (run.check.passed, run.result.full) == (1, False)
    assert run.facts["tests_by_path"] == {"packages/py/cart.py": ["tests/test_cart.py"]}
    assert run.summary.endswith(" in packages/py (only the tests of this change)")
    assert run.session.commands[0][0] == str(shop_below.path / "packages/py/.venv/bin/python")


def test_the_top_names_the_projects_with_tests(shop_below: Repository, run_flow: RunFlow):
    with pytest.raises(CannotRun, match="the tests are in packages/py"):
        run_flow("run_tests")

"""The tests of a project in a folder of its repository run there, in its environment (SPEC 2.12)."""

import sys

import pytest

from engine.execution.runners.flow import CannotRun
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow

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

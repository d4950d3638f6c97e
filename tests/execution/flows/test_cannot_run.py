"""Flows whose tools are missing, broken, silent or half-installed cannot run, which is no failed check (SPEC 2.12).

The refusal names what is missing and how to get it. The cases are in `test_cannot_run.toml`.
"""

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun
from engine.execution.runners.flows import tooling
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.support.helpers import needs, read_table


@dataclass(frozen=True)
class Case:
    """A project, the flow that is run on it, and its refusal."""

    name: str
    files: dict[str, str]
    missing: str
    """What the message of the refusal contains."""

    fix: str = ""
    """What its advice contains."""

    flow: str = "run_tests"
    needs: tuple[str, ...] = ()
    """Programs without which the case is skipped."""

    without: tuple[str, ...] = ()
    """Programs that are taken from the search path."""


CASES = {
    group: [Case(name, **fields) for name, fields in cases.items()] for group, cases in read_table(__file__).items()
}


# A check that has all that it needs, and finds something, fails: whatever else is missing


@pytest.mark.long
def test_a_failing_test_beside_one_without_network_fails(project: Repository, run_flow: RunFlow):
    body = "import socket\ndef test_a(): socket.create_connection(('host.invalid', 80))\ndef test_b(): assert 0\n"
    project.commit("tests", {"test_a.py": body})
    run = run_flow("run_tests")
    assert run.check.failed == 2
    assert "1 test of 2 could not run" in run.transcript


@pytest.mark.long
def test_a_passing_test_that_prints_a_refused_connection_passes(project: Repository, run_flow: RunFlow):
    project.commit("tests", {"test_a.py": "def test_a(): print('sh: 1: x: not found, Connection refused')\n"})
    assert run_flow("run_tests").check.green


@pytest.mark.long
def test_an_import_of_a_renamed_module_is_an_error(project: Repository, run_flow: RunFlow):
    project.commit("begin", {"shop/__init__.py": "", "test_a.py": "import shop\ndef test_a(): pass\n"})
    project.git("mv", "shop", "store")
    project.commit("renamed")
    assert run_flow("run_tests").check.errors == 1


@pytest.mark.long
def test_a_missing_file_of_the_project_is_a_failure(project: Repository, run_flow: RunFlow):
    project.commit("tests", {"test_a.py": "def test_a(): open('data.json')\n"})
    assert run_flow("run_tests").check.failed == 1


@pytest.mark.long
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_a_package_that_package_json_does_not_name_is_a_failure(repository: Repository, run_flow: RunFlow):
    """The other packages are installed, so it is a mistake in the code."""
    package = '{"name": "x", "scripts": {"test": "node --test"}}'
    source = "const test = require('node:test');\ntest('a', () => require('expresss'));\n"
    repository.commit("begin", {"package.json": package, "a.test.js": source})
    (repository.path / "node_modules").mkdir()
    assert run_flow("run_tests").check.failed == 1


def test_a_script_of_the_project_with_an_exit_code_is_a_failure(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"Makefile": "test:\n\t@echo 3 carts are wrong; exit 1\n"})
    run = run_flow("run_tests")
    assert (run.check.failed, run.check.counted) == (1, False)
    assert run.summary.startswith("Make test failed in ")
    assert run.summary.endswith("its output names no tests")


# What cannot run


@pytest.mark.parametrize(
    "case",
    [*CASES["make"], *(pytest.param(case, marks=pytest.mark.long) for case in (*CASES["pytest"], *CASES["others"]))],
    ids=lambda case: case.name,
)
def test_the_refusal_names_what_is_missing_and_the_fix(
    case: Case, request: pytest.FixtureRequest, run_flow: RunFlow, without: Callable[..., None]
):
    needs(*case.needs)
    repository = request.getfixturevalue("project" if case in CASES["pytest"] else "repository")
    repository.commit("begin", case.files)
    if case.without:
        without(*case.without)
    with pytest.raises(CannotRun) as refusal:
        run_flow(case.flow)
    assert case.missing in refusal.value.message
    assert case.fix in refusal.value.fix


@pytest.mark.long
def test_a_linter_of_our_own_environment_is_not_used_and_named(
    repository: Repository, run_flow: RunFlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own/bin").mkdir(parents=True)
    (tmp_path / "own/bin/flake8").touch()
    monkeypatch.setattr(tooling, "find_own_environment", lambda: tmp_path / "own")
    repository.commit("begin", {"cart.py": "total = 0\n"})
    with pytest.raises(CannotRun, match="not used: flake8 of Clawpy's own environment, which is not the project's"):
        run_flow("lint")


@pytest.mark.long
def test_tests_that_need_a_database_which_is_down_could_not_run(project: Repository, run_flow: RunFlow):
    with socket.socket() as unanswered:
        unanswered.bind(("127.0.0.1", 0))
        port = unanswered.getsockname()[1]
        body = f"import socket\ndef test_a(): socket.create_connection(('127.0.0.1', {port}))\ndef test_b(): pass\n"
        project.commit("tests", {"test_a.py": body})
        with pytest.raises(CannotRun, match="1 of 2 tests could not run: nothing answers") as refusal:
            run_flow("run_tests")
    assert "start it" in refusal.value.fix

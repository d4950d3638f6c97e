"""Flows whose tools are missing, broken, silent or half-installed, by the cases in `test_cannot_run.toml`. The refusal
names what is missing and how to get it, and no result looks like a failure or a success.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.execution.runners.flow import CannotRun
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow, program_answers
from tests.support.helpers import read_table


@dataclass(frozen=True)
class Case:
    """A project with these `files`, the `flow` that is run on it, and the texts of the refusal: what is `missing`, and
    the `fix`. `needs` are programs that must be there, `without` those that are taken away."""

    name: str
    files: dict[str, str]
    missing: str
    fix: str = ""
    flow: str = "run_tests"
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


CASES = {
    group: [Case(name, **fields) for name, fields in cases.items()] for group, cases in read_table(__file__).items()
}


def run_case(case: Case, repository: Repository, run_flow: RunFlow, without: Callable[..., None]) -> CannotRun:
    for program in case.needs:
        if not program_answers(program):
            pytest.skip(f"needs {program}")
    repository.commit("begin", case.files)
    if case.without:
        without(*case.without)
    with pytest.raises(CannotRun) as refusal:
        run_flow(case.flow)
    return refusal.value


@pytest.mark.parametrize(
    "case",
    [*CASES["make"], *(pytest.param(case, marks=pytest.mark.long) for case in (*CASES["pytest"], *CASES["others"]))],
    ids=lambda case: case.name,
)
def test_the_refusal_names_what_is_missing_and_the_fix(
    case: Case, request: pytest.FixtureRequest, run_flow: RunFlow, without: Callable[..., None]
) -> None:
    refusal = run_case(
        case, request.getfixturevalue("project" if case in CASES["pytest"] else "repository"), run_flow, without
    )
    assert case.missing in refusal.message
    assert case.fix in refusal.fix


@pytest.mark.long
def test_tests_that_need_a_database_which_is_down_could_not_run(project: Repository, run_flow: RunFlow) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        body = f"import socket\ndef test_a(): socket.create_connection(('127.0.0.1', {port}))\ndef test_b(): pass\n"
        project.commit("tests", {"test_a.py": body})
        with pytest.raises(CannotRun, match="1 of 2 tests could not run: nothing answers") as refusal:
            run_flow("run_tests")
    assert "start it" in refusal.value.fix


def run_tests(run_flow: RunFlow) -> CheckResult:
    return run_flow("run_tests").check


class TestFailures:
    """A check that has all that it needs and finds something fails, whatever else is missing."""

    @pytest.mark.long
    def test_a_failing_test_beside_one_without_network_fails(self, project: Repository, run_flow: RunFlow) -> None:
        body = "import socket\ndef test_a(): socket.create_connection(('host.invalid', 80))\ndef test_b(): assert 0\n"
        project.commit("tests", {"test_a.py": body})
        run = run_flow("run_tests")
        assert run.check.failed == 2
        assert "1 test of 2 could not run" in run.transcript

    @pytest.mark.long
    def test_a_passing_test_that_prints_a_refused_connection_passes(
        self, project: Repository, run_flow: RunFlow
    ) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): print('sh: 1: x: not found, Connection refused')\n"})
        check = run_tests(run_flow)
        assert check.green

    @pytest.mark.long
    def test_an_import_of_a_renamed_module_is_an_error(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("begin", {"shop/__init__.py": "", "test_a.py": "import shop\ndef test_a(): pass\n"})
        project.git("mv", "shop", "store")
        project.commit("renamed")
        check = run_tests(run_flow)
        assert check.errors == 1

    @pytest.mark.long
    def test_a_missing_file_of_the_project_is_a_failure(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): open('data.json')\n"})
        check = run_tests(run_flow)
        assert check.failed == 1

    @pytest.mark.long
    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_a_package_that_package_json_does_not_name_is_a_failure(
        self, repository: Repository, run_flow: RunFlow
    ) -> None:
        """Where the others are installed, one that package.json does not name is a slip in the code."""
        package = '{"name": "x", "scripts": {"test": "node --test"}}'
        source = "const test = require('node:test');\ntest('a', () => require('expresss'));\n"
        repository.commit("begin", {"package.json": package, "a.test.js": source})
        (repository.path / "node_modules").mkdir()
        check = run_tests(run_flow)
        assert check.failed == 1

    def test_a_script_of_the_project_with_an_exit_code_is_a_failure(
        self, repository: Repository, run_flow: RunFlow
    ) -> None:
        repository.commit("begin", {"Makefile": "test:\n\t@echo 3 carts are wrong; exit 1\n"})
        run = run_flow("run_tests")
        assert (run.check.failed, run.check.counted) == (1, False)
        assert run.summary.startswith("Make test failed in ")
        assert run.summary.endswith("its output names no tests")

"""Missing, broken, silent and half-installed tools, each with the real tool: the message names what is missing and
what brings it, and there is no result that could be taken for a finding, a failure or a success.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow, project, run_flow
from tests.support.helpers import read_table

# What these tests share: flows run by real tools, and a search path that has only some of them.


__all__ = ["project", "run_flow"]

EVERYDAY_PROGRAMS = [
    "sh",
    "git",
    "make",
    "cat",
    "echo",
    "env",
    "python3",
    "node",
    "npm",
    "go",
    "gofmt",
    "cargo",
    "rustc",
    "cc",
    "gcc",
]


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leave a search path on which only everyday programs are, and none of those named."""

    def leave_out(*names: str) -> None:
        folder = tmp_path / "only these"
        folder.mkdir()
        for program in EVERYDAY_PROGRAMS:
            found = shutil.which(program)
            if found and program not in names:
                (folder / program).symlink_to(found)
        monkeypatch.setenv("PATH", str(folder))

    return leave_out


@dataclass(frozen=True)
class Case:
    """`files` of a project, the `flow` that is run on it, and what it says: `missing` and what brings it, `fix`."""

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


def program_answers(program: str) -> bool:
    """Whether it is there and answers: a version manager may have none to run."""
    asked = "version" if program == "go" else "--version"
    return shutil.which(program) is not None and not subprocess.run([program, asked], capture_output=True).returncode


def run_case(case: Case, repository: Repository, run_flow: RunFlow, without: Callable[..., None]) -> CannotRun:
    for program in case.needs:
        if not program_answers(program):
            pytest.skip(f"needs {program}")
    repository.commit("begin", case.files)
    if case.without:
        without(*case.without)
    with pytest.raises(CannotRun) as caught:
        run_flow(case.flow)
    return caught.value


@pytest.mark.parametrize(
    "case",
    [*CASES["make"], *(pytest.param(case, marks=pytest.mark.long) for case in (*CASES["pytest"], *CASES["others"]))],
    ids=lambda case: case.name,
)
def test_what_is_missing_and_what_brings_it_is_said(
    case: Case, request: pytest.FixtureRequest, run_flow: RunFlow, without: Callable[..., None]
) -> None:
    refusal = run_case(
        case, request.getfixturevalue("project" if case in CASES["pytest"] else "repository"), run_flow, without
    )
    assert case.missing in refusal.message
    assert case.fix in refusal.fix


@pytest.mark.long
def test_a_database_that_is_down(project: Repository, run_flow: RunFlow) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        body = f"import socket\ndef test_a(): socket.create_connection(('127.0.0.1', {port}))\ndef test_b(): pass\n"
        project.commit("tests", {"test_a.py": body})
        with pytest.raises(CannotRun, match="1 of 2 tests could not run: nothing answers") as caught:
            run_flow("run_tests")
    assert "start it" in caught.value.fix


def run_tests(run_flow: RunFlow) -> CheckResult:
    return run_flow("run_tests").check


class TestFailures:
    """A check that has all that it needs and finds something fails, whatever else is missing."""

    @pytest.mark.long
    def test_a_red_test_beside_one_without_network(self, project: Repository, run_flow: RunFlow) -> None:
        body = "import socket\ndef test_a(): socket.create_connection(('host.invalid', 80))\ndef test_b(): assert 0\n"
        project.commit("tests", {"test_a.py": body})
        run = run_flow("run_tests")
        assert run.check.failed == 2
        assert "1 test of 2 could not run" in run.transcript

    @pytest.mark.long
    def test_a_green_test_that_logs_a_refused_connection(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): print('sh: 1: x: not found, Connection refused')\n"})
        check = run_tests(run_flow)
        assert check.green

    @pytest.mark.long
    def test_a_module_that_was_renamed(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("begin", {"shop/__init__.py": "", "test_a.py": "import shop\ndef test_a(): pass\n"})
        project.git("mv", "shop", "store")
        project.commit("renamed")
        check = run_tests(run_flow)
        assert check.errors == 1

    @pytest.mark.long
    def test_a_file_that_a_test_does_not_find(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): open('data.json')\n"})
        check = run_tests(run_flow)
        assert check.failed == 1

    @pytest.mark.long
    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_a_package_that_nobody_named(self, repository: Repository, run_flow: RunFlow) -> None:
        """Where the others are installed, one that package.json does not name is a slip in the code."""
        package = '{"name": "x", "scripts": {"test": "node --test"}}'
        source = "const test = require('node:test');\ntest('a', () => require('expresss'));\n"
        repository.commit("begin", {"package.json": package, "a.test.js": source})
        (repository.path / "node_modules").mkdir()
        check = run_tests(run_flow)
        assert check.failed == 1

    def test_a_script_of_the_projects_own_that_says_no(self, repository: Repository, run_flow: RunFlow) -> None:
        repository.commit("begin", {"Makefile": "test:\n\t@echo 3 carts are wrong; exit 1\n"})
        run = run_flow("run_tests")
        assert (run.check.failed, run.check.counted) == (1, False)
        assert run.summary.startswith("Make test failed in ")
        assert run.summary.endswith("its output names no tests")

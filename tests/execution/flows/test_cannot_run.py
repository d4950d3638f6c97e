"""Flows whose tools are missing, broken, silent or half-installed cannot run, which is no failed check (SPEC 2.12).

The refusal names what is missing and how to get it. The cases are in `test_cannot_run.toml`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.execution.runners import CannotRun
from tests.execution.flows.flow_run import RunFlow
from tests.support import read_table
from tests.support.programs import needs
from tests.support.repository import Repository


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


@pytest.mark.long
def test_a_passing_test_that_prints_a_refused_connection_passes(project: Repository, run_flow: RunFlow):
    project.commit("tests", {"test_a.py": "def test_a(): print('sh: 1: x: not found, Connection refused')\n"})
    assert run_flow("run_tests").check.green


@pytest.mark.parametrize(
    "case",
    [*CASES["make"], *(pytest.param(case, marks=pytest.mark.long) for case in (*CASES["pytest"], *CASES["others"]))],
    ids=lambda case: case.name,
)
def test_the_refusal_names_what_is_missing_and_the_fix(
    case: Case, request: pytest.FixtureRequest, run_flow: RunFlow, leave_out_programs: Callable[..., None]
):
    needs(*case.needs)
    repository = request.getfixturevalue("project" if case in CASES["pytest"] else "repository")
    repository.commit("begin", case.files)
    if case.without:
        leave_out_programs(*case.without)
    with pytest.raises(CannotRun) as refusal:
        run_flow(case.flow)
    assert case.missing in refusal.value.message
    assert case.fix in refusal.value.fix

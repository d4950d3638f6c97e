"""The causes of failing tests as their output names them, and the flow that finds the commit that broke one (SPEC
2.12)."""

import pytest

from engine.execution.runners.flows.failing_tests import Cause, decide_verdict, find_cause
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.flow_run import CART, RunFlow, commit_shop
from tests.support.helpers import read_table

TABLE = read_table(__file__)


@pytest.mark.long
def test_bisect_skips_what_cannot_run_and_names_the_candidates(project: Repository, run_flow: RunFlow):
    good = commit_shop(project)
    project.commit("docs", {"README.md": "a shop"})
    unrunnable = project.commit("half a refactoring", {"shop/cart.py": "def total(prices:\n"})
    bad = project.commit("round the total", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1")})
    project.commit("more docs", {"README.md": "a big shop"})
    project.write("shop/cart.py", CART)
    project.write("tests/untracked.txt", "mine")
    run = run_flow("bisect", test="tests/test_cart.py::test_total", good=good, bad="HEAD")
    assert run.facts["skipped"] == [unrunnable]
    assert set(run.facts["candidates"]) == {unrunnable, bad}
    assert project.path.joinpath("tests/untracked.txt").read_text() == "mine"


@pytest.mark.parametrize("here, at_bad, verdict", TABLE["verdicts"])
def test_errors_alone_are_bad_only_where_the_bad_end_has_errors_alone(here: list[int], at_bad: list[int], verdict: str):
    """A run is given by how many tests passed, failed and had an error."""

    def make_check(passed: int, failed: int, errors: int) -> CheckResult:
        return CheckResult("pytest", passed, failed, errors=errors)

    assert decide_verdict(make_check(*here), make_check(*at_bad)) == verdict


@pytest.mark.parametrize("row", TABLE["cause"])
def test_the_cause_is_read_from_the_output(row: dict[str, str]):
    assert find_cause(row["output"], "/repo") == Cause(row["error"], row["message"], row["place"])


def test_failures_that_differ_by_chance_and_by_line_have_one_signature():
    def sign(line: int, price: int) -> str:
        trace = f"tests/t.py:3: in test_a\n    f()\nsrc/b.py:{line}: in f\n    g()\n"
        cause = find_cause(f"{trace}E   ValueError: {price} is too much\n", "/repo")
        return cause.make_signature("tests/t.py::test_a")

    assert sign(7, 21) == sign(12, 36)

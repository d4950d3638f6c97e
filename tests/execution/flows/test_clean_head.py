"""The flow `check_clean_head` says what each failing test does at HEAD alone, and no more (SPEC 2.12)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.conftest import Repository
from tests.execution.flows.flow_run import TEST_CART, RunFlow, commit_shop

pytestmark = pytest.mark.long


TOTAL, ODD = "tests/test_cart.py::test_total", "tests/test_cart.py::test_odd"
WRONG_CART = "def total(prices):\n    return max(prices)\n"
BROKEN_CART = "def total(prices:\n    return sum(prices)\n"


@dataclass(frozen=True)
class HeadCase:
    """Changes of a project, the tests that fail with them, and what is then said of HEAD alone."""

    committed: Mapping[str, str]
    uncommitted: Mapping[str, str]
    summary: str
    """A regular expression of the summary, without the time at its end."""

    test: str = TOTAL
    """The failing test."""

    def check(self, repository: Repository, run_flow: RunFlow):
        """Make the changes, and run HEAD alone."""
        if self.committed:
            repository.commit("work", self.committed)
        for path, text in self.uncommitted.items():
            repository.write(path, text)
        run = run_flow("check_clean_head", tests=[self.test])
        assert re.fullmatch(rf"{self.summary}(?: in [\d.]+ m?s)?", run.summary), run.summary


CASES = {
    "passes": HeadCase(
        {}, {"shop/cart.py": WRONG_CART}, rf"{TOTAL} passes without your uncommitted changes: all 2 tests passed"
    ),
    "fails": HeadCase(
        {"shop/cart.py": WRONG_CART},
        {"shop/cart.py": f"\n{WRONG_CART}"},
        rf"{TOTAL} fails without your uncommitted changes. On HEAD alone 1 of 2 tests failed .*: {TOTAL}",
    ),
    "syntax error": HeadCase(
        {"shop/cart.py": BROKEN_CART},
        {"shop/cart.py": WRONG_CART},
        "On HEAD alone 1 error, no tests ran in .*: tests/test_cart.py",
    ),
    "same file fails": HeadCase(
        {"shop/cart.py": BROKEN_CART},
        {"shop/cart.py": f"\n{BROKEN_CART}"},
        "tests/test_cart.py fails without your uncommitted changes. On HEAD alone 1 error, .*",
        "tests/test_cart.py",
    ),
    "file": HeadCase({}, {"shop/cart.py": BROKEN_CART}, "HEAD is complete: all 2 tests passed", "tests/test_cart.py"),
    "new test": HeadCase(
        {},
        {"tests/test_cart.py": f"{TEST_CART}\n\ndef test_odd():\n    assert 0\n"},
        "HEAD is complete: all 2 tests passed",
        ODD,
    ),
    "nothing left out": HeadCase({}, {}, "HEAD is complete: all 2 tests passed"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_of_each_failing_test_only_what_is_known_is_said(project: Repository, run_flow: RunFlow, case: HeadCase):
    commit_shop(project)
    case.check(project, run_flow)


# Tools that do not measure every test


def test_a_commit_that_needs_an_uncommitted_file_is_incomplete(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    project.commit("uses a helper", {"tests/test_tax.py": "def test_tax():\n    import shop.tax\n"})
    project.write("shop/tax.py", "RATE = 2\n")
    run = run_flow("check_clean_head", files=["shop/tax.py"])
    assert run.check.failing == ("tests/test_tax.py::test_tax",)
    assert run.facts["left_out"] == ["shop/tax.py"]
    assert run.facts["passes_with_files"] == ["tests/test_tax.py::test_tax"]
    assert run.summary.endswith("; 1 of 1 passed with the uncommitted files")
    assert not (run.folder / "shop/tax.py").exists(), "what is recorded is the state of HEAD alone"
    assert (project.path / "shop/tax.py").exists()
    project.git("add", "-A")
    project.commit("helper")
    assert run_flow("check_clean_head").summary.startswith("HEAD is complete: all 2 tests passed")

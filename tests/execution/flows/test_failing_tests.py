"""The causes of failing tests, the commit that broke one, and tests that are unreliable or slow (SPEC 2.12)."""

import ast
from datetime import date

import pytest

from engine.execution.runners.flows.failing_tests import Cause, find_cause
from engine.execution.runners.flows.unreliable_tests import add_skip_mark, tally_runs
from engine.git.inspection import QuarantinedTest, find_quarantined_tests
from engine.model import CheckResult
from tests.execution.flows.flow_run import CART, RunFlow, commit_shop
from tests.support import read_table
from tests.support.repository import Repository

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
    assert run.summary == "Broken by one of 2 commits at which the test cannot run"
    assert f"{unrunnable[:10]} is skipped: the test cannot run there" in run.transcript
    assert set(run.facts["suspects"]) == {bad, unrunnable}
    assert f"{bad[:10]} round the total" in run.session.lines
    assert project.path.joinpath("tests/untracked.txt").read_text() == "mine"


MENDED_CART = CART.replace("sum(prices)", "max(prices)")


@pytest.mark.long
@pytest.mark.parametrize(
    "present, outcome",
    [
        (CART, "The fix applies, but tests/test_cart.py::test_total still fails, so the fix is discarded: 1 of 1 test"),
        ("def total():\n    pass\n", "The fix does not apply: it conflicts in 1 file: shop/cart.py"),
        (MENDED_CART, "The files already have this fix, and tests/test_cart.py::test_total still fails"),
    ],
)
def test_a_fix_that_does_not_help_leaves_no_change(project: Repository, run_flow: RunFlow, present: str, outcome: str):
    commit_shop(project)
    project.write("shop/cart.py", MENDED_CART)
    patch = project.git("diff") + "\n"
    project.commit("present", {"shop/cart.py": present})
    run = run_flow("apply_fix", fix="cand_a", tests=["tests/test_cart.py::test_total"], patch=patch)
    assert run.summary.startswith(outcome)
    assert (run.folder / "shop/cart.py").read_text() == present
    assert run.result.has_problem


@pytest.mark.long
def test_a_clean_merge_is_tested(project: Repository, run_flow: RunFlow):
    main = commit_shop(project)
    project.git("switch", "-q", "-c", "topic")
    project.commit("docs", {"README.md": "a shop"})
    project.git("switch", "-q", "main")
    run = run_flow("rehearse_merge", source="topic", target="main")
    assert run.summary.startswith("topic merges cleanly into main, all 2 tests passed")
    assert project.git("rev-parse", "HEAD") == main


@pytest.mark.parametrize("row", TABLE["cause"])
def test_the_cause_is_read_from_the_output(row: dict[str, str]):
    assert find_cause(row["output"], "/repo") == Cause(row["error"], row["message"], row["place"])


# Unreliable and slow tests


LAST_DAY = date(2026, 12, 7)
FILES = [
    ('"""Doc."""\n\nfrom __future__ import annotations\nimport pytest\nclass TestA:\n'
     "    @pytest.mark.x\n    async def test_b(self, date):\n        pass\n", ["TestA", "test_b"]),
    ("#!/usr/bin/python\nclass TestA:\n\tdef test_b(self):\n\t\t'''\nimport pytest\n'''\n", ["TestA", "test_b"]),
    ("from datetime import date as d\nimport pytest\r\n\r\ndef test_a():\r\n    pass\r\n", ["test_a"]),
]  # fmt: skip
"""Files with a test at their end, and the names that lead to it."""


def test_a_test_of_cargo_that_fails_sometimes_is_flaky():
    checks = [CheckResult("cargo", 1, 0), CheckResult("cargo", 0, 1, failing=("a",))]
    assert tally_runs(checks)[0].verdict == "flaky"


@pytest.mark.long
def test_a_slower_test_is_reported_with_both_times(project: Repository, run_flow: RunFlow):
    test = "from work import work\n\ndef test_a():\n    assert work()\n"
    fast = project.commit("fast", {"work.py": "def work():\n    return 1\n", "tests/test_a.py": test})
    project.commit("slow", {"work.py": "def work():\n    return sum(i * i for i in range(1_000_000))\n"})
    run = run_flow("time_tests", tests=["tests/test_a.py::test_a"], fast=fast, times=2)
    assert run.summary.endswith(": slower")
    assert f"git log --oneline {fast[:10]}..HEAD" in run.transcript


@pytest.mark.parametrize("text, names", FILES)
def test_a_skip_mark_names_its_last_day_and_is_recognised(text: str, names: list[str]):
    after = add_skip_mark(text, names, LAST_DAY, "flaky: failed 3 of 20")
    assert find_quarantined_tests("t.py", after.split("\n")) == [QuarantinedTest("::".join(["t.py", *names]), LAST_DAY)]
    assert after.startswith("#!") is text.startswith("#!")
    old_test, new_test = (ast.unparse(ast.parse(source).body[-1]) for source in (text, after))
    assert old_test.splitlines()[-1] in new_test, "it stays at the end of the file"
    assert add_skip_mark(after, names, LAST_DAY, "again") is None
    later = add_skip_mark(after, names, date(2027, 1, 1), "again")
    assert "2026-12-07" not in later
    assert later.count("import pytest") == text.startswith("#!") + 1

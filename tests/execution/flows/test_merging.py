"""Conflicts of merges are forecast without a trace, and a rehearsed merge is tested and moves no branch (SPEC 3.9)."""

import pytest

from tests.conftest import Repository
from tests.execution.flows.flow_run import CART, TEST_CART, RunFlow, commit_branches, commit_shop


def test_conflicts_are_forecast_and_nothing_is_written(repository: Repository, run_flow: RunFlow):
    commit_branches(repository)
    objects = set((repository.path / ".git" / "objects").rglob("*"))
    run = run_flow("forecast_conflicts", base="main", branches=["left", "right", "docs"])
    conflicting = [fact for fact in run.facts["merges"] if fact["conflicts"]]
    assert [({fact["from"], fact["into"]}, fact["conflicts"]) for fact in conflicting] == [
        ({"left", "right"}, ["a.txt"])
    ]
    assert len(run.facts["merges"]) == 6
    assert "left → main   ✓ clean" in run.transcript
    assert set((repository.path / ".git" / "objects").rglob("*")) == objects


def test_the_best_order_is_compared_with_the_worst(repository: Repository, run_flow: RunFlow):
    lines = [f"{number}\n" for number in range(20)]
    repository.commit("begin", {"a.txt": "".join(lines)})
    for branch, changed_lines in (("wide", (3, 15)), ("low", (3,)), ("high", (15,))):
        repository.git("checkout", "-q", "-b", branch, "main")
        text = "".join(f"{branch}\n" if number in changed_lines else line for number, line in enumerate(lines))
        repository.commit(branch, {"a.txt": text})
    repository.git("checkout", "-q", "main")
    run = run_flow("forecast_conflicts", base="main", branches=["wide", "low", "high"])
    assert run.summary.endswith(": 1 conflict; the worst order has 2")
    assert run.facts["order"].index("wide") == 2


@pytest.mark.long
def test_a_rehearsed_merge_is_tested_and_moves_no_branch(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("callers want 3", {"tests/test_more.py": TEST_CART.replace("test_total", "test_more")})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1"),
                                     "tests/test_cart.py": TEST_CART.replace("== 3", "== 4")})  # fmt: skip
    project.write("shop/cart.py", "uncommitted rubbish(")
    heads = project.git("rev-parse", "main", "feature")
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly" in run.summary
    assert "but 1 of 3 tests failed" in run.summary
    assert run.summary.endswith("; it did not fail before")
    assert run.result.full
    assert project.git("rev-parse", "main", "feature") == heads
    assert (run.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree
    assert "+ 1" in (run.folder / "shop/cart.py").read_text()

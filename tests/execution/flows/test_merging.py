"""Conflicts are forecast and merges rehearsed without a change of the repository."""

from __future__ import annotations

import pytest

from engine.execution.runners.flows.merging import describe_order
from tests.conftest import Repository
from tests.execution.flows.conftest import CART, TEST_CART, RunFlow, commit_branches, commit_shop


def test_conflicts_are_forecast_and_nothing_is_written(repository: Repository, run_flow: RunFlow) -> None:
    commit_branches(repository)
    objects = set((repository.path / ".git" / "objects").rglob("*"))
    run = run_flow("forecast_conflicts", base="main", branches=["left", "right", "docs"])
    bad = [fact for fact in run.facts["merges"] if fact["conflicts"]]
    assert [({fact["from"], fact["into"]}, fact["conflicts"]) for fact in bad] == [({"left", "right"}, ["a.txt"])]
    assert len(run.facts["merges"]) == 6
    assert "left → main   ✓ clean" in run.transcript
    assert set((repository.path / ".git" / "objects").rglob("*")) == objects


@pytest.mark.parametrize(
    ("best", "worst", "words"),
    [
        (0, 2, "no conflicts in this order; the worst order has 2"),
        (1, 2, "1 file in conflict; the worst order has 2"),
        (2, 2, "2 files in conflict in any order, so the oldest goes first"),
    ],
)
def test_the_best_order_is_compared_with_the_worst(best: int, worst: int, words: str) -> None:
    assert describe_order(best, worst) == words


@pytest.mark.long
def test_a_rehearsed_merge_is_tested_and_moves_no_branch(project: Repository, run_flow: RunFlow) -> None:
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
    assert run.result.full
    assert project.git("rev-parse", "main", "feature") == heads
    assert (run.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree
    assert "+ 1" in (run.folder / "shop/cart.py").read_text()

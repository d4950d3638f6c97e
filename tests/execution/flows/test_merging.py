"""Conflicts of merges are forecast without a trace, and a rehearsed merge is tested and moves no branch (SPEC 3.9)."""

import pytest

from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.execution.flows.projects import CART, TEST_CART, commit_branches, commit_shop
from tests.support.programs import MAVEN_PROJECT, MAVEN_WRAPPER, make_java_class, run_git_that_stops


def commit_failing_main(project: Repository):
    """Commit a shop whose test fails on main, and a branch `feature` that has nothing to do with it."""
    commit_shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("notes", {"notes.txt": "more\n"})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1")})


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


def test_branches_that_conflict_in_any_order_are_merged_oldest_first(repository: Repository, run_flow: RunFlow):
    commit_branches(repository)
    run = run_flow("forecast_conflicts", base="main", branches=["left", "right"])
    assert run.summary == "Merge left, then right: 1 conflict in any order, so the oldest goes first"
    assert run.facts["order"] == ["left", "right"]
    assert "2. right into main: conflicts in a.txt" in run.transcript


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


@pytest.mark.long
def test_a_rehearsed_merge_is_not_blamed_for_a_test_that_failed_before(project: Repository, run_flow: RunFlow):
    commit_failing_main(project)
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly into main, " in run.summary
    assert run.summary.endswith("; it failed before as well, nothing new fails")


@pytest.mark.long
def test_a_suite_that_passes_is_not_run_again_for_the_failures_of_another_one(project: Repository, run_flow: RunFlow):
    project.write("mvnw", MAVEN_WRAPPER.replace("\n", "\necho once >>runs.log\n", 1)).chmod(0o755)
    java = {**MAVEN_PROJECT, "Cart.java": make_java_class("return a + b;"), ".gitignore": "runs.log\n"}
    project.commit("Java", java)
    commit_failing_main(project)
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "1 of 4 tests failed" in run.summary
    assert run.summary.endswith("; it failed before as well, nothing new fails")
    assert (run.folder / "runs.log").read_text() == "once\n"
    assert (run.folder / "notes.txt").exists()


@pytest.mark.long
def test_the_way_on_from_a_merge_names_files_that_git_would_take_for_patterns(project: Repository, run_flow: RunFlow):
    name = ":odd.txt"
    commit_shop(project)
    project.git("branch", "side")
    project.commit("ours", {name: "1"})
    project.git("checkout", "-q", "side")
    project.commit("theirs", {name: "2"})
    run_git_that_stops(project.path, "merge", "-q", "main")
    assert f"`git add -- ':(literal){name}'`" in run_flow("unfinished_operation").summary


def test_an_autosquash_without_fixup_commits_has_nothing_to_fold(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    assert run_flow("rehearse_autosquash").summary == "Nothing to fold: no fixup of another among 2 commits"

"""Conflicts of merges are forecast without a trace, a rehearsed merge moves no branch, and branches and stashes are
reported with the command that deletes them (SPEC 3.9)."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from tests.conftest import Repository
from tests.execution.flows.flow_run import CART, TEST_CART, RunFlow, commit_branches, commit_shop
from tests.support.helpers import read_table


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


@pytest.mark.long
def test_a_rehearsed_merge_is_tested_and_moves_no_branch(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("callers want 3", {"tests/test_more.py": TEST_CART.replace("test_total", "test_more")})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1"),
                                     "tests/test_cart.py": TEST_CART.replace("== 3", "== 4")})  # fmt: skip
    heads = project.git("rev-parse", "main", "feature")
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly" in run.summary
    assert "but 1 of 3 tests failed" in run.summary
    assert run.summary.endswith("; it did not fail before")
    assert project.git("rev-parse", "main", "feature") == heads
    assert (run.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree


def test_an_autosquash_without_fixup_commits_has_nothing_to_fold(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    assert run_flow("rehearse_autosquash").summary == "Nothing to fold: no fixup of another among 2 commits"


TABLE = read_table(__file__)

# Branches


def test_branches_that_can_be_deleted_are_named_with_the_command(repository: Repository, run_flow: RunFlow):
    commit_branches(repository)
    repository.git("branch", "done", "main")
    repository.commit("moves on", {"c.txt": "c"})
    repository.git("cherry-pick", "docs")
    run = run_flow("report_branches", days=30)
    states = {fact["name"]: (fact["state"], fact["command"]) for fact in run.facts["branches"]}
    assert states == {
        "done": ("merged", "git branch -d -- done"),
        "docs": ("applied", "git branch -D -- docs"),
    }
    assert repository.git("branch", "--list", "done")


@pytest.mark.parametrize("days, stale", [(29, False), (30, True)])
def test_stale_begins_at_the_day(repository: Repository, run_flow: RunFlow, days: int, stale: bool):
    commit_branches(repository)
    clock = FakeClock(datetime.now(UTC) + timedelta(days=days, hours=1))
    run = run_flow("report_branches", clock=clock, days=30)
    names = {fact["name"] for fact in run.facts["branches"]}
    assert names == ({"left", "right", "docs"} if stale else set())


# Stashes


@pytest.mark.parametrize("in_head, state", TABLE["heads"])
def test_a_stash_applies_unless_head_differs_in_its_files(
    repository: Repository, run_flow: RunFlow, in_head: dict[str, str], state: str
):
    repository.commit("begin", {"a.txt": "one\n"})
    for name, text in {"a.txt": "mine\n", "new.txt": "1\n", "newer.txt": "2\n"}.items():
        repository.write(name, text)
    repository.git("stash", "push", "-q", "--include-untracked")
    stash = repository.git("rev-parse", "stash@{0}")
    repository.commit("goes on", in_head)
    assert run_flow("look_at_stash", stashes=[stash]).facts["stashes"] == {"stash@{0}": state}

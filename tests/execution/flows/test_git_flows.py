"""Flows on branches, merges and stashes, and in repositories without commits or with odd names."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flow import CannotRun, WorkFailed
from engine.execution.runners.flows.merging import describe_order
from engine.execution.runners.flows.upkeep import ComparedBranch
from tests.conftest import Repository
from tests.execution.flows.conftest import CART, TEST_CART, RunFlow, commit_branches, commit_shop

# Branches


def test_merged_applied_and_stale_branches(repository: Repository, run_flow: RunFlow) -> None:
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


def test_a_squashed_branch_counts_as_applied(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    repository.git("checkout", "-q", "-b", "feature")
    repository.commit("first", {"a.txt": "two\n"})
    repository.commit("second", {"a.txt": "three\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("feature (#1)", {"a.txt": "three\n"})
    [fact] = run_flow("report_branches").facts["branches"]
    assert (fact["name"], fact["state"], fact["ahead"]) == ("feature", "applied", 2)


@pytest.mark.parametrize(("days", "stale"), [(29, False), (30, True)])
def test_stale_begins_at_the_day(repository: Repository, run_flow: RunFlow, days: int, stale: bool) -> None:
    commit_branches(repository)
    clock = FakeClock(datetime.now(UTC) + timedelta(days=days, hours=1))
    run = run_flow("report_branches", clock=clock, days=30)
    names = {fact["name"] for fact in run.facts["branches"]}
    assert names == ({"left", "right", "docs"} if stale else set())


def test_branch_names_are_quoted_in_commands() -> None:
    branch = ComparedBranch("a;rm -rf ~", 1, 0, 0, is_checked_out=False, state="merged")
    assert branch.command == "git branch -d -- 'a;rm -rf ~'"


# Merges and conflicts


def test_conflicts_are_forecast_and_nothing_is_written(repository: Repository, run_flow: RunFlow) -> None:
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
    assert run.summary.endswith("; it did not fail before")
    assert run.result.full
    assert project.git("rev-parse", "main", "feature") == heads
    assert (run.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree
    assert "+ 1" in (run.folder / "shop/cart.py").read_text()


@pytest.mark.long
def test_a_rehearsed_merge_is_not_blamed_for_a_test_that_failed_before(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("notes", {"notes.txt": "more\n"})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1")})
    run = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly into main, " in run.summary
    assert run.summary.endswith("; it failed before as well, nothing new fails")
    assert (run.folder / "notes.txt").exists()


@pytest.mark.long
def test_the_way_on_from_a_merge_names_files_that_git_would_take_for_patterns(
    project: Repository, run_flow: RunFlow
) -> None:
    name = ":odd.txt"
    commit_shop(project)
    project.git("branch", "side")
    project.commit("ours", {name: "1"})
    project.git("checkout", "-q", "side")
    project.commit("theirs", {name: "2"})
    assert subprocess.run(["git", "merge", "-q", "main"], cwd=project.path, check=False).returncode
    assert f"`git add -- ':(literal){name}'`" in run_flow("unfinished_operation").summary


def test_an_autosquash_without_fixup_commits_has_nothing_to_fold(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    assert run_flow("rehearse_autosquash").summary == "Nothing to fold: no fixup of another among 2 commits"


# Repositories without commits, and with file names that are no text


def test_a_repository_without_commits_is_reported_as_such(repository: Repository, run_flow: RunFlow) -> None:
    repository.write("a.txt", "not yet")
    assert run_flow("summarise_day", since="2026-01-05T00:00:00Z").facts["text"] == (
        "No commits.\nNot committed yet: a.txt."
    )
    review = run_flow("review_unpushed", upstream="origin/main")
    assert review.summary == "Nothing to review: there is no commit yet, and nothing is staged"
    with pytest.raises(WorkFailed, match="no branch to compare with"):
        run_flow("report_branches")
    with pytest.raises(CannotRun, match="names no commit"):  # a typo teaches nothing
        run_flow("forecast_conflicts", base="main", branches=["x"])


def test_file_names_that_are_no_text_are_sanitised(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a b.txt": "one\n"})
    name = os.fsdecode(b"caf\xe9\x1b[31m.py")
    for branch, text in (("left", "x = 1\n"), ("right", "breakpoint()\n")):
        repository.git("checkout", "-q", "-b", branch, "main")
        repository.commit(branch, {name: text})
    run = run_flow("forecast_conflicts", base="left", branches=["right"])
    assert run.facts["merges"][0]["conflicts"] == ["caf\N{REPLACEMENT CHARACTER}.py"]
    assert "\x1b" not in run.transcript
    run = run_flow("review_unpushed", upstream="main")
    assert [fact["kind"] for fact in run.facts["findings"]] == ["breakpoint"]
    assert "\x1b" not in run.transcript


# Stashes


@pytest.mark.parametrize(
    ("in_head", "state"),
    [
        ({"other.txt": "x\n"}, "still applies"),
        ({"a.txt": "mine\n", "new.txt": "1\n", "newer.txt": "2\n"}, "already in HEAD"),
        ({"a.txt": "mine\n", "new.txt": "1\n"}, "still applies"),
        ({"a.txt": "theirs\n", "new.txt": "other\n"}, "conflicts in a.txt"),
        ({"new.txt": "other\n"}, "does not apply: new.txt already exists"),
        ({"new.txt/file": "other\n"}, "does not apply: new.txt already exists"),
        ({"new.txt": "other\n", "newer.txt": ""}, "does not apply: new.txt and newer.txt already exist"),
    ],
)
def test_a_stash_applies_unless_head_differs_in_its_files(
    repository: Repository, run_flow: RunFlow, in_head: dict[str, str], state: str
) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    for name, text in {"a.txt": "mine\n", "new.txt": "1\n", "newer.txt": "2\n"}.items():
        repository.write(name, text)
    repository.git("stash", "push", "-q", "--include-untracked")
    stash = repository.git("rev-parse", "stash@{0}")
    repository.commit("goes on", in_head)
    assert run_flow("look_at_stash", stashes=[stash]).facts["stashes"] == {"stash@{0}": state}

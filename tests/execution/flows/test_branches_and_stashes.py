"""Branches and stashes are reported with their state and the command that deletes them; none is deleted (SPEC 3.9)."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow, commit_branches
from tests.support.helpers import read_table

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

"""Flows that run only git: branches, stashes, fixup commits, a pull request, a repository without commits (SPEC 2.12,
3.8)."""

import pytest

from engine.execution.runners import CannotRun, WorkFailed
from tests.execution.flows.flow_run import RunFlow, commit_shop
from tests.support import read_table
from tests.support.keys import GITHUB_TOKEN
from tests.support.repository import Repository

TABLE = read_table(__file__)


def test_a_repository_without_commits_is_reported_as_such(repository: Repository, run_flow: RunFlow):
    repository.write("a.txt", "not yet")
    day = run_flow("summarise_day", since="2026-01-05T00:00:00Z")
    assert day.transcript == "No commits.\nNot committed yet: a.txt."
    review = run_flow("review_unpushed", upstream="origin/main")
    assert review.summary == "Nothing to review: there is no commit yet, and nothing is staged"
    with pytest.raises(WorkFailed, match="no branch to compare with"):
        run_flow("report_branches")
    with pytest.raises(CannotRun, match="names no commit"):  # a typo teaches nothing
        run_flow("forecast_conflicts", base="main", branches=["x"])


def test_a_branch_whose_commits_were_picked_can_be_deleted(repository: Repository, run_flow: RunFlow):
    repository.git("switch", "-q", "-c", "latest")
    repository.commit("begin", {"a.py": "1\n"})
    repository.git("switch", "-q", "-c", "topic")
    picked = repository.commit("topic", {"a.py": "2\n"})
    repository.git("switch", "-q", "latest")
    repository.commit("other", {"b.py": ""})
    repository.git("cherry-pick", picked)
    repository.commit("later", {"a.py": "3\n"})
    run = run_flow("report_branches")
    assert "no main branch is known. Name it: git config init.defaultBranch NAME" in run.transcript
    assert "Their changes are in latest as other commits" in run.transcript


def test_a_secret_is_not_shown(repository: Repository, run_flow: RunFlow):
    repository.commit("Key", {"a.py": "1\n", "settings.py": f'TOKEN = "{GITHUB_TOKEN}"\n'})
    run = run_flow("look_together", path="a.py", partner="settings.py")
    assert GITHUB_TOKEN not in run.transcript
    assert "a likely secret, not shown" in run.transcript


def test_only_the_named_documents_are_updated(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"a.py": "def total(x):\n    return x\n\n\ndef tax():\n    return 1\n"})
    repository.commit("words", {"README.md": "See `total()`.\n", "NOTES.md": "See `tax()`.\n"})
    repository.write("a.py", "def sum_of(x):\n    return x\n")
    assert run_flow("update_docs", paths=["README.md"]).summary == "1 name updated in README.md"


def test_an_autosquash_without_fixup_commits_has_nothing_to_fold(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    assert run_flow("rehearse_autosquash").summary == "Nothing to fold: no fixup of another among 2 commits"
    for number, subject in enumerate(["a note", "another note", "fixup! a note"]):
        project.commit(subject, {"notes.md": f"{number}\n"})
    assert run_flow("rehearse_autosquash").summary.endswith(" in notes.md")


def test_a_pull_request_is_described_by_the_branch_of_its_very_name(repository: Repository, run_flow: RunFlow):
    begin = repository.commit("begin", {"a.txt": "1\n"})
    other = repository.commit("other", {"a.txt": "2\n"})
    repository.git("reset", "-q", "--hard", begin)
    repository.git("update-ref", "refs/heads/feature/login", other)
    assert run_flow("look_at_pull_request", number=7, branch="login").summary.endswith("; its branch is not here")
    repository.git("update-ref", "refs/remotes/origin/login", other)
    run = run_flow("look_at_pull_request", number=7, branch="login")
    assert run.summary == "Pull request #7; 1 commit, 1 file changed against main"


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
    assert run_flow("look_at_stash", stashes=[stash]).summary.endswith(f": {state}")

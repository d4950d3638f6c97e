"""Flows in repositories without commits, and with file names that are no text (SPEC 2.12)."""

import os

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow


def test_a_repository_without_commits_is_reported_as_such(repository: Repository, run_flow: RunFlow):
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


def test_file_names_that_are_no_text_are_sanitised(repository: Repository, run_flow: RunFlow):
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

"""Flows that ask git: conflicts, unpushed commits, branches, the day."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.execution.runners.flow import FlowError
from engine.execution.runners.flows.branch_report import ComparedBranch
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

# -- forecast_conflicts ---------------------------------------------------------------------------------------------


def branches(repository: Repository) -> None:
    """`left` and `right` change the same line, `docs` another file."""
    repository.commit("begin", {"a.txt": "one\n", "b.txt": "b\n"})
    for name, file, text in (("left", "a.txt", "left\n"), ("right", "a.txt", "right\n"), ("docs", "b.txt", "new\n")):
        repository.git("checkout", "-q", "-b", name, "main")
        repository.commit(name, {file: text})
    repository.git("checkout", "-q", "main")


def test_conflicts_are_forecast_and_nothing_is_written(repository: Repository, run_flow: RunFlow) -> None:
    branches(repository)
    objects = set((repository.path / ".git" / "objects").rglob("*"))
    ran = run_flow("forecast_conflicts", base="main", branches=["left", "right", "docs"])
    bad = [fact for fact in ran.result.facts["merges"] if fact["conflicts"]]
    assert [({fact["from"], fact["into"]}, fact["conflicts"]) for fact in bad] == [({"left", "right"}, ["a.txt"])]
    assert len(ran.result.facts["merges"]) == 6
    assert "left → main   ✓ clean" in ran.bench.text
    assert set((repository.path / ".git" / "objects").rglob("*")) == objects


# -- review_unpushed ------------------------------------------------------------------------------------------------

TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak


@pytest.mark.long
def test_leftovers_are_found_with_their_present_line(repository: Repository, run_flow: RunFlow) -> None:
    base = repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("debug", {"app.py": "x = 1\nprint(x)\nbreakpoint()\n", "web.js": "it.only('a', () => {})\n"})
    repository.commit("token", {"config.py": f"KEY = '{TOKEN}'\n"})
    repository.commit("no token, one line more", {"config.py": "KEY = ''\n", "app.py": "y = 2\nx = 1\nprint(x)\n"})
    repository.commit("clash", {"a.txt": "<<<<<<< HEAD\n+++ b\n>>>>>>> x\n", "big.bin": "0" * 10_000_001})
    ran = run_flow("review_unpushed", upstream=base)
    findings = {(fact["path"], fact["line"], fact["kind"], fact["gone"]) for fact in ran.result.facts["findings"]}
    assert findings == {
        ("config.py", 1, "likely secret: GitHub token", True),
        ("app.py", 3, "debug print", False),
        ("web.js", 1, ".only", False),
        ("a.txt", 1, "conflict marker", False),
        ("a.txt", 3, "conflict marker", False),
        ("big.bin", 0, "large file", False),
    }
    assert f"git rebase -i {base}" in ran.bench.text  # a red result says what is next
    assert TOKEN not in ran.bench.text + str(ran.result)
    assert "app.py:3  debug print" in ran.bench.text


def test_nothing_unpushed(repository: Repository, run_flow: RunFlow) -> None:
    head = repository.commit("begin", {"app.py": "x = 1\n"})
    assert run_flow("review_unpushed", upstream=head).result.summary.startswith("Nothing to review")
    repository.commit("tidy", {"app.py": "x = 2\n"})
    assert run_flow("review_unpushed", upstream=head).result.summary == (
        "1 unpushed commit, nothing that should not be pushed"
    )


# -- report_branches ------------------------------------------------------------------------------------------------


def test_merged_applied_and_stale_branches(repository: Repository, run_flow: RunFlow) -> None:
    branches(repository)
    repository.git("branch", "done", "main")
    repository.commit("moves on", {"c.txt": "c"})
    repository.git("cherry-pick", "docs")
    ran = run_flow("report_branches", days=30)
    states = {fact["name"]: (fact["state"], fact["command"]) for fact in ran.result.facts["branches"]}
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
    [fact] = run_flow("report_branches").result.facts["branches"]
    assert (fact["name"], fact["state"], fact["ahead"]) == ("feature", "applied", 2)


@pytest.mark.parametrize(("days", "stale"), [(29, False), (30, True)])
def test_stale_begins_at_the_day(repository: Repository, run_flow: RunFlow, days: int, stale: bool) -> None:
    branches(repository)
    clock = FakeClock(datetime.now(UTC) + timedelta(days=days, hours=1))
    ran = run_flow("report_branches", clock=clock, days=30)
    names = {fact["name"] for fact in ran.result.facts["branches"]}
    assert names == ({"left", "right", "docs"} if stale else set())


def test_commands_quote_what_a_shell_would_read() -> None:
    branch = ComparedBranch("a;rm -rf ~", "0" * 40, 1, 0, 0, is_checked_out=False, state="merged")
    assert branch.command == "git branch -d -- 'a;rm -rf ~'"


# -- summarise_day --------------------------------------------------------------------------------------------------


def test_the_day_in_words(repository: Repository, run_flow: RunFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-04T18:00:00+01:00")
    repository.commit("yesterday", {"a.txt": "one\n"})
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-05T09:00:00+01:00")
    repository.commit("round the total", {"a.txt": "two\nthree\n"})
    repository.git("checkout", "-q", "-b", "feature")
    repository.commit("try a tax", {"tax.txt": "x\n"})
    repository.write("new file.txt", "not yet")
    ran = run_flow(
        "summarise_day",
        since="2026-01-05T00:00:00+01:00",
        sessions=["full test run: succeeded"],
        checks=["pytest: 23 passed"],
    )
    assert ran.result.facts["text"].splitlines() == [
        "Monday 05 January: 2 commits, +3 -1 lines",
        "  feature (Test)",
        "    - try a tax",
        "  main (Test)",
        "    - round the total",
        "Sessions:",
        "  - full test run: succeeded",
        "Checks:",
        "  - pytest: 23 passed",
        "Not committed yet: new file.txt.",
    ]
    assert ran.result.summary == "2 commits, 2 files changed, 1 session, 1 file not committed"


def test_a_quiet_day(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    since = datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()
    assert run_flow("summarise_day", since=since).result.facts["text"] == "No commits.\nEverything is committed."


# -- a repository without commits -----------------------------------------------------------------------------------


def test_a_repository_without_commits(repository: Repository, run_flow: RunFlow) -> None:
    repository.write("a.txt", "not yet")
    assert run_flow("summarise_day", since="2026-01-05T00:00:00Z").result.facts["text"] == (
        "No commits.\nNot committed yet: a.txt."
    )
    nothing = run_flow("review_unpushed", upstream="origin/main").result
    assert nothing.summary == "Nothing to review: there is no commit yet, and nothing is staged"
    with pytest.raises(FlowError, match="no branch to compare with"):
        run_flow("report_branches")
    with pytest.raises(FlowError, match="names no commit"):
        run_flow("forecast_conflicts", base="main", branches=["x"])


def test_names_that_are_no_text(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a b.txt": "one\n"})
    name = os.fsdecode(b"caf\xe9\x1b[31m.py")
    for branch, text in (("left", "x = 1\n"), ("right", "breakpoint()\n")):
        repository.git("checkout", "-q", "-b", branch, "main")
        repository.commit(branch, {name: text})
    ran = run_flow("forecast_conflicts", base="left", branches=["right"])
    assert ran.result.facts["merges"][0]["conflicts"] == ["caf\N{REPLACEMENT CHARACTER}.py"]
    assert "\x1b" not in ran.bench.text
    ran = run_flow("review_unpushed", upstream="main")
    assert [fact["kind"] for fact in ran.result.facts["findings"]] == ["breakpoint"]
    assert "\x1b" not in ran.bench.text

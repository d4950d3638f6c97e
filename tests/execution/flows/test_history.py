"""Flows that read git's history: a day, files that change together, a release. They run nothing (SPEC 3.8)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from engine.execution.runners.flow import WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.support.helpers import GITHUB_TOKEN


def format_january(day: int) -> str:
    return f"2026-01-{day:02}T10:00:00+00:00"


def test_a_day_is_summarised_by_branch(
    repository: Repository, run_flow: RunFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-04T18:00:00+01:00")
    repository.commit("yesterday", {"a.txt": "one\n"})
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-05T09:00:00+01:00")
    repository.commit("round the total", {"a.txt": "two\nthree\n"})
    repository.git("checkout", "-q", "-b", "feature")
    repository.commit("try a tax", {"tax.txt": "x\n"})
    repository.write("new file.txt", "not yet")
    run = run_flow(
        "summarise_day",
        since="2026-01-05T00:00:00+01:00",
        sessions=["full test run: succeeded"],
        checks=["pytest: 23 passed"],
    )
    assert run.facts["text"].splitlines() == [
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
    assert run.summary == "2 commits, 2 files changed, 1 session, 1 file not committed"


def test_a_day_without_commits_says_so(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.txt": "one\n"})
    since = datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()
    assert run_flow("summarise_day", since=since).facts["text"] == "No commits.\nEverything is committed."


def test_the_last_joint_commits_are_shown_with_the_partners_changes(repository: Repository, run_flow: RunFlow) -> None:
    for number in range(1, 6):
        repository.commit(
            f"Price {number}",
            {"price.py": f"{number}\n", "rules.toml": f"rate = {number}\n"},
            at=format_january(number),
        )
    repository.commit("Alone", {"price.py": "6\n"}, at=format_january(6))
    repository.commit("Other", {"rules.toml": "rate = 5\nnew = 1\n"}, at=format_january(7))
    run = run_flow("look_together", path="price.py", partner="rules.toml")
    assert run.summary == (
        "5 commits changed both price.py and rules.toml, the last on 2026-01-05: “Price 5”, 2 lines of rules.toml"
    )
    assert [fact["subject"] for fact in run.facts["commits"]] == ["Price 5", "Price 4", "Price 3"]
    assert "-rate = 4\n+rate = 5" in run.transcript
    assert "2026-01-04" in run.transcript
    assert run.session.commands == []


def test_a_file_name_is_neither_a_pattern_nor_an_option(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("Odd", {"a[1].py": "1\n", "--output=x": "1\n"}, at=format_january(1))
    repository.commit("Plain", {"a1.py": "1\n", "b.py": "1\n"}, at=format_january(2))
    run = run_flow("look_together", path="a[1].py", partner="--output=x")
    assert run.facts["together"] == 1
    assert not (repository.path / "x").exists()
    with pytest.raises(ValidationError):
        run_flow("look_together", path="../a.py", partner="b.py")


def test_a_secret_is_not_shown(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("Key", {"a.py": "1\n", "settings.py": f'TOKEN = "{GITHUB_TOKEN}"\n'})
    run = run_flow("look_together", path="a.py", partner="settings.py")
    assert GITHUB_TOKEN not in run.transcript
    assert "a likely secret, not shown" in run.transcript


def test_a_release_lists_the_commits_that_users_notice(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.py": "1\n"})
    repository.git("tag", "v1.0")
    for number, subject in enumerate(("feat: gift cards", "Fix the total", "Bump version to 1.1", "fix: rounding")):
        repository.commit(subject, {"a.py": f"new {number}\n"})
    run = run_flow("look_at_release", since="v1.0")
    assert run.summary == "4 commits since v1.0, 3 that users notice: 1 added, 2 fixed"
    assert run.facts["entries"]["Fixed"] == ["Rounding", "Fix the total"]
    assert "Added:\n- Gift cards" in run.transcript
    with pytest.raises(WorkFailed, match="names no commit"):
        run_flow("look_at_release", since="v9")

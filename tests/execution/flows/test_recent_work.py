"""Flows that look at your recent work, what it left behind and what it usually goes with (SPEC 3.8)."""

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.execution.flows.unpushed_histories import WITH_KEY
from tests.support.helpers import GITHUB_TOKEN


def test_a_day_is_summarised_by_branch(repository: Repository, run_flow: RunFlow, monkeypatch: pytest.MonkeyPatch):
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


def test_uncommitted_files_are_grouped_into_commits_by_what_they_are_about(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"shop/cart.py": "1\n", "old.py": "1\n", "logo.bin": "\x00\n", "notes.md": "1\n"})
    repository.write("shop/cart.py", "2\n3\n")
    repository.write("tests/test_cart.py", "1\n2\n")
    repository.write("tests/test_login.py", "1\n")
    repository.write("logo.bin", "\x00\x01\n")
    repository.write("notes.md", "2\n")
    repository.write("setup.cfg", "1\n")
    repository.git("rm", "-q", "old.py")
    run = run_flow("look_at_changes")
    assert run.facts["groups"] == {
        "shop": ["shop/cart.py", "tests/test_cart.py"],
        "documentation": ["notes.md"],
        "logo": ["logo.bin"],
        "old": ["old.py"],
        "settings": ["setup.cfg"],
        "tests": ["tests/test_login.py"],
    }
    assert run.summary == "7 files not committed; could be 6 commits: shop, documentation, logo and 3 more"
    assert "1. shop: 2 files, +4 -1\n   M shop/cart.py  +2 -1\n   ? tests/test_cart.py  +2 -0" in run.transcript
    assert "   M logo.bin  +0 -0" in run.transcript
    assert "   D old.py  +0 -1" in run.transcript


def test_a_new_file_with_a_key_is_not_to_be_committed(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"notes.md": "1\n"})
    repository.write("settings.py", f"breakpoint()\n{WITH_KEY}")
    run = run_flow("look_at_changes")
    assert "Do not commit: settings.py:3 holds a GitHub token, not committed yet" in run.transcript
    assert run.summary.endswith("; do not commit: settings.py:3 holds a GitHub token")


# Odd repositories


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


# What your own changes left behind, and a file that usually changes with yours


def format_january(day: int) -> str:
    return f"2026-01-{day:02}T10:00:00+00:00"


@pytest.mark.parametrize(
    "parameters, places",
    [
        ({}, ["cart.py:1"]),
        ({"today": "2026-01-05T00:00:00+01:00"}, ["cart.py:1", "cart.py:2"]),
        ({"today": "9999-01-05T00:00:00+01:00"}, ["cart.py:1"]),
    ],
    ids=["no time", "earlier", "later"],
)
def test_todos_count_only_with_a_time_after_which_they_were_added(
    repository: Repository, run_flow: RunFlow, parameters: dict[str, str], places: list[str]
):
    repository.commit("begin", {"a.py": "1\n"}, at=format_january(1))
    repository.write("cart.py", "breakpoint()\n# TODO: tax\n")
    findings = run_flow("look_for_leftovers", **parameters).facts["findings"]
    assert [f"{finding['path']}:{finding['line']}" for finding in findings] == places


def test_the_last_joint_commits_are_shown_with_the_partners_changes(repository: Repository, run_flow: RunFlow):
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


def test_a_secret_is_not_shown(repository: Repository, run_flow: RunFlow):
    repository.commit("Key", {"a.py": "1\n", "settings.py": f'TOKEN = "{GITHUB_TOKEN}"\n'})
    run = run_flow("look_together", path="a.py", partner="settings.py")
    assert GITHUB_TOKEN not in run.transcript
    assert "a likely secret, not shown" in run.transcript

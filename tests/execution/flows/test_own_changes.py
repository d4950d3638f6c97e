"""Flows about what your own changes left behind, and about a file that usually changes with yours (SPEC 3.8)."""

import pytest

from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.support.helpers import GITHUB_TOKEN


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

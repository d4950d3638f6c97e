"""A review of unpushed commits finds leftovers, secrets and large files, also those that are gone again."""

from __future__ import annotations

import pytest

from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak


@pytest.mark.long
def test_leftovers_are_reported_with_their_present_line(repository: Repository, run_flow: RunFlow) -> None:
    base = repository.commit("begin", {"app.py": "x = 1\n"})
    repository.commit("debug", {"app.py": "x = 1\nprint(x)\nbreakpoint()\n", "web.js": "it.only('a', () => {})\n"})
    repository.commit("token", {"config.py": f"KEY = '{TOKEN}'\n"})
    repository.commit("no token, one line more", {"config.py": "KEY = ''\n", "app.py": "y = 2\nx = 1\nprint(x)\n"})
    repository.commit("clash", {"a.txt": "<<<<<<< HEAD\n+++ b\n>>>>>>> x\n", "big.bin": "0" * 10_000_001})
    run = run_flow("review_unpushed", upstream=base)
    findings = {(fact["path"], fact["line"], fact["kind"], fact["gone"]) for fact in run.facts["findings"]}
    assert findings == {
        ("config.py", 1, "likely secret: GitHub token", True),
        ("app.py", 3, "debug print", False),
        ("web.js", 1, ".only", False),
        ("a.txt", 1, "conflict marker", False),
        ("a.txt", 3, "conflict marker", False),
        ("big.bin", 0, "large file", False),
    }
    assert f"git rebase -i {base}" in run.transcript  # a red result says what is next
    assert TOKEN not in run.transcript + str(run.result)
    assert "app.py:3  debug print" in run.transcript


def test_without_unpushed_problems_it_says_so(repository: Repository, run_flow: RunFlow) -> None:
    head = repository.commit("begin", {"app.py": "x = 1\n"})
    assert run_flow("review_unpushed", upstream=head).summary.startswith("Nothing to review")
    repository.commit("tidy", {"app.py": "x = 2\n"})
    assert run_flow("review_unpushed", upstream=head).summary == (
        "1 unpushed commit, nothing that should not be pushed"
    )

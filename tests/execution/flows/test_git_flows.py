"""Flows that ask git or its history, and those that leave a change: the change log, lint."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.clock import FakeClock
from engine.execution.runners.flow import CannotRun, FlowError
from engine.execution.runners.flows.branches import ComparedBranch
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


# Flows that only look at the history: what changed together, what a release would hold.


# put together here so that no scanner takes this file for a leak


def day(number: int) -> str:
    return f"2026-01-{number:02}T10:00:00+00:00"


def test_the_last_commits_of_both_and_what_the_partner_looked_like(repository: Repository, run_flow: RunFlow) -> None:
    for number in range(1, 6):
        repository.commit(
            f"Price {number}", {"price.py": f"{number}\n", "rules.toml": f"rate = {number}\n"}, at=day(number)
        )
    repository.commit("Alone", {"price.py": "6\n"}, at=day(6))
    repository.commit("Other", {"rules.toml": "rate = 5\nnew = 1\n"}, at=day(7))
    ran = run_flow("look_together", path="price.py", partner="rules.toml")
    assert ran.result.summary == (
        "5 commits changed both price.py and rules.toml, the last on 2026-01-05: “Price 5”, 2 lines of rules.toml"
    )
    assert [fact["subject"] for fact in ran.result.facts["commits"]] == ["Price 5", "Price 4", "Price 3"]
    assert "-rate = 4\n+rate = 5" in ran.bench.text
    assert "2026-01-04" in ran.bench.text
    assert ran.bench.ran == []


def test_a_name_is_no_pattern_and_no_option(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("Odd", {"a[1].py": "1\n", "--output=x": "1\n"}, at=day(1))
    repository.commit("Plain", {"a1.py": "1\n", "b.py": "1\n"}, at=day(2))
    ran = run_flow("look_together", path="a[1].py", partner="--output=x")
    assert ran.result.facts["together"] == 1
    assert not (repository.path / "x").exists()
    with pytest.raises(ValidationError):
        run_flow("look_together", path="../a.py", partner="b.py")


def test_a_secret_is_not_shown(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("Key", {"a.py": "1\n", "settings.py": f'TOKEN = "{TOKEN}"\n'})
    ran = run_flow("look_together", path="a.py", partner="settings.py")
    assert TOKEN not in ran.bench.text
    assert "a likely secret, not shown" in ran.bench.text


def test_what_a_release_would_hold(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.py": "1\n"})
    repository.git("tag", "v1.0")
    for number, subject in enumerate(("feat: gift cards", "Fix the total", "Bump version to 1.1", "fix: rounding")):
        repository.commit(subject, {"a.py": f"new {number}\n"})
    ran = run_flow("look_at_release", since="v1.0")
    assert ran.result.summary == "4 commits since v1.0, 3 that users notice: 1 added, 2 fixed"
    assert ran.result.facts["entries"]["Fixed"] == ["Rounding", "Fix the total"]
    assert "Added:\n- Gift cards" in ran.bench.text
    with pytest.raises(FlowError, match="names no commit"):
        run_flow("look_at_release", since="v9")


# Flows that leave a change: the change log, lint fixes; and lint itself.


RUFF = shutil.which("ruff") or (
    str(Path(sys.prefix, "bin", "ruff")) if Path(sys.prefix, "bin", "ruff").exists() else ""
)
needs_ruff = pytest.mark.skipif(not RUFF, reason="needs ruff")


def test_a_new_change_log(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"a.txt": "1"})
    repository.git("tag", "v1.0")
    repository.commit("feat(cart): totals are rounded", {"a.txt": "2"})
    repository.commit("Fix the tax of gifts.", {"a.txt": "3"})
    repository.commit("chore: format", {"a.txt": "4"})
    with pytest.raises(CannotRun, match="has no change log"):
        run_flow("draft_changelog", since="v1.0")
    ran = run_flow("draft_changelog", since="v1.0", create=True)
    text = (ran.folder / "CHANGELOG.md").read_text()
    assert text.endswith(
        "## [Unreleased]\n\n### Added\n\n- Cart: totals are rounded\n\n### Fixed\n\n- Fix the tax of gifts\n"
    )
    assert not (repository.path / "CHANGELOG.md").exists()
    assert ran.result.summary == "CHANGELOG.md: 2 entries under Unreleased"
    assert ran.result.facts["left_out"] == ["chore: format"]


def test_a_finished_section_is_not_written_into(repository: Repository, run_flow: RunFlow) -> None:
    log = "# Log\n\n## 1.1\n\n### Features\n\n- Gifts\n\n### Bug fixes\n\n- Tax\n"
    repository.commit("begin", {"CHANGELOG.md": log})
    repository.git("tag", "v1.1")
    repository.commit("feat: coupons", {"a.txt": "2"})
    repository.commit("fix: rounding of totals", {"a.txt": "3"})
    repository.commit("Bump to 1.2.0", {"a.txt": "4"})
    text = (run_flow("draft_changelog").folder / "CHANGELOG.md").read_text()
    new, _, old = text.partition("## 1.1")
    added = ["## Unreleased", "### Features", "- Coupons", "### Bug fixes", "- Rounding of totals", ""]
    assert new.split("\n\n")[1:] == added
    assert "## 1.1" + old == log.removeprefix("# Log\n\n")


def test_a_change_log_that_leads_out_is_not_written(repository: Repository, run_flow: RunFlow, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text("mine")
    (repository.path / "CHANGELOG.md").symlink_to(tmp_path / "elsewhere.md")
    repository.commit("add a link")
    with pytest.raises(FlowError, match="not a regular file"):
        run_flow("draft_changelog")
    assert (tmp_path / "elsewhere.md").read_text() == "mine"


def test_a_lint_script_in_a_makefile(repository: Repository, run_flow: RunFlow) -> None:
    repository.commit("begin", {"Makefile": "lint:\n\t@echo 'a.c:3: too long'; echo all is lost; exit 1\n"})
    assert run_flow("lint").result.summary == "make lint: 1 finding in 1 file (lint 1)"
    repository.commit("shorter", {"Makefile": "lint:\n\t@echo all is lost >&2; exit 1\n"})
    with pytest.raises(CannotRun, match="make lint ended with exit code 2 without naming a line"):
        run_flow("lint")
    repository.commit("well", {"Makefile": "lint:\n\t@echo well\n"})
    assert run_flow("lint").result.summary == "make lint found nothing in the project"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"a.py": "1"}, "python3 -m venv .venv && .venv/bin/pip install ruff"),
        ({"a.py": "1", "pyproject.toml": "", "uv.lock": ""}, "uv add --dev ruff"),
        ({"a.py": "1", "pyproject.toml": "[tool.poetry]\n"}, "poetry add --group dev ruff"),
        ({"a.py": "1", "Pipfile": ""}, "pipenv install --dev ruff"),
    ],
)
def test_a_linter_is_installed_by_what_keeps_the_project(
    repository: Repository, run_flow: RunFlow, files: dict[str, str], command: str
) -> None:
    repository.commit("begin", files)
    with pytest.raises(FlowError) as caught:
        run_flow("lint")
    assert caught.value.fix == command


@pytest.mark.long
@needs_ruff
def test_lint_counts_by_rule_and_fix_lint_mends(project: Repository, run_flow: RunFlow) -> None:
    project.commit("begin", {"ruff.toml": "lint.select = ['F']\n", "a.py": "import os\n", "b.py": "import os\n"})
    project.write("a.py", "import os\nimport sys\nx = undefined\n")
    ran = run_flow("lint")
    assert ran.result.summary == "ruff: 4 findings in 2 files (F401 3, F821 1)"
    ran = run_flow("lint", paths=["a.py", "gone.py"])
    assert ran.result.facts["rules"] == {"F401": 1, "F821": 1}
    assert ran.result.summary == "ruff: 2 findings in 1 file are new (F401 1, F821 1)"
    assert (ran.result.sound, ran.result.facts["known"], ran.result.facts["next"]) == (False, 1, "fix_lint")
    assert project.git("status", "--porcelain") == "M a.py", "the operator's files are as they were"
    project.write("c.py", "x = {  'a':1 }\n")
    fixed = run_flow("fix_lint", paths=["a.py", "c.py"])
    assert fixed.result.facts["changed"] == ["a.py", "c.py"]
    assert (fixed.folder / "a.py").read_text() == "x = undefined\n"
    assert (fixed.folder / "c.py").read_text() == 'x = {"a": 1}\n'
    assert (fixed.folder / "b.py").read_text() == "import os\n"
    assert (project.path / "c.py").read_text() == "x = {  'a':1 }\n"
    assert run_flow("lint", paths=["c.py"]).result.summary == "ruff found nothing in 1 file"


def test_a_worktree_borrows_node_modules_and_gives_them_back(repository: Repository, run_flow: RunFlow) -> None:
    prettier = repository.path / "node_modules" / ".bin" / "prettier"
    prettier.parent.mkdir(parents=True)
    prettier.write_text('#!/bin/sh\ntest -d node_modules || exit 9\nshift 2\nfor f; do echo "tidy" > "$f"; done\n')
    prettier.chmod(0o755)
    repository.commit(
        "begin", {".gitignore": "node_modules/\n", "package.json": '{"scripts": {"test": "node --test"}}', "a.js": "x"}
    )
    ran = run_flow("fix_lint", paths=["a.js"])
    assert ran.result.facts["changed"] == ["a.js"]
    assert not (ran.folder / "node_modules").exists()

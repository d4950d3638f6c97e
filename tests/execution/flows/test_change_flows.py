"""Flows that leave a change: the change log, lint fixes; and lint itself."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun, FlowError
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

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
        ({"a.py": "1", "uv.lock": ""}, "uv add --dev ruff"),
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

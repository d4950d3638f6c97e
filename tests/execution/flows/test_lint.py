"""The linters of a project: only new findings are reported, and fixes change only the named files (SPEC 2.12)."""

import sys
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.support.helpers import make_program

needs_ruff = pytest.mark.skipif(not Path(sys.prefix, "bin", "ruff").exists(), reason="needs ruff")


def commit_python_project(repository: Repository, **files: str):
    """Commit these files; ruff and mypy of the environment of these tests lint them."""
    settings = "[tool.ruff.lint]\nselect = ['F']\n[tool.mypy]\nstrict = true\n"
    repository.commit("begin", {".gitignore": ".venv\n", "pyproject.toml": settings, **files})
    (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)


@pytest.fixture
def with_findings(project: Repository) -> Repository:
    """A project with two committed findings of ruff, and two more in an edit of one of the files."""
    project.commit("begin", {"ruff.toml": "lint.select = ['F']\n", "a.py": "import os\n", "b.py": "import os\n"})
    project.write("a.py", "import os\nimport sys\nx = undefined\n")
    return project


def test_a_makefile_target_is_a_linter_when_it_names_lines(repository: Repository, run_flow: RunFlow):
    repository.commit("begin", {"Makefile": "lint:\n\t@echo 'a.c:3: too long'; echo all is lost; exit 1\n"})
    assert run_flow("lint").summary == "make lint: 1 finding in 1 file (lint 1)"
    repository.commit("shorter", {"Makefile": "lint:\n\t@echo all is lost >&2; exit 1\n"})
    with pytest.raises(CannotRun, match="make lint ended with exit code 2 without naming a line"):
        run_flow("lint")
    repository.commit("well", {"Makefile": "lint:\n\t@echo well\n"})
    assert run_flow("lint").summary == "make lint found nothing in the project"


@pytest.mark.long
@needs_ruff
def test_fix_lint_changes_only_the_named_files_and_not_yours(with_findings: Repository, run_flow: RunFlow):
    with_findings.write("c.py", "x = {  'a':1 }\n")
    fixed = run_flow("fix_lint", paths=["a.py", "c.py"])
    assert fixed.facts["changed"] == ["a.py", "c.py"]
    assert (fixed.folder / "a.py").read_text() == "x = undefined\n"
    assert (fixed.folder / "c.py").read_text() == 'x = {"a": 1}\n'
    assert (fixed.folder / "b.py").read_text() == "import os\n"
    assert (with_findings.path / "c.py").read_text() == "x = {  'a':1 }\n"
    assert run_flow("lint", paths=["c.py"]).summary == "ruff found nothing in 1 file"


@pytest.mark.long
@needs_ruff
@pytest.mark.skipif(not Path(sys.prefix, "bin", "mypy").exists(), reason="needs mypy")
def test_only_new_findings_are_reported(repository: Repository, run_flow: RunFlow):
    commit_python_project(repository, **{"a.py": "import os\n\nX: int = 'old'\n", "poetry.lock": ""})
    repository.write("a.py", "# moved down\nimport os\nimport sys\n\nX: int = 'old'\nY: int = 'new'\n")
    repository.write("poetry.lock", "x =\n")
    run = run_flow("lint", paths=["a.py", "poetry.lock", ".gitignore"])
    findings = [(fact["path"], fact["line"], fact["rule"]) for fact in run.facts["findings"]]
    assert findings == [("a.py", 3, "F401"), ("a.py", 6, "assignment")]
    assert run.summary == "ruff and mypy: 2 findings in 1 file are new (F401 1, assignment 1)"
    assert (run.result.sound, run.facts["known"]) == (False, 2)
    run = run_flow("lint", paths=["poetry.lock", ".gitignore"])
    assert (run.summary.startswith("Nothing to lint"), run.result.sound) == (True, True)


def test_node_modules_are_linked_into_the_worktree_only_during_the_run(repository: Repository, run_flow: RunFlow):
    tidy = 'test -d node_modules || exit 9\nshift 2\nfor f; do echo "tidy" > "$f"; done'
    make_program(repository.path / "node_modules/.bin/prettier", tidy)
    repository.commit(
        "begin", {".gitignore": "node_modules/\n", "package.json": '{"scripts": {"test": "node --test"}}', "a.js": "x"}
    )
    run = run_flow("fix_lint", paths=["a.js"])
    assert run.facts["changed"] == ["a.js"]
    assert not (run.folder / "node_modules").exists()

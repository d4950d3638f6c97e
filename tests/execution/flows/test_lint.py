"""The linters of a project: only new findings are reported, and fixes change only the named files (SPEC 2.12)."""

import os
import sys
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import RunFlow
from tests.support.helpers import make_program

NODE_MODULES = Path(os.environ.get("CLAWPY_NODE_MODULES", "/nowhere"))
"""Packages of npm that the operator of these tests has installed."""

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


@pytest.mark.parametrize(
    "files, command",
    [
        ({"a.py": "1"}, "python3 -m venv .venv && .venv/bin/pip install ruff"),
        ({"a.py": "1", "pyproject.toml": "", "uv.lock": ""}, "uv add --dev ruff"),
        ({"a.py": "1", "pyproject.toml": "[tool.poetry]\n"}, "poetry add --group dev ruff"),
        ({"a.py": "1", "Pipfile": ""}, "pipenv install --dev ruff"),
    ],
)
def test_the_fix_for_a_missing_linter_uses_the_projects_package_manager(
    repository: Repository, run_flow: RunFlow, files: dict[str, str], command: str
):
    repository.commit("begin", files)
    with pytest.raises(WorkFailed) as caught:
        run_flow("lint")
    assert caught.value.fix == command


@pytest.mark.long
@needs_ruff
def test_lint_counts_by_rule_and_tells_new_findings_from_known_ones(with_findings: Repository, run_flow: RunFlow):
    assert run_flow("lint").summary == "ruff: 4 findings in 2 files (F401 3, F821 1)"
    run = run_flow("lint", paths=["a.py", "gone.py"])
    assert run.facts["rules"] == {"F401": 1, "F821": 1}
    assert run.summary == "ruff: 2 findings in 1 file are new (F401 1, F821 1)"
    assert (run.result.sound, run.facts["known"], run.facts["next"]) == (False, 1, "fix_lint")
    assert with_findings.git("status", "--porcelain") == "M a.py", "the operator's files are as they were"


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
    commit_python_project(repository, **{"a.py": "import os\n\nX: int = 'old'\n", "poetry.lock": "", "snap.ambr": ""})
    repository.write("a.py", "# moved down\nimport os\nimport sys\n\nX: int = 'old'\nY: int = 'new'\n")
    repository.write("poetry.lock", "x =\n")
    run = run_flow("lint", paths=["a.py", "poetry.lock", "snap.ambr", ".gitignore"])
    findings = [(fact["path"], fact["line"], fact["rule"]) for fact in run.facts["findings"]]
    assert findings == [("a.py", 3, "F401"), ("a.py", 6, "assignment")]
    assert run.facts["known"] == 2
    assert run.summary == "ruff and mypy: 2 findings in 1 file are new (F401 1, assignment 1)"
    assert not run.result.sound
    assert (run.folder / "a.py").read_text().endswith("Y: int = 'new'\n"), "the worktree is as it was"
    run = run_flow("lint", paths=["poetry.lock", ".gitignore"])
    assert run.summary.startswith("Nothing to lint")
    assert run.result.sound


@pytest.mark.long
@needs_ruff
def test_a_renamed_file_keeps_its_known_findings(repository: Repository, run_flow: RunFlow):
    body = "".join(f"def f{number}():\n    return {number}\n" for number in range(20))
    commit_python_project(repository, **{"a.py": f"import os\n{body}"})
    base = repository.git("rev-parse", "HEAD")
    repository.git("mv", "a.py", "b.py")
    repository.commit("renamed", {"b.py": f"import os\nimport sys\n{body}"})
    run = run_flow("lint", paths=["b.py"], base=base)
    assert [fact["message"] for fact in run.facts["findings"] if fact["rule"] == "F401"] == [
        "[*] `sys` imported but unused"
    ]


@needs_ruff
def test_a_project_below_is_linted_with_the_configuration_above_it(repository: Repository, run_flow: RunFlow):
    commit_python_project(
        repository, **{"packages/py/pyproject.toml": '[project]\nname = "x"\n', "packages/py/a.py": ""}
    )
    repository.write("packages/py/a.py", "import os\n")
    run = run_flow("lint", project="packages/py", paths=["packages/py/a.py"])
    assert [(fact["path"], fact["rule"]) for fact in run.facts["findings"]] == [("packages/py/a.py", "F401")]
    fixed = run_flow("fix_lint", project="packages/py", paths=["packages/py/a.py"])
    assert fixed.facts["changed"] == ["packages/py/a.py"]


@pytest.mark.skipif(not (NODE_MODULES / "typescript").is_dir(), reason="needs typescript in CLAWPY_NODE_MODULES")
def test_typescript_reports_errors_in_files_that_did_not_change(repository: Repository, run_flow: RunFlow):
    files = {
        "package.json": '{"name": "x"}',
        "tsconfig.json": '{"compilerOptions": {"strict": true}, "include": ["src"]}',
        "src/a.ts": "export const a: number = 1;\nconst old: number = 'x';\n",
        "src/b.ts": "import { a } from './a';\nexport const b: number = a;\n",
    }
    repository.commit("begin", {".gitignore": "node_modules\n", **files})
    (repository.path / "node_modules").symlink_to(NODE_MODULES, target_is_directory=True)
    repository.write("src/a.ts", "export const a: string = 'x';\nconst old: number = 'x';\n")
    run = run_flow("lint", paths=["src/a.ts"])
    assert [(fact["path"], fact["line"], fact["rule"]) for fact in run.facts["findings"]] == [("src/b.ts", 2, "TS2322")]


def test_node_modules_are_linked_into_the_worktree_only_during_the_run(repository: Repository, run_flow: RunFlow):
    tidy = 'test -d node_modules || exit 9\nshift 2\nfor f; do echo "tidy" > "$f"; done'
    make_program(repository.path / "node_modules/.bin/prettier", tidy)
    repository.commit(
        "begin", {".gitignore": "node_modules/\n", "package.json": '{"scripts": {"test": "node --test"}}', "a.js": "x"}
    )
    run = run_flow("fix_lint", paths=["a.js"])
    assert run.facts["changed"] == ["a.js"]
    assert not (run.folder / "node_modules").exists()

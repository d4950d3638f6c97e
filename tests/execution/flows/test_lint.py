"""Linters of the project: only new findings are reported, fixes change only the named files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun, FlowError
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow


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


needs_ruff = pytest.mark.skipif(not Path(sys.prefix, "bin", "ruff").exists(), reason="needs ruff")


def python_project(repository: Repository, **files: str) -> None:
    """`a.py` and what else is named, linted by ruff and mypy of the environment of these tests."""
    settings = "[tool.ruff.lint]\nselect = ['F']\n[tool.mypy]\nstrict = true\n"
    repository.commit("begin", {".gitignore": ".venv\n", "pyproject.toml": settings, **files})
    (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)


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


@pytest.mark.long
@needs_ruff
@pytest.mark.skipif(not Path(sys.prefix, "bin", "mypy").exists(), reason="needs mypy")
def test_only_what_is_new_is_told(repository: Repository, run_flow: RunFlow) -> None:
    python_project(repository, **{"a.py": "import os\n\nX: int = 'old'\n", "poetry.lock": "", "snap.ambr": ""})
    repository.write("a.py", "# moved down\nimport os\nimport sys\n\nX: int = 'old'\nY: int = 'new'\n")
    repository.write("poetry.lock", "x =\n")
    ran = run_flow("lint", paths=["a.py", "poetry.lock", "snap.ambr", ".gitignore"])
    findings = [(fact["path"], fact["line"], fact["rule"]) for fact in ran.result.facts["findings"]]
    assert findings == [("a.py", 3, "F401"), ("a.py", 6, "assignment")]
    assert ran.result.facts["known"] == 2
    assert ran.result.summary == "ruff and mypy: 2 findings in 1 file are new (F401 1, assignment 1)"
    assert not ran.result.sound
    assert (ran.folder / "a.py").read_text().endswith("Y: int = 'new'\n"), "the worktree is as it was"
    ran = run_flow("lint", paths=["poetry.lock", ".gitignore"])
    assert ran.result.summary.startswith("Nothing to lint")
    assert ran.result.sound


@pytest.mark.long
@needs_ruff
def test_a_file_that_was_renamed_has_its_old_findings(repository: Repository, run_flow: RunFlow) -> None:
    body = "".join(f"def f{number}():\n    return {number}\n" for number in range(20))
    python_project(repository, **{"a.py": f"import os\n{body}"})
    base = repository.git("rev-parse", "HEAD")
    repository.git("mv", "a.py", "b.py")
    repository.commit("renamed", {"b.py": f"import os\nimport sys\n{body}"})
    ran = run_flow("lint", paths=["b.py"], base=base)
    assert [fact["message"] for fact in ran.result.facts["findings"] if fact["rule"] == "F401"] == [
        "[*] `sys` imported but unused"
    ]


@needs_ruff
def test_a_project_below_is_linted_with_the_configuration_above_it(repository: Repository, run_flow: RunFlow) -> None:
    python_project(repository, **{"packages/py/pyproject.toml": '[project]\nname = "x"\n', "packages/py/a.py": ""})
    repository.write("packages/py/a.py", "import os\n")
    ran = run_flow("lint", project="packages/py", paths=["packages/py/a.py"])
    assert [(fact["path"], fact["rule"]) for fact in ran.result.facts["findings"]] == [("packages/py/a.py", "F401")]
    fixed = run_flow("fix_lint", project="packages/py", paths=["packages/py/a.py"])
    assert fixed.result.facts["changed"] == ["packages/py/a.py"]


def modules() -> Path:
    return Path(os.environ.get("CLAWPY_NODE_MODULES", "/nowhere"))


@pytest.mark.skipif(not (modules() / "typescript").is_dir(), reason="needs typescript in CLAWPY_NODE_MODULES")
def test_typescript_tells_what_a_change_breaks_elsewhere(repository: Repository, run_flow: RunFlow) -> None:
    files = {
        "package.json": '{"name": "x"}',
        "tsconfig.json": '{"compilerOptions": {"strict": true}, "include": ["src"]}',
        "src/a.ts": "export const a: number = 1;\nconst old: number = 'x';\n",
        "src/b.ts": "import { a } from './a';\nexport const b: number = a;\n",
    }
    repository.commit("begin", {".gitignore": "node_modules\n", **files})
    (repository.path / "node_modules").symlink_to(modules(), target_is_directory=True)
    repository.write("src/a.ts", "export const a: string = 'x';\nconst old: number = 'x';\n")
    ran = run_flow("lint", paths=["src/a.ts"])
    assert [(fact["path"], fact["line"], fact["rule"]) for fact in ran.result.facts["findings"]] == [
        ("src/b.ts", 2, "TS2322")
    ]


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

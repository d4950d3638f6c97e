"""Flows for a project below the top of a repository, and linters' new findings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

CART = {
    "packages/py/pyproject.toml": '[project]\nname = "cart"\n',
    "packages/py/cart.py": "def total(prices):\n    return sum(prices)\n",
    "packages/py/tests/test_cart.py": "from cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}


@pytest.fixture
def shop(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose top has no tests; the one project below it has its own environment."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repository.commit("begin", {".gitignore": ".venv\n", "README.md": "", **CART})
    (repository.path / "packages/py/.venv").symlink_to(sys.prefix, target_is_directory=True)
    return repository


@pytest.mark.long
def test_its_tests_run_in_its_folder_and_environment(shop: Repository, run_flow: RunFlow) -> None:
    ran = run_flow("run_tests", project="packages/py", paths=["packages/py/cart.py", "README.md"])
    assert ran.result.check is not None
    assert (ran.result.check.passed, ran.result.full) == (1, False)
    assert ran.result.facts["tests_by_path"] == {"packages/py/cart.py": ["tests/test_cart.py"]}
    assert ran.result.summary.endswith(" in packages/py (only the tests of this change)")
    assert ran.bench.ran[0][0] == str(shop.path / "packages/py/.venv/bin/python")


def test_the_top_says_where_the_tests_are(shop: Repository, run_flow: RunFlow) -> None:
    with pytest.raises(CannotRun, match="the tests are in packages/py"):
        run_flow("run_tests")


@pytest.mark.long
def test_bisect_and_flakes_and_head(shop: Repository, run_flow: RunFlow) -> None:
    good = shop.git("rev-parse", "HEAD")
    shop.commit("docs", {"README.md": "x"})
    shop.commit("break it", {"packages/py/cart.py": "def total(prices):\n    return 0\n"})
    shop.commit("more docs", {"README.md": "y"})
    test = "tests/test_cart.py::test_total"
    ran = run_flow("bisect", project="packages/py", test=test, good=good)
    assert ran.result.facts["subject"] == "break it"
    assert run_flow("hunt_flakes", project="packages/py", tests=[test], times=2).result.facts["tests"][0]["failed"] == 2
    shop.write("packages/py/cart.py", CART["packages/py/cart.py"])
    ran = run_flow("check_clean_head", project="packages/py")
    assert ran.result.facts["passes_with_files"] == [test]


# -- new findings ---------------------------------------------------------------------------------------------------


def tool(name: str) -> str:
    """A linter of the environment that runs these tests."""
    found = Path(sys.prefix, "bin", name)
    return str(found) if found.exists() else ""


def python_project(repository: Repository, **files: str) -> None:
    """`a.py` and what else is named, linted by ruff and mypy of the environment of these tests."""
    settings = "[tool.ruff.lint]\nselect = ['F']\n[tool.mypy]\nstrict = true\n"
    repository.commit("begin", {".gitignore": ".venv\n", "pyproject.toml": settings, **files})
    (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)


@pytest.mark.long
@pytest.mark.skipif(not (tool("ruff") and tool("mypy")), reason="needs ruff and mypy")
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
@pytest.mark.skipif(not tool("ruff"), reason="needs ruff")
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


@pytest.mark.skipif(not tool("ruff"), reason="needs ruff")
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

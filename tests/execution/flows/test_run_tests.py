"""The flow `run_tests` with the real pytest: what it runs, and what is no failed test (SPEC 2.12)."""

import os
import shutil
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.flow_run import ProcessSession, RunFlow
from tests.execution.flows.projects import commit_shop
from tests.support.helpers import make_program

pytestmark = pytest.mark.long

UV_PROJECT = '[project]\nname = "shop"\ndependencies = ["sqlalchemy_not_here"]\n[tool.uv]\n'


def test_only_the_tests_of_changed_files_run(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    run = run_flow("run_tests", paths=["shop/cart.py", "README.md"])
    assert (run.check.passed, run.check.failed) == (1, 0)
    assert not run.result.full
    assert run.facts["tests_by_path"] == {"shop/cart.py": ["tests/test_cart.py"]}
    assert "shop/cart.py → tests/test_cart.py" in run.transcript
    assert "one test passed" not in run.transcript  # the summary says it
    assert project.git("status", "--porcelain") == ""
    assert not list(project.path.rglob("__pycache__"))


def test_a_folder_outside_of_the_repository_is_refused(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(CannotRun, match="link leads out of the repository"):
        run_flow("run_tests", paths=["link"])
    project.write("..data/a.py", "")
    assert "No tests found for ..data" in run_flow("run_tests", paths=["..data"]).result.summary


def test_a_folder_of_very_many_files_is_refused(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    for number in range(1001):
        project.write(f"many/{number}.py", "")
    with pytest.raises(WorkFailed, match="many: 1001 files, at most 1000"):
        run_flow("run_tests", paths=["many"])


def test_a_run_took_as_long_as_its_command(project: Repository, run_flow: RunFlow, monkeypatch: pytest.MonkeyPatch):
    """Pytest itself counts only the time of the tests, and the line of the command's exit all of it."""
    commit_shop(project)
    execute = ProcessSession.execute
    monkeypatch.setattr(ProcessSession, "execute", lambda *call, **more: replace(execute(*call, **more), seconds=4.9))
    assert run_flow("run_tests", paths=["shop/cart.py"]).summary == (
        "The one test passed in 4.9 s (only the tests of this change)"
    )


@pytest.mark.parametrize("path", ["conftest.py", "shop/cart.py"])
def test_a_package_that_is_not_installed_is_no_failed_test(project: Repository, run_flow: RunFlow, path: str):
    commit_shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write(path, "import sqlalchemy_not_here\n")
    with pytest.raises(WorkFailed) as refusal:
        run_flow("run_tests")
    assert refusal.value.message == "pytest cannot run: the package `sqlalchemy_not_here` is not installed"
    assert refusal.value.fix.endswith("bin/pip install pytest")
    project.write("pyproject.toml", UV_PROJECT + '[dependency-groups]\ndev = ["pytest"]\n')
    with pytest.raises(WorkFailed) as refusal:
        run_flow("run_tests")
    assert refusal.value.fix == "uv sync"


def test_an_environment_without_pytest_is_named_with_the_interpreter_used_instead(
    project: Repository, run_flow: RunFlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commit_shop(project)
    environment = project.path / ".venv"
    environment.unlink()
    venv.create(environment)  # without pip and pytest
    (environment / "bin" / "pip").touch()
    python3 = make_program(tmp_path / "operator" / "python3", f'exec "{sys.executable}" "$@"')
    monkeypatch.setenv("PATH", f"{python3.parent}{os.pathsep}{os.environ['PATH']}")
    remark = f".venv has no pytest; {python3} was used instead"

    run = run_flow("run_tests")
    assert run.check.green
    assert remark in run.transcript

    project.write("shop/cart.py", "import sqlalchemy_not_here\n")
    project.git("rm", "-q", "tests/test_tax.py")
    with pytest.raises(WorkFailed) as refusal:
        run_flow("run_tests")
    assert refusal.value.message == (
        f"pytest cannot run: {remark}, and there the package `sqlalchemy_not_here` is not installed"
    )
    assert refusal.value.fix == ".venv/bin/pip install pytest"


def test_a_module_of_the_project_that_cannot_be_imported_is_an_error(project: Repository, run_flow: RunFlow):
    commit_shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write("shop/cart.py", "import shop.gone\n")
    check = run_flow("run_tests").check
    assert (check.errors, check.failing) == (1, ("tests/test_cart.py",))


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_a_tool_that_cannot_run_does_not_hide_another(project: Repository, run_flow: RunFlow):
    script = "console.log('Tests:       3 passed, 3 total')"
    project.commit(
        "web", {"test_a.py": "x = 1\n", "package.json": f'{{"scripts": {{"test": "node -e \\"{script}\\""}}}}'}
    )
    run = run_flow("run_tests")
    assert (run.check.tool, run.check.passed, run.result.full) == ("script", 3, False)
    assert "pytest found no tests" in run.transcript

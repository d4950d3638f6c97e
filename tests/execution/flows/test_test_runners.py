"""The flow `run_tests` with every test runner that it knows (SPEC 2.12)."""

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.execution.runners import CannotRun
from engine.execution.runners.toolchains import TEST_RUNNERS
from tests.execution.flows.flow_run import RunFlow
from tests.support import read_table
from tests.support.programs import needs
from tests.support.repository import Repository


@dataclass(frozen=True)
class ToolCase:
    """A project for one row of the table of test runners, see `test_test_runners.toml`."""

    tool: str
    """The name of the row."""

    texts: str
    """The name of the table with the texts `good` and `bad` of the file with the tests."""

    files: dict[str, str]
    """The other files of the project, by path."""

    path: str
    """The file with the tests."""

    good: str
    """Its text with one passing test."""

    bad: str
    """Its text with that test and a failing one."""

    failing: str
    """The id of the failing test."""

    needs: tuple[str, ...] = ()
    """Programs without which the case is skipped."""

    package: str = ""
    """A package of npm without which the case is skipped."""

    needed_files: tuple[str, ...] = ()
    """Files of this machine without which the case is skipped."""

    python: str = ""
    """How the Python of the tests is prepared: a name in `PREPARATIONS`."""


TABLE = read_table(__file__)
CASES = [ToolCase(**row, **TABLE["texts"][row["texts"]]) for row in TABLE["case"]]


def make_environment(folder: Path, *, with_pytest: bool) -> Path:
    """Make a virtual environment, on request with the packages of the one that runs these tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if with_pytest:
        packages = next(folder.glob("lib/python3*/site-packages"))
        (packages / "here.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


def put_python_without_pytest_first(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    """Make a Python without pytest the first on the search path."""
    environment = make_environment(elsewhere / "without pytest", with_pytest=False)
    monkeypatch.setenv("PATH", f"{environment}/bin{os.pathsep}{os.environ['PATH']}")


def link_own_environment(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    """Make the environment of these tests that of the project."""
    (project / ".venv").symlink_to(sys.prefix, target_is_directory=True)


def make_poetry_environment(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    """Make an environment of the name that Poetry gives it; only there is pytest."""
    put_python_without_pytest_first(project, elsewhere, monkeypatch)
    digest = base64.urlsafe_b64encode(hashlib.sha256(os.path.realpath(project).encode()).digest()).decode()
    name = f"shop-{digest[:8]}-py{sys.version_info[0]}.{sys.version_info[1]}"
    make_environment(project / "envs" / name, with_pytest=True)


def name_pdm_environment(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    """Make an environment elsewhere, and name it as PDM does; only there is pytest."""
    put_python_without_pytest_first(project, elsewhere, monkeypatch)
    environment = make_environment(elsewhere / "pdm", with_pytest=True)
    (project / ".pdm-python").write_text(f"{environment}/bin/python")


PREPARATIONS = {
    "": lambda *_: None,
    "without pytest": put_python_without_pytest_first,
    "linked": link_own_environment,
    "poetry": make_poetry_environment,
    "pdm": name_pdm_environment,
}
"""What is done for the Python of a case, by its name."""


def link_node_modules(folder: Path, package: str):
    """Give a project the packages of `CLAWPY_NODE_MODULES`. Skips the test if this package is not among them."""
    modules = Path(os.environ.get("CLAWPY_NODE_MODULES", "/nowhere"))
    if not (modules / package).is_dir():
        pytest.skip(f"needs {package} in CLAWPY_NODE_MODULES")
    (folder / "node_modules").symlink_to(modules, target_is_directory=True)


@pytest.fixture
def commit_case(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ToolCase], None]:
    """Commits the project of a case and what it needs. Skips the test if that is not installed."""

    def commit(case: ToolCase):
        needs(*case.needs)
        if missing := [name for name in case.needed_files if not Path(name).exists()]:
            pytest.skip(f"needs {', '.join(missing)}")
        if case.package:
            link_node_modules(repository.path, case.package)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        repository.commit("begin", {**case.files, case.path: case.good})
        PREPARATIONS[case.python](repository.path, tmp_path, monkeypatch)

    return commit


def test_every_test_runner_has_a_case():
    assert [case.tool for case in CASES] == [row.name for row in TEST_RUNNERS]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_passing_and_failing_tests_are_read_from_the_tool(
    case: ToolCase, repository: Repository, run_flow: RunFlow, commit_case: Callable[[ToolCase], None]
):
    commit_case(case)
    try:
        passing = run_flow("run_tests").check
    except CannotRun as error:
        if "no network" not in error.message:
            raise
        pytest.skip(f"{case.tool} has no packages here: {error.message}")
    assert (passing.tool, passing.passed, passing.failed, passing.errors) == (case.tool, 1, 0, 0)
    repository.write(case.path, case.bad)
    failing = run_flow("run_tests").check
    assert (failing.passed, failing.failed, failing.failing) == (1, 1, (case.failing,))
    row = next(row for row in TEST_RUNNERS if row.name == case.tool)
    if row.single_tests_template:
        alone = run_flow("run_tests", tests=[case.failing]).check
        assert (alone.passed, alone.failed, alone.failing) == (0, 1, (case.failing,))
    changed = repository.git("status", "--porcelain").splitlines()
    assert all(line.endswith(case.path) for line in changed), changed

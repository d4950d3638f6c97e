"""The flow `run_tests` with every tool that it knows: tests that pass and fail, a missing tool; and its summaries."""

from __future__ import annotations

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

from engine.execution.runners.flow import CannotRun
from engine.execution.runners.flows.suite_runs import combine_checks, describe_check, describe_compared
from engine.execution.runners.toolchains.tool_table import TEST_RUNNERS
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow, does_program_run
from tests.support.helpers import read_table


@dataclass(frozen=True)
class Case:
    """A project for one row of the table of test runners, see `test_suite_runs.toml`."""

    tool: str
    """The name of the row."""

    texts: str
    """The name of the table that has `good` and `bad`."""

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

    lacking: str = ""
    """A program without which the tests cannot run."""

    fix: str = ""
    """What the advice contains when that program is missing."""

    python: str = ""
    """`bare`: the operator's Python has no pytest. `pytest`: the project has the environment of these tests."""


TABLE = read_table(__file__)
CASES = [Case(**row, **TABLE["texts"][row["texts"]]) for row in TABLE["case"]]
JARS = [Path("/usr/share/java") / name for name in ("junit4.jar", "hamcrest-core.jar")]
"""What the case of gradle needs."""

BELOW = {
    "packages/py/pyproject.toml": '[project]\nname = "cart"\n',
    "packages/py/cart.py": "def total(prices):\n    return sum(prices)\n",
    "packages/py/tests/test_cart.py": "from cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}
"""A project of Python in a folder of its repository."""


def test_every_test_runner_has_a_case() -> None:
    assert [case.tool for case in CASES] == [row.name for row in TEST_RUNNERS]


def make_environment(folder: Path, *, with_pytest: bool) -> Path:
    """Make a virtual environment, on request with the packages of the one that runs these tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if with_pytest:
        packages = next(folder.glob("lib/python3*/site-packages"))
        (packages / "here.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


def put_bare_python_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a Python without pytest the first on the search path."""
    bare = make_environment(tmp_path / "bare", with_pytest=False)
    monkeypatch.setenv("PATH", f"{bare}/bin{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def set_up(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], None]:
    """Commits the project of a case and what it needs. Skips the test if that is not installed."""

    def set_up_case(case: Case) -> None:
        for program in case.needs:
            if not does_program_run(program):
                pytest.skip(f"needs {program}")
        if case.tool == "gradle" and not all(jar.exists() for jar in JARS):
            pytest.skip("needs JUnit 4 in /usr/share/java")
        modules = Path(os.environ.get("CLAWPY_NODE_MODULES", "/nowhere"))
        if case.package:
            if not (modules / case.package).is_dir():
                pytest.skip(f"needs {case.package} in CLAWPY_NODE_MODULES")
            (repository.path / "node_modules").symlink_to(modules, target_is_directory=True)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        repository.commit("begin", {**case.files, case.path: case.good})
        if case.python == "pytest":
            (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
        if case.python == "bare":
            put_bare_python_first(tmp_path, monkeypatch)
        if case.tool == "poetry":
            digest = hashlib.sha256(os.path.realpath(repository.path).encode()).digest()
            name = f"shop-{base64.urlsafe_b64encode(digest).decode()[:8]}-py{sys.version_info[0]}.{sys.version_info[1]}"
            make_environment(repository.path / "envs" / name, with_pytest=True)
        if case.tool == "pdm":
            elsewhere = make_environment(tmp_path / "elsewhere", with_pytest=True)
            repository.write(".pdm-python", f"{elsewhere}/bin/python")

    return set_up_case


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_passing_and_failing_tests_are_read_from_the_tool(
    case: Case, repository: Repository, run_flow: RunFlow, set_up: Callable[[Case], None]
) -> None:
    set_up(case)
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


@pytest.mark.parametrize("case", [case for case in CASES if case.lacking], ids=lambda case: case.tool)
def test_a_missing_tool_is_named_with_its_fix(
    case: Case,
    repository: Repository,
    run_flow: RunFlow,
    without: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    repository.commit("begin", {**case.files, case.path: case.good})
    without(case.lacking, *(["python3"] if case.python == "bare" else []))
    if case.tool == "pdm":
        repository.write(".pdm-python", "/nowhere/python")
    if case.python == "bare":
        put_bare_python_first(tmp_path, monkeypatch)
    with pytest.raises(CannotRun, match=case.lacking) as refusal:
        run_flow("run_tests")
    assert case.fix in refusal.value.fix
    assert refusal.value.fix


@pytest.fixture
def shop_below(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose top has no tests; the one project below it has its own environment."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repository.commit("begin", {".gitignore": ".venv\n", "README.md": "", **BELOW})
    (repository.path / "packages/py/.venv").symlink_to(sys.prefix, target_is_directory=True)
    return repository


@pytest.mark.long
def test_tests_of_a_project_below_run_in_its_folder_and_environment(shop_below: Repository, run_flow: RunFlow) -> None:
    run = run_flow("run_tests", project="packages/py", paths=["packages/py/cart.py", "README.md"])
    assert (run.check.passed, run.result.full) == (1, False)
    assert run.facts["tests_by_path"] == {"packages/py/cart.py": ["tests/test_cart.py"]}
    assert run.summary.endswith(" in packages/py (only the tests of this change)")
    assert run.session.commands[0][0] == str(shop_below.path / "packages/py/.venv/bin/python")


def test_the_top_names_the_projects_with_tests(shop_below: Repository, run_flow: RunFlow) -> None:
    with pytest.raises(CannotRun, match="the tests are in packages/py"):
        run_flow("run_tests")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (CheckResult("pytest", 23, 0, seconds=1.25), "all 23 tests passed in 1.2 s"),
        (CheckResult("pytest", 1, 0, skipped=2), "the one test passed in <0.1 s, 2 skipped"),
        (CheckResult("pytest", 1, 1, failing=("a",)), "1 of 2 tests failed in <0.1 s: a"),
        (
            CheckResult("pytest", 3, 1, errors=1, failing=("a", "b")),
            "1 of 4 tests failed and 1 error in <0.1 s: a and b",
        ),
        (CheckResult("pytest", 3, 0, errors=1, failing=("a",)), "1 error, 3 tests passed in <0.1 s: a"),
        (CheckResult("pytest", 0, 0, errors=2, failing=("a", "b")), "2 errors, no tests ran in <0.1 s: a and b"),
        (CheckResult("pytest", 0, 0, skipped=2), "no tests ran, 2 skipped"),
    ],
)
def test_results_are_described_in_a_sentence(check: CheckResult, words: str) -> None:
    assert describe_check(check) == words


@pytest.mark.parametrize(
    ("failing", "failed_before", "words", "is_new"),
    [
        ("a", None, "it is not known whether it failed before", True),
        ("ab", None, "it is not known whether they failed before", True),
        ("a", "a", "it failed before as well, nothing new fails", False),
        ("ab", "ab", "all of them failed before as well, nothing new fails", False),
        ("ab", "a", "1 of them failed before as well: a", True),
        ("aa", "a", "1 of them failed before as well: a", True),  # tests of two projects have the same name
        ("a", "", "it did not fail before", True),
        ("ab", "", "none of them failed before", True),
    ],
)
def test_changes_are_blamed_only_for_tests_that_did_not_fail_before(
    failing: str, failed_before: str | None, words: str, is_new: bool
) -> None:
    before = None if failed_before is None else tuple(failed_before)
    check = CheckResult("pytest", 1, len(failing), failing=tuple(failing), failed_before=before)
    assert describe_compared(check) == f"{describe_check(check)}; {words}"
    assert (check.has_new_failures, check.green) == (is_new, False)


@pytest.mark.parametrize(
    ("errors", "failing", "failed_before", "words"),
    [
        (1, "a", "a", "that was so before as well"),
        (2, "aa", "a", "1 of them failed before as well: a"),
        (3, "a", "a", "1 of them failed before as well: a"),
        (1, "", "", "it is not known whether it failed before"),
    ],
)
def test_a_run_in_which_no_test_ran_does_not_say_that_nothing_new_fails(
    errors: int, failing: str, failed_before: str, words: str
) -> None:
    check = CheckResult("pytest", 0, 0, errors=errors, failing=tuple(failing), failed_before=tuple(failed_before))
    assert describe_compared(check) == f"{describe_check(check)}; {words}"
    assert check.has_new_failures


def test_a_failure_without_a_name_counts_as_new() -> None:
    assert CheckResult("make test", 0, 1, counted=False, failed_before=()).has_new_failures
    assert not CheckResult("make test", 1, 0, counted=False).has_new_failures


def test_what_failed_before_is_known_of_each_tool_alone() -> None:
    known = CheckResult("pytest", 0, 1, failing=("a",), failed_before=("a",))
    unknown = CheckResult("make test", 0, 1, failing=("b",))
    tool = None  # only the results are combined
    both = combine_checks([(tool, known), (tool, unknown)])  # type: ignore[list-item]
    assert (both.failed_before, both.has_new_failures) == (("a",), True)
    assert combine_checks([(tool, unknown), (tool, unknown)]).failed_before is None  # type: ignore[list-item]

"""The flows `run_tests` and `check_clean_head` with the real pytest: what is run, and what is no failed test."""

from __future__ import annotations

import os
import re
import shutil
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun, WorkFailed
from tests.conftest import Repository
from tests.execution.flows.conftest import CART, TEST_CART, ProcessSession, RunFlow, commit_shop
from tests.support.helpers import make_program

pytestmark = pytest.mark.long

UV_PROJECT = '[project]\nname = "shop"\ndependencies = ["sqlalchemy_not_here"]\n[tool.uv]\n'


def test_only_the_tests_of_changed_files_run(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    run = run_flow("run_tests", paths=["shop/cart.py", "README.md"])
    assert (run.check.passed, run.check.failed) == (1, 0)
    assert not run.result.full
    assert run.facts["tests_by_path"] == {"shop/cart.py": ["tests/test_cart.py"]}
    assert "shop/cart.py → tests/test_cart.py" in run.transcript
    assert project.git("status", "--porcelain") == ""
    assert not list(project.path.rglob("__pycache__"))


def test_a_folder_outside_of_the_repository_is_refused(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    (project.path / "link").symlink_to("/etc")
    with pytest.raises(CannotRun, match="link leads out of the repository"):
        run_flow("run_tests", paths=["link"])
    project.write("..data/a.py", "")
    assert "No tests found for ..data" in run_flow("run_tests", paths=["..data"]).result.summary


def test_a_folder_of_very_many_files_is_refused(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    for number in range(1001):
        project.write(f"many/{number}.py", "")
    with pytest.raises(WorkFailed, match="many: 1001 files, at most 1000"):
        run_flow("run_tests", paths=["many"])


def test_a_run_took_as_long_as_its_command(
    project: Repository, run_flow: RunFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest itself counts only the time of the tests, and the line of the command's exit all of it."""
    commit_shop(project)
    execute = ProcessSession.execute
    monkeypatch.setattr(ProcessSession, "execute", lambda *call, **more: replace(execute(*call, **more), seconds=4.9))
    assert run_flow("run_tests", paths=["shop/cart.py"]).summary == (
        "The one test passed in 4.9 s (only the tests of this change)"
    )


def test_a_clean_head_is_tested_without_uncommitted_files(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    project.commit("uses a helper", {"tests/test_tax.py": "def test_tax():\n    import shop.tax\n"})
    project.write("shop/tax.py", "RATE = 2\n")
    run = run_flow("check_clean_head", files=["shop/tax.py"])
    assert run.check.failing == ("tests/test_tax.py::test_tax",)
    assert run.facts["left_out"] == ["shop/tax.py"]
    assert run.facts["passes_with_files"] == ["tests/test_tax.py::test_tax"]
    assert run.summary.endswith("; 1 of 1 passed with the uncommitted files")
    assert not (run.folder / "shop/tax.py").exists()  # what is recorded is the state of HEAD alone
    assert (project.path / "shop/tax.py").exists()
    project.git("add", "-A")
    project.commit("helper")
    assert run_flow("check_clean_head").summary.startswith("HEAD is complete: all 2 tests passed")


WRONG_CART = "def total(prices):\n    return max(prices)\n"
BROKEN_CART = "def total(prices:\n    return sum(prices)\n"
TOTAL, ODD = "tests/test_cart.py::test_total", "tests/test_cart.py::test_odd"
MANY_TESTS = "import pytest\nfrom shop.cart import total\n\n@pytest.mark.parametrize('x', range(250))\n"
MOCHA = "\n  cart\n    ✔ quick\n    ✔ slow (120ms)\n\n  2 passing (130ms)\n"
JEST = "PASS ./cart.test.js\n  cart\n    ✓ quick\n    ✓ slow (120 ms)\n\nTests:       2 passed, 2 total\n"
RUST_LIB = "pub fn total() -> i32 {{ {body} }}\n#[cfg(test)]\nmod tests {{\n{tests}}}\n"
RUST_TESTS = "    #[test]\n    fn test_total() { assert_eq!(super::total(), 3); }\n"
NEW_RUST_TEST = RUST_TESTS.replace("test_total", "test_new")
CARGO_TOML = '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n'


HEADS = {
    "passes": (
        {},
        {"shop/cart.py": WRONG_CART},
        [TOTAL],
        rf"{TOTAL} passes without your uncommitted changes: all 2 tests passed",
    ),
    "fails": (
        {"shop/cart.py": WRONG_CART},
        {"shop/cart.py": f"\n{WRONG_CART}"},
        [TOTAL],
        rf"{TOTAL} fails without your uncommitted changes. On HEAD alone 1 of 2 tests failed .*: {TOTAL}",
    ),
    "another test fails": (
        {"tests/test_cart.py": f"{TEST_CART}\n\ndef test_odd():\n    assert total([2, 3]) == 3\n"},
        {"shop/cart.py": WRONG_CART},
        [TOTAL],
        rf"{TOTAL} passes without your uncommitted changes. On HEAD alone 1 of 3 tests failed in .*: {ODD}"
        "; 1 of 1 passed with the uncommitted files",
    ),
    "syntax error": (
        {"shop/cart.py": BROKEN_CART},
        {"shop/cart.py": WRONG_CART},
        [TOTAL],
        "On HEAD alone 1 error, no tests ran in .*: tests/test_cart.py",
    ),
    "mended syntax error": (
        {"shop/cart.py": BROKEN_CART},
        {"shop/cart.py": CART, "tests/test_tax.py": "def test_tax():\n    assert 0\n"},
        ["tests/test_tax.py::test_tax"],
        "On HEAD alone 1 error, no tests ran in .*: tests/test_cart.py; 1 of 1 passed with the uncommitted files",
    ),
    "same file fails": (
        {"shop/cart.py": BROKEN_CART},
        {"shop/cart.py": f"\n{BROKEN_CART}"},
        ["tests/test_cart.py"],
        "tests/test_cart.py fails without your uncommitted changes. On HEAD alone 1 error, .*",
    ),
    "file": ({}, {"shop/cart.py": BROKEN_CART}, ["tests/test_cart.py"], "HEAD is complete: all 2 tests passed"),
    "skipped": (
        {"tests/test_cart.py": TEST_CART.replace("def test", "import pytest\n\n@pytest.mark.skip\ndef test")},
        {"tests/test_cart.py": TEST_CART, "shop/cart.py": WRONG_CART},
        [TOTAL],
        "HEAD is complete: the one test passed in .*, 1 skipped",
    ),
    "new test": (
        {},
        {"tests/test_cart.py": f"{TEST_CART}\n\ndef test_odd():\n    assert 0\n"},
        [ODD],
        "HEAD is complete: all 2 tests passed",
    ),
    "nothing left out": ({}, {}, [TOTAL], "HEAD is complete: all 2 tests passed"),
    "too many": (
        {
            "shop/cart.py": "def total(x):\n    return False\n",
            "tests/test_cart.py": f"{MANY_TESTS}def test_many(x):\n    assert total(x)\n",
        },
        {"shop/cart.py": "def total(x):\n    return x < 249\n"},
        ["tests/test_cart.py::test_many[249]"],
        "On HEAD alone 250 of 251 tests failed in .*",
    ),
}
"""What is committed and what is not, the failing tests, and what is then said of HEAD alone."""


@pytest.mark.parametrize(("committed", "uncommitted", "tests", "summary"), HEADS.values(), ids=HEADS)
def test_of_each_failing_test_only_what_is_known_is_said(
    project: Repository,
    run_flow: RunFlow,
    committed: Mapping[str, str],
    uncommitted: Mapping[str, str],
    tests: Sequence[str],
    summary: str,
) -> None:
    commit_shop(project)
    check_head(project, run_flow, committed, uncommitted, tests, summary)


@pytest.mark.parametrize("report", [MOCHA, JEST], ids=["mocha", "jest"])
def test_a_quick_test_whose_time_is_not_printed_may_be_missing_at_head(
    repository: Repository, run_flow: RunFlow, report: str
) -> None:
    committed = {"package.json": '{"scripts": {"test": "cat report.txt"}}\n', "report.txt": report}
    check_head(
        repository, run_flow, committed, {"report.txt": ""}, ["cart quick"], "HEAD is complete: all 2 tests passed"
    )


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
@pytest.mark.parametrize(
    ("body", "tests", "summary"),
    [
        ("sum()", RUST_TESTS, "On HEAD alone 1 error, no tests ran in .*"),
        ("3", RUST_TESTS, "HEAD is complete: the one test passed"),
        (
            "4",
            RUST_TESTS,
            "tests::test_total fails without your uncommitted changes. On HEAD alone 1 of 1 test failed .*",
        ),
        ("3", NEW_RUST_TEST, "HEAD is complete: the one test passed"),
    ],
    ids=["does not compile", "passes", "fails", "new test"],
)
def test_cargo_measures_no_tests(
    repository: Repository, run_flow: RunFlow, body: str, tests: str, summary: str
) -> None:
    committed = {".gitignore": "target\n", "Cargo.toml": CARGO_TOML}
    committed["src/lib.rs"] = RUST_LIB.format(body=body, tests=tests)
    uncommitted = {"src/lib.rs": RUST_LIB.format(body="5", tests=RUST_TESTS)}
    check_head(repository, run_flow, committed, uncommitted, ["tests::test_total"], summary)


def check_head(
    repository: Repository,
    run_flow: RunFlow,
    committed: Mapping[str, str],
    uncommitted: Mapping[str, str],
    tests: Sequence[str],
    summary: str,
) -> None:
    """Run HEAD alone after a commit and uncommitted changes. `summary` is a regular expression of its summary without
    the time at the end."""
    if committed:
        repository.commit("work", committed)
    for path, text in uncommitted.items():
        repository.write(path, text)
    run = run_flow("check_clean_head", tests=tests)
    assert re.fullmatch(rf"{summary}(?: in [\d.]+ m?s)?", run.summary), run.summary


@pytest.mark.parametrize("path", ["conftest.py", "shop/cart.py"])
def test_a_package_that_is_not_installed_is_no_failed_test(project: Repository, run_flow: RunFlow, path: str) -> None:
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
) -> None:
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


def test_a_module_of_the_project_that_cannot_be_imported_is_an_error(project: Repository, run_flow: RunFlow) -> None:
    commit_shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write("shop/cart.py", "import shop.gone\n")
    check = run_flow("run_tests").check
    assert (check.errors, check.failing) == (1, ("tests/test_cart.py",))


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_a_tool_that_cannot_run_does_not_hide_another(project: Repository, run_flow: RunFlow) -> None:
    script = "console.log('Tests:       3 passed, 3 total')"
    project.commit(
        "web", {"test_a.py": "x = 1\n", "package.json": f'{{"scripts": {{"test": "node -e \\"{script}\\""}}}}'}
    )
    run = run_flow("run_tests")
    assert (run.check.tool, run.check.passed, run.result.full) == ("script", 3, False)
    assert "pytest found no tests" in run.transcript

"""Detection of tools and package managers, what runs print, and the tests of a changed file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.execution.runners.flows.suite_runs import how_to_run_tests
from engine.execution.runners.toolchains import output_readers
from engine.execution.runners.toolchains.detection import ProjectFolder, environment_command
from engine.execution.runners.toolchains.project_tools import Toolchain
from engine.execution.runners.toolchains.projects import find_projects, project_at
from engine.execution.runners.toolchains.python_projects import reexported_modules, related_tests
from engine.execution.runners.toolchains.tool_table import (
    TEST_RUNNERS,
    Finding,
    FinishedRun,
    ToolRow,
    as_operand,
    build_row,
    is_inside,
)
from engine.model import CheckResult
from tests.conftest import Repository

# Finding the tools of a project, and the commands they run.


def bound(name: str, folder: Path, **words: tuple[str, ...]) -> Toolchain:
    """A row of the table in a folder, whether or not its tool is installed here."""
    row = next(row for row in TEST_RUNNERS if row.name == name)
    return Toolchain(row=row, folder=folder, workspace=folder, top=folder, title=row.title, words=words)


def programs(folder: Path, *names: str) -> Path:
    """A folder of programs, beside a project, that are there and do nothing."""
    place = folder.parent / f"{folder.name} programs"
    place.mkdir()
    for name in names:
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)
    return place


def environment(project: Path, *, pytest_in_it: bool, shares: bool = False) -> Path:
    """A made-up `.venv` whose interpreter fails when it is run."""
    program = project / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho run >> ran\nexit 1\n")
    program.chmod(0o755)
    (project / ".venv" / "pyvenv.cfg").write_text(f"include-system-site-packages = {str(shares).lower()}\n")
    if pytest_in_it:
        package = project / ".venv" / "lib" / "python3.11" / "site-packages" / "pytest"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    return program


def test_go_runs_a_single_test(tmp_path: Path) -> None:
    argv = bound("go", tmp_path).test_command(["example.com/shop/cart::TestTax/gift_1.5"], tmp_path / "r").argv
    assert argv == ("go", "test", "-v", "-count=1", r"-run=^TestTax$/^gift_1\.5$", "example.com/shop/cart")


def test_go_maps_a_file_to_its_package(tmp_path: Path) -> None:
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "cart_test.go").touch()
    go = bound("go", tmp_path)
    assert go.tests_for(["cart/cart.go", "other/x.go"]) == {"cart/cart.go": ["./cart"], "other/x.go": []}


@pytest.mark.parametrize(
    ("script", "runner"),
    [
        ("node --test", "node:test"),
        ("node --test test/", "node:test"),
        ("jest", "jest"),
        ("vitest run", "vitest"),
        ("mocha -r x", "mocha"),
        ("bun test", "bun"),
        ("eslint . && jest", "script"),
        ("node test.js", "script"),
        ("echo 'unbalanced", "script"),
    ],
)
def test_a_script_that_is_one_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, runner: str) -> None:
    monkeypatch.setenv("PATH", str(programs(tmp_path, "npm", "bun")))
    (tmp_path / "package.json").write_text(f'{{"scripts": {{"test": "{script}"}}}}')
    tool = project_at(tmp_path).tool
    assert tool is not None
    assert (tool.name, tool.runs_single_tests, tool.title) == (
        runner,
        runner != "script",
        "bun test" if runner == "bun" else "npm test",
    )


@pytest.mark.parametrize(
    ("lock", "manager", "test", "single_test"),
    [
        ("package-lock.json", "npm", "npm run --silent test", "npm run --silent test -- -t ^(a \\(b\\))$"),
        ("pnpm-lock.yaml", "pnpm", "pnpm --silent run test", "pnpm --silent run test -t ^(a \\(b\\))$"),
        ("yarn.lock", "yarn", "yarn run test", "yarn run test -t ^(a \\(b\\))$"),
        ("bun.lock", "bun", "bun run test", "bun run test -t ^(a \\(b\\))$"),
    ],
)
def test_the_package_manager_is_that_of_the_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, manager: str, test: str, single_test: str
) -> None:
    monkeypatch.setenv("PATH", str(programs(tmp_path, manager)))
    (tmp_path / "package.json").write_text('{"scripts": {"test": "jest"}, "devDependencies": {"jest": "^29"}}')
    (tmp_path / lock).touch()
    project = project_at(tmp_path)
    assert project.tool is not None
    assert project.tool.title == f"{manager} test"
    assert " ".join(project.tool.test_command([], tmp_path / "r").argv) == test
    assert " ".join(project.tool.test_command(["a (b)"], tmp_path / "r").argv) == single_test
    assert (project.packages[0].lock, project.missing_tool) == (lock, "node_modules")
    assert project.packages[0].manager == manager


@pytest.mark.parametrize(
    ("files", "manager", "install"),
    [
        ({"pyproject.toml": '[dependency-groups]\ntest = ["pytest"]\n', "uv.lock": ""}, "uv", "uv sync --group test"),
        ({"pyproject.toml": "[tool.poetry]\n"}, "poetry", "poetry install"),
        ({"pyproject.toml": "", "pdm.lock": ""}, "pdm", "pdm sync -d"),
        ({"Pipfile": ""}, "pipenv", "pipenv install --dev"),
        ({"requirements.txt": ""}, "pip", "python3 -m venv .venv && .venv/bin/pip install pytest -r requirements.txt"),
        ({"package.json": "{}", "package-lock.json": ""}, "npm", "npm ci"),
        ({"package.json": '{"packageManager": "pnpm@9"}'}, "pnpm", "pnpm install"),
        ({"package.json": "{}", "pnpm-lock.yaml": ""}, "pnpm", "pnpm install --frozen-lockfile"),
        ({"package.json": "{}", "yarn.lock": ""}, "yarn", "yarn install --frozen-lockfile"),
        ({"package.json": "{}", "yarn.lock": "", ".yarnrc.yml": ""}, "yarn", "yarn install --immutable"),
        ({"package.json": "{}", "bun.lockb": ""}, "bun", "bun install --frozen-lockfile"),
        ({"go.mod": "", "go.sum": ""}, "go", "go mod download"),
        ({"Cargo.toml": "", "Cargo.lock": ""}, "cargo", "cargo fetch --locked"),
        ({"build.gradle": "", "gradlew": ""}, "gradle", "./gradlew --console=plain testClasses"),
        ({"pom.xml": ""}, "maven", "mvn --batch-mode dependency:go-offline"),
        ({"Gemfile": ""}, "bundler", "bundle install"),
        ({"composer.json": "{}"}, "composer", "composer install --no-interaction --no-scripts"),
        ({"mix.exs": ""}, "mix", "mix deps.get"),
        ({"a.csproj": "", "packages.lock.json": ""}, "dotnet", "dotnet restore --locked-mode"),
    ],
)
def test_the_install_command_of_each_package_manager(
    tmp_path: Path, files: dict[str, str], manager: str, install: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    packages = project_at(tmp_path).packages[0]
    assert (packages.manager, packages.install) == (manager, install)
    assert packages.hosts


def test_an_environment_without_pytest_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    environment(tmp_path, pytest_in_it=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    project = project_at(tmp_path)
    assert (project.tools, project.searched, project.missing_tool) == ((), ("pytest in .venv",), "pytest")
    assert not (tmp_path / "ran").exists()


def test_the_engines_own_environment_is_not_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, ours = tmp_path / "shop", tmp_path / "clawpy"
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.ruff]\n")
    program = environment(ours, pytest_in_it=True)
    for name in ("python3", "ruff"):
        (program.parent / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert project_at(project).tool is not None, "another's environment that is active counts"
    assert project_at(project).linters
    monkeypatch.setattr(sys, "prefix", str(ours / ".venv"))
    assert project_at(project).tool is None
    assert project_at(project).linters == ()


def test_a_worktree_uses_the_environment_of_the_workspace_but_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    workspace, worktree = tmp_path / "shop", tmp_path / "worktree"
    (worktree / "src").mkdir(parents=True)
    (worktree / "pyproject.toml").touch()
    environment(workspace, pytest_in_it=True)
    found = project_at(worktree, workspace).tool
    assert found is not None
    command = found.test_command(["-x/test_a.py"], tmp_path / "report.xml")
    assert command.argv[0] == str(workspace / ".venv" / "bin" / "python")
    assert command.argv[4] == "./-x/test_a.py"
    assert command.environment["PYTHONPATH"] == f"{worktree}/src:{worktree}"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"scripts": 3}', '{"scripts": null}'])
def test_a_broken_package_json_is_no_test(tmp_path: Path, text: str) -> None:
    (tmp_path / "package.json").write_text(text)
    assert project_at(tmp_path).tools == ()


@pytest.mark.parametrize(
    ("file", "text", "title"),
    [
        ("Makefile", "VERSION := 1\n.PHONY: test\nother: build\n\tgo\ntest ::\n\tx\ncheck = b:c\n", "make test"),
        ("Makefile", "test := 1\ncheck: build\n\tgo\n", "make check"),
        ("justfile", "test := 'x'\n@test *args: build\n  go\n", "just test"),
        ("Taskfile.yml", "version: '3'\ntasks:\n  build:\n    cmds: [go]\n  test:\n    cmds: [go]\n", "task test"),
    ],
)
def test_targets_of_makefiles_justfiles_and_taskfiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, title: str
) -> None:
    (tmp_path / file).write_text(text)
    monkeypatch.setenv("PATH", str(programs(tmp_path, "make", "just", "task")))
    tool = project_at(tmp_path).tool
    assert tool is not None
    assert (tool.title, tool.test_command([], tmp_path / "r").argv) == (title, tuple(title.split()))


def test_make_gives_way_to_what_runs_tests_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text("test:\n\tgo test ./...\nlint:\n\tgo vet\n")
    (tmp_path / "go.mod").write_text("module x\n")
    monkeypatch.setenv("PATH", str(programs(tmp_path, "make", "go")))
    project = project_at(tmp_path)
    assert [tool.name for tool in project.tools] == ["go"]
    assert [linter.name for linter in project.linters] == ["go vet"]


@pytest.mark.parametrize(("path", "yes"), [("a/b.py", True), ("/etc/passwd", False), ("a/../../b", False), ("", False)])
def test_paths_stay_inside(path: str, yes: bool) -> None:
    assert is_inside(path) is yes


def test_a_file_whose_name_begins_with_a_dash_is_no_option() -> None:
    assert [as_operand(name) for name in ("-rf", "a.py")] == ["./-rf", "a.py"]


# -- the table of tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"name": "x", "program": "x"}, "kind"),
        ({"name": "x", "kind": "y", "detected_by": "z", "programm": "x"}, "programm"),
    ],
)
def test_a_row_of_a_tool_with_a_missing_or_an_unknown_key_is_refused(row: dict[str, str], key: str) -> None:
    with pytest.raises(TypeError, match=f"'{key}'"):
        build_row(ToolRow, row)


# Reading the output of test runners and linters: pure functions on realistic samples.


# -- pytest ---------------------------------------------------------------------------------------------------------

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" errors="2" failures="1" skipped="1" tests="5" time="1.234">
<testcase classname="tests.test_cart.TestCart" name="test_total[a-b.c]" time="0.100"/>
<testcase classname="tests.test_cart" name="test_tax" time="0.900"><failure message="1 == 2">…</failure></testcase>
<testcase classname="tests.test_cart" name="test_gift" time="0.010"><skipped message="later"/></testcase>
<testcase classname="tests.test_cart" name="test_db" time="0.020"><error message="failed on setup">…</error></testcase>
<testcase classname="" name="tests.test_broken" time="0.000"><error message="collection failure">…</error></testcase>
</testsuite></testsuites>"""


def ended(output: str = "", exit_code: int = 1, *, report: str = "", folder: Path = Path("/")) -> FinishedRun:
    return FinishedRun("tool", "tool test", output, exit_code, report, folder)


def printed(reader: str, ended: FinishedRun) -> CheckResult:
    check = output_readers.read_result(reader, ended)
    assert check is not None
    return check


def test_junit_reports_have_node_ids(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("test_cart.py", "test_broken.py"):
        (tmp_path / "tests" / name).touch()
    check = printed("junit", ended(report=JUNIT, folder=tmp_path))
    assert (check.passed, check.failed, check.errors, check.skipped, check.seconds) == (1, 1, 2, 1, 1.234)
    assert check.failing == ("tests/test_cart.py::test_tax", "tests/test_cart.py::test_db", "tests/test_broken.py")
    assert check.durations[:2] == (
        ("tests/test_cart.py::test_tax", 0.9),
        ("tests/test_cart.py::TestCart::test_total[a-b.c]", 0.1),
    )


@pytest.mark.parametrize(("exit_code", "errors"), [(5, 0), (3, 1), (-11, 1)])
def test_a_run_without_its_report_has_an_error(exit_code: int, errors: int) -> None:
    check = printed("junit", ended(report="<testsuite", exit_code=exit_code))
    assert (check.passed, check.errors, check.green) == (0, errors, False)


def test_cargo_that_does_not_compile_is_an_error() -> None:
    check = printed("cargo", ended("error[E0425]: cannot find value `x` in this scope\n --> src/lib.rs:1:1\n", 101))
    assert (check.passed, check.failed, check.errors) == (0, 0, 1)
    assert check.failing == ("error[E0425]: cannot find value `x` in this scope",)


# -- cargo ----------------------------------------------------------------------------------------------------------

CARGO = """   Compiling shop v0.1.0 (/shop)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.52s
     Running unittests src/lib.rs (target/debug/deps/shop-0f)

running 4 tests
test cart::tests::adds ... ok
test cart::tests::later ... ignored, not yet
test cart::tests::prints ... FAILED
test cart::tests::panics - should panic ... ok

failures:

---- cart::tests::prints stdout ----
thread 'cart::tests::prints' panicked at src/lib.rs:12:9:
boom

failures:
    cart::tests::prints

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

   Doc-tests shop

running 1 test
test src/lib.rs - add (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
"""


def test_cargo_totals_and_names() -> None:
    check = printed("cargo", ended(CARGO, 101))
    assert (check.passed, check.failed, check.skipped, check.errors, check.seconds) == (3, 1, 1, 0, 0.75)
    assert check.failing == ("cart::tests::prints",)


def test_clippy_findings_have_their_rule() -> None:
    output = """warning: unneeded `return` statement
 --> src/lib.rs:2:5
  |
2 |     return 1;
  |     ^^^^^^^^
  |
  = help: for further information visit https://rust-lang.github.io/rust-clippy/rust-1.95.0/index.html#needless_return
  = note: `#[warn(clippy::needless_return)]` on by default

warning: unused variable: `x`
 --> src/main.rs:7:9
  |
  = note: `#[warn(unused_variables)]` (part of `#[warn(unused)]`) on by default

error: could not compile `shop` (lib) due to 1 previous error
"""
    assert [
        (finding.path, finding.line, finding.rule) for finding in output_readers.read_findings("clippy", output)
    ] == [
        ("src/lib.rs", 2, "needless_return"),
        ("src/main.rs", 7, "unused_variables"),
    ]


# -- go -------------------------------------------------------------------------------------------------------------

GO = """=== RUN   TestAdd
--- PASS: TestAdd (0.10s)
=== RUN   TestTax
=== RUN   TestTax/gift_1.5
    cart_test.go:10: boom
=== RUN   TestTax/plain
--- FAIL: TestTax (0.03s)
    --- FAIL: TestTax/gift_1.5 (0.02s)
    --- PASS: TestTax/plain (0.01s)
=== RUN   TestLater
--- SKIP: TestLater (0.00s)
FAIL
FAIL\texample.com/shop/cart\t0.131s
ok  \texample.com/shop/tax\t0.002s [no tests to run]
?   \texample.com/shop/doc\t[no test files]
# example.com/shop/broken
broken/x.go:3:2: undefined: y
FAIL\texample.com/shop/broken [build failed]
FAIL
"""


def test_go_output_is_read_by_package() -> None:
    check = printed("go", ended(GO))
    assert (check.passed, check.failed, check.skipped, check.errors) == (2, 1, 1, 1)
    assert check.failing == ("example.com/shop/cart::TestTax/gift_1.5", "example.com/shop/broken")
    assert check.durations[0] == ("example.com/shop/cart::TestAdd", 0.1)


def test_go_vet_lines() -> None:
    found = output_readers.read_findings(
        "vet", "# example.com/shop\n./cart.go:7:2: Printf format %d has arg x of wrong type\n"
    )
    assert [(one.path, one.line, one.rule) for one in found] == [("cart.go", 7, "vet")]


# -- node -----------------------------------------------------------------------------------------------------------

TAP = """TAP version 13
# Subtest: cart
    # Subtest: adds
    ok 1 - adds
      ---
      duration_ms: 12.5
      ...
    # Subtest: rounds
    not ok 2 - rounds
      ---
      duration_ms: 1.5
      error: 'boom'
      ...
    1..2
not ok 1 - cart
  ---
  duration_ms: 20.1
  ...
# Subtest: later
ok 2 - later # SKIP
1..2
# tests 3
# suites 1
# pass 1
# fail 1
# cancelled 0
# skipped 1
# todo 0
# duration_ms 61.5
"""
SPEC = """▶ cart
  ✔ adds (12.5ms)
  ✖ rounds (1.5ms)
▶ cart (20.1ms)
﹣ later (0.1ms) # SKIP
ℹ tests 3
ℹ suites 1
ℹ pass 1
ℹ fail 1
ℹ cancelled 0
ℹ skipped 1
ℹ todo 0
ℹ duration_ms 61.5

✖ failing tests:

✖ rounds (1.5ms)
"""
JEST = """PASS src/tax.test.js
FAIL src/cart.test.js
  cart
    ✓ adds (12 ms)
    ✕ rounds (2 ms)

  ● cart › rounds

    expect(received).toBe(expected)

Test Suites: 1 failed, 1 passed, 2 total
Tests:       1 failed, 1 skipped, 2 passed, 4 total
Snapshots:   0 total
Time:        1.5 s
Ran all test suites.
"""
VITEST = """ ❯ test/cart.test.ts (2 tests | 1 failed) 9ms
   ✓ cart > adds 1ms
   × cart > rounds 6ms

⎯⎯⎯ Failed Tests 1 ⎯⎯⎯

 FAIL  test/cart.test.ts > cart > rounds
AssertionError: expected 1 to be 2

 Test Files  1 failed (1)
      Tests  1 failed | 1 passed (2)
   Start at  12:00:00
   Duration  310ms (transform 20ms)
"""
MOCHA = """

  cart
    ✔ adds (55ms)
    1) rounds


  1 passing (61ms)
  1 pending
  1 failing

  1) cart
       rounds:
     AssertionError: expected 1 to equal 2
      at Context.<anonymous> (test/cart.js:9:7)

"""


@pytest.mark.parametrize(
    ("output", "counts", "failing", "seconds"),
    [
        (TAP, (1, 1, 1), ("rounds",), 0.061),
        (SPEC, (1, 1, 1), ("rounds",), 0.061),
        (JEST, (2, 1, 1), ("cart rounds",), 1.5),
        (VITEST, (1, 1, 0), ("cart rounds",), 0.31),
        (MOCHA, (1, 1, 1), ("cart rounds",), 0.061),
    ],
    ids=["tap", "spec", "jest", "vitest", "mocha"],
)
def test_the_output_of_javascript_runners_is_read(
    output: str, counts: tuple[int, int, int], failing: tuple[str, ...], seconds: float
) -> None:
    check = printed("words", ended(f"\x1b[32m> shop@1.0.0 test\x1b[0m\n{output}"))
    assert (check.passed, check.failed, check.skipped) == counts
    assert check.failing == failing
    assert check.seconds == pytest.approx(seconds, abs=0.001)


def test_a_failed_command_with_passed_tests_is_an_error() -> None:
    check = printed("words", ended("Tests:       2 passed, 2 total\n", 1))
    assert (check.passed, check.errors, check.green) == (2, 1, False)
    assert output_readers.read_result("words", ended("compiled with great success\n", 0)) is None


def test_eslint_findings_are_read_by_file() -> None:
    output = (
        "/shop/a.js\n  1:5  error    'x' is never used  no-unused-vars\n  9:1  warning  Odd\n\n✖ 2 problems (1 error)\n"
    )
    assert [
        (finding.path, finding.line, finding.rule) for finding in output_readers.read_findings("stylish", output)
    ] == [
        ("/shop/a.js", 1, "no-unused-vars"),
        ("/shop/a.js", 9, "eslint"),
    ]


@pytest.mark.parametrize(
    ("read", "line", "finding"),
    [
        ("lines", "a.c:3: too long", Finding("a.c", 3, "lint", "too long")),
        ("lines", "a.c:3:9: error: too long", Finding("a.c", 3, "error", "too long")),
        (
            "lines",
            "/s/a.rb:1:1: C: [Correctable] Style/StringLiterals: Prefer",
            Finding("/s/a.rb", 1, "Style/StringLiterals", "Prefer"),
        ),
        (
            "lines",
            "/s/a.php:12:Undefined variable: $x",
            Finding("/s/a.php", 12, "lint", "Undefined variable: $x"),
        ),
        (
            "mypy",
            'a.py:2: error: Incompatible types (expression has type "str")  [assignment]',
            Finding("a.py", 2, "assignment", 'Incompatible types (expression has type "str")'),
        ),
        ("mypy", "a.py:2: note: See https://x", None),
        (
            "pyright",
            '  /s/a.py:2:10 - error: "str" is not assignable to "int" (reportAssignmentType)',
            Finding("/s/a.py", 2, "reportAssignmentType", '"str" is not assignable to "int"'),
        ),
        (
            "tsc",
            "src/a.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.",
            Finding("src/a.ts", 1, "TS2322", "Type 'string' is not assignable to type 'number'."),
        ),
        ("prettier", "[warn] src/a.ts", Finding("src/a.ts", 0, "format", "is not formatted")),
    ],
)
def test_findings_of_linters_are_read_by_line(read: str, line: str, finding: Finding | None) -> None:
    assert output_readers.read_findings(read, f"Checking\n{line}\nFound 1 error.\n") == ([finding] if finding else [])


def test_tests_that_reach_a_module_through_its_package_belong_to_it() -> None:
    tests = {
        "tests/test_echo.py": "from click import echo\n",
        "tests/test_help.py": "import click\nclick.utils.shorten('x')\n",
        "tests/test_other.py": "from click.core import Context\n",
    }
    path = "src/click/utils.py"
    assert related_tests([path], tests) == {path: ["tests/test_help.py"]}
    assert related_tests([path], tests, reexported=[path]) == {path: ["tests/test_echo.py", "tests/test_help.py"]}


def test_tests_of_a_package_belong_to_its_reexported_modules(tmp_path: Path) -> None:
    package = tmp_path / "src" / "click"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .utils import echo as echo\nfrom click.core import Context\n")
    paths = ["src/click/utils.py", "src/click/core.py", "src/click/inner.py", "src/click/__init__.py"]
    assert reexported_modules(tmp_path, paths) == {"src/click/utils.py", "src/click/core.py"}


def test_a_changed_file_has_its_related_tests() -> None:
    tests = {
        "tests/a/test_cart.py": "",
        "tests/b/test_cart.py": "",
        "tests/test_flow.py": "from a.cart import total\n",
        "tests/b/cart_test.py": "",
    }
    assert related_tests(
        ["a/cart.py", "b/cart.py", "tests/b/conftest.py", "tests/test_flow.py", "x.md", "a/__init__.py"], tests
    ) == {
        "a/cart.py": ["tests/a/test_cart.py", "tests/test_flow.py"],
        "b/cart.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/b/conftest.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/test_flow.py": ["tests/test_flow.py"],
        "x.md": [],
        "a/__init__.py": [],
    }


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({}, "python3 -m venv .venv && .venv/bin/pip install pytest"),
        ({"requirements.txt": ""}, "python3 -m venv .venv && .venv/bin/pip install pytest -r requirements.txt"),
        ({"setup.py": ""}, "python3 -m venv .venv && .venv/bin/pip install pytest -e ."),
        ({"venv/bin/pip": "", "pyproject.toml": "[project]"}, "venv/bin/pip install pytest -e ."),
        ({"uv.lock": "", "pyproject.toml": ""}, "uv add --dev pytest"),
        ({"uv.lock": "", "pyproject.toml": 'dev = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": "[tool.pytest.ini_options]"}, "uv add --dev pytest"),
        ({"pyproject.toml": "[tool.poetry]\npytest = '*'"}, "poetry install"),
        ({"poetry.lock": "", "pyproject.toml": ""}, "poetry add --group dev pytest"),
        ({"pdm.lock": "", "pyproject.toml": 'dev = ["pytest"]'}, "pdm sync -d"),
        ({"pdm.lock": "", "pyproject.toml": ""}, "pdm add -d pytest"),
        ({"pyproject.toml": '[dependency-groups]\ndev = ["pytest"]'}, "uv sync"),
        (
            {"pyproject.toml": '[project]\n[dependency-groups]\ndev = ["pytest"]', ".venv/bin/pip": ""},
            ".venv/bin/pip install pytest -e .",
        ),
        (
            {"pyproject.toml": '[project.optional-dependencies]\ntest = ["pytest"]\n[project]', ".venv/bin/pip": ""},
            ".venv/bin/pip install pytest -e '.[test]'",
        ),
        ({"pyproject.toml": '[dependency-groups]\ntest = ["pytest>=8"]'}, "uv sync --group test"),
        ({"uv.lock": "", "pyproject.toml": '[project.optional-dependencies]\nci = ["pytest"]'}, "uv sync --extra ci"),
        ({"uv.lock": "", "pyproject.toml": '[project]\ndependencies = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": '[tool.uv]\ndev-dependencies = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": 'project = 3\nneeds = ["pytest"]'}, "uv sync"),
        ({"Pipfile": ""}, "pipenv install --dev pytest"),
        ({"Pipfile": "[dev-packages]\npytest = '*'"}, "pipenv install --dev"),
    ],
)
def test_the_command_that_makes_an_environment(tmp_path: Path, files: dict[str, str], command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert environment_command(ProjectFolder.of_operator(tmp_path, tmp_path)) == command


def test_missing_pytest_is_named_with_the_command_that_installs_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "engine.execution.runners.toolchains.python_projects.find_interpreters", lambda workspace, top: []
    )
    folder = repository.path
    repository.write("pyproject.toml", '[project]\nname = "shop"\n')
    assert find_projects(folder)[0].missing_tool == "", "no tests, nothing to install for them"
    repository.write("tests/unit/test_cart.py", "")
    assert find_projects(folder)[0].missing_tool == "pytest"
    assert (
        environment_command(ProjectFolder.of_operator(folder, folder))
        == "python3 -m venv .venv && .venv/bin/pip install pytest -e ."
    )
    repository.write("uv.lock", "")
    assert environment_command(ProjectFolder.of_operator(folder, folder)) == "uv add --dev pytest"
    assert how_to_run_tests(find_projects(folder)[0], folder) == "uv add --dev pytest"

"""Reading what tools print, and finding the tests of a file: pure functions on realistic samples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.execution.runners.toolchain import detect, detect_all, linters
from engine.execution.runners.toolchains.base import inside, operand
from engine.execution.runners.toolchains.cargo import read_cargo, read_clippy
from engine.execution.runners.toolchains.go import Go, GoVet, read_go
from engine.execution.runners.toolchains.make import targets
from engine.execution.runners.toolchains.node import Npm, read_stylish, runner_of
from engine.execution.runners.toolchains.python import Pytest, imports, module_of, read_junit, related
from engine.execution.runners.toolchains.python_lint import PythonLinter
from engine.execution.runners.toolchains.words import read_words

# -- which tests belong to a file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/shop/cart.py", "shop.cart"),
        ("shop/__init__.py", "shop"),
        ("lib/x.py", "x"),
        ("src.py", "src"),
        ("a/b/c.py", "a.b.c"),
    ],
)
def test_module_names(path: str, module: str) -> None:
    assert module_of(path) == module


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("import shop.cart\n", True),
        ("import os, shop.cart as c\n", True),
        ("from shop.cart import total\n", True),
        ("    from shop import cart\n", True),
        ("from shop import (\n    tax,\n    cart,\n)\n", True),
        ("from shop import cartoon\n", False),
        ("import shop.cartoon\n", False),
        ("# import shop.cart\n", False),
        ("from shop.cart.deep import x\n", False),
        ("import shop\n", False),
    ],
)
def test_imports_are_seen(text: str, yes: bool) -> None:
    assert imports(text, "shop.cart") is yes


def test_related_tests() -> None:
    tests = {
        "tests/a/test_cart.py": "",
        "tests/b/test_cart.py": "",
        "tests/test_flow.py": "from a.cart import total\n",
        "tests/b/cart_test.py": "",
    }
    assert related(
        ["a/cart.py", "b/cart.py", "tests/b/conftest.py", "tests/test_flow.py", "x.md", "a/__init__.py"], tests
    ) == {
        "a/cart.py": ["tests/a/test_cart.py", "tests/test_flow.py"],
        "b/cart.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/b/conftest.py": ["tests/b/cart_test.py", "tests/b/test_cart.py"],
        "tests/test_flow.py": ["tests/test_flow.py"],
        "x.md": [],
        "a/__init__.py": [],
    }


# -- pytest ---------------------------------------------------------------------------------------------------------

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" errors="2" failures="1" skipped="1" tests="5" time="1.234">
<testcase classname="tests.test_cart.TestCart" name="test_total[a-b.c]" time="0.100"/>
<testcase classname="tests.test_cart" name="test_tax" time="0.900"><failure message="1 == 2">…</failure></testcase>
<testcase classname="tests.test_cart" name="test_gift" time="0.010"><skipped message="later"/></testcase>
<testcase classname="tests.test_cart" name="test_db" time="0.020"><error message="failed on setup">…</error></testcase>
<testcase classname="" name="tests.test_broken" time="0.000"><error message="collection failure">…</error></testcase>
</testsuite></testsuites>"""


def test_junit_gives_node_ids(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("test_cart.py", "test_broken.py"):
        (tmp_path / "tests" / name).touch()
    check = read_junit(JUNIT, tmp_path, 1)
    assert (check.passed, check.failed, check.errors, check.skipped, check.seconds) == (1, 1, 2, 1, 1.234)
    assert check.failing == ("tests/test_cart.py::test_tax", "tests/test_cart.py::test_db", "tests/test_broken.py")
    assert check.durations[:2] == (
        ("tests/test_cart.py::test_tax", 0.9),
        ("tests/test_cart.py::TestCart::test_total[a-b.c]", 0.1),
    )


@pytest.mark.parametrize(("exit_code", "errors"), [(5, 0), (3, 1), (-11, 1)])
def test_a_missing_report_is_an_error(tmp_path: Path, exit_code: int, errors: int) -> None:
    check = read_junit("<testsuite", tmp_path, exit_code)
    assert (check.passed, check.errors) == (0, errors)
    assert not check.green


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
    check = read_cargo(CARGO, 101)
    assert (check.passed, check.failed, check.skipped, check.errors, check.seconds) == (3, 1, 1, 0, 0.75)
    assert check.failing == ("cart::tests::prints",)


def test_cargo_that_does_not_compile() -> None:
    check = read_cargo("error[E0425]: cannot find value `x` in this scope\n --> src/lib.rs:1:1\n", 101)
    assert (check.passed, check.failed, check.errors) == (0, 0, 1)
    assert check.failing == ("error[E0425]: cannot find value `x` in this scope",)


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
    assert [(one.path, one.line, one.rule) for one in read_clippy(output)] == [
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


def test_go_text() -> None:
    check = read_go(GO, 1)
    assert (check.passed, check.failed, check.skipped, check.errors) == (2, 1, 1, 1)
    assert check.failing == ("example.com/shop/cart::TestTax/gift_1.5", "example.com/shop/broken")
    assert check.durations[0] == ("example.com/shop/cart::TestAdd", 0.1)


def test_go_asks_for_one_test(tmp_path: Path) -> None:
    argv = Go(tmp_path, tmp_path).test_command(["example.com/shop/cart::TestTax/gift_1.5"], tmp_path / "r").argv
    assert argv == ("go", "test", "-v", "-count=1", r"-run=^TestTax$/^gift_1\.5$", "example.com/shop/cart")


def test_go_maps_a_file_to_its_package(tmp_path: Path) -> None:
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "cart_test.go").touch()
    go = Go(tmp_path, tmp_path)
    assert go.tests_for(["cart/cart.go", "other/x.go"]) == {"cart/cart.go": ["./cart"], "other/x.go": []}


def test_go_vet_lines() -> None:
    found = GoVet().parse("# example.com/shop\n./cart.go:7:2: Printf format %d has arg x of wrong type\n", 1)
    assert [(one.path, one.line, one.rule) for one in found.findings] == [("cart.go", 7, "vet")]


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
def test_javascript_runners(
    output: str, counts: tuple[int, int, int], failing: tuple[str, ...], seconds: float
) -> None:
    check = read_words("npm", f"\x1b[32m> shop@1.0.0 test\x1b[0m\n{output}", 1)
    assert check is not None
    assert (check.passed, check.failed, check.skipped) == counts
    assert check.failing == failing
    assert check.seconds == pytest.approx(seconds, abs=0.001)


def test_pytest_behind_a_makefile() -> None:
    check = read_words("make", "FAILED tests/test_a.py::test_b - assert 0\n==== 1 failed, 2 passed in 0.12s ====\n", 2)
    assert check is not None
    assert (check.passed, check.failed, check.failing) == (2, 1, ("tests/test_a.py::test_b",))


def test_a_red_command_with_green_tests_is_red() -> None:
    check = read_words("npm", "Tests:       2 passed, 2 total\n", 1)
    assert check is not None
    assert (check.passed, check.errors, check.green) == (2, 1, False)
    assert read_words("npm", "compiled with great success\n", 0) is None


@pytest.mark.parametrize(
    ("script", "runner"),
    [
        ("node --test", "node"),
        ("node --test test/", "node"),
        ("jest", "jest"),
        ("vitest run", "vitest"),
        ("mocha -r x", "mocha"),
        ("eslint . && jest", ""),
        ("node test.js", ""),
        ('echo "unbalanced', ""),
    ],
)
def test_a_script_that_is_one_runner(script: str, runner: str) -> None:
    assert runner_of(script) == runner


def test_names_of_tests_are_escaped(tmp_path: Path) -> None:
    command = Npm(tmp_path, tmp_path, {"test": "node --test test/"}).test_command(["a (b)"], tmp_path / "r")
    assert command.argv == ("node", "--test", r"--test-name-pattern=^(a \(b\))$", "test/")


def test_eslint_stylish() -> None:
    output = (
        "/shop/a.js\n  1:5  error    'x' is never used  no-unused-vars\n  9:1  warning  Odd\n\n✖ 2 problems (1 error)\n"
    )
    assert [(one.path, one.line, one.rule) for one in read_stylish(output)] == [
        ("/shop/a.js", 1, "no-unused-vars"),
        ("/shop/a.js", 9, "eslint"),
    ]


def test_ruff_and_flake8_lines() -> None:
    output = (
        "a.py:1:8: F401 [*] `os` imported but unused\n./b.py:3:1: E302 expected 2 blank lines\n"
        "a.py:1:1: invalid-syntax: Expected\nFound 3 errors.\n"
    )
    found = PythonLinter("ruff", "ruff").parse(output, 1)
    assert [(one.path, one.line, one.rule) for one in found.findings] == [
        ("a.py", 1, "F401"),
        ("b.py", 3, "E302"),
        ("a.py", 1, "invalid-syntax"),
    ]
    assert found.rules == [("E302", 1), ("F401", 1), ("invalid-syntax", 1)]


# -- finding tools --------------------------------------------------------------------------------------------------


def test_an_empty_folder_has_no_tools(tmp_path: Path) -> None:
    looked: list[str] = []
    assert detect(tmp_path) is None
    assert linters(tmp_path) == []
    assert detect_all(tmp_path, tmp_path, looked) == []
    assert looked == []


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


def test_the_projects_own_environment_is_looked_at_but_not_run(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    program = environment(tmp_path, pytest_in_it=True)
    found = detect(tmp_path)
    assert isinstance(found, Pytest)
    assert found.interpreter == program
    assert not (tmp_path / "ran").exists()


def test_an_environment_without_pytest_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    environment(tmp_path, pytest_in_it=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    looked: list[str] = []
    assert detect_all(tmp_path, tmp_path, looked) == []
    assert looked == ["pytest in .venv"]
    assert not (tmp_path / "ran").exists()


def test_the_engines_own_environment_is_not_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, ours = tmp_path / "shop", tmp_path / "clawpy"
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.ruff]\n")
    program = environment(ours, pytest_in_it=True)
    for name in ("python3", "ruff"):
        (program.parent / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert detect(project) is not None, "another's environment that is active counts"
    assert linters(project)
    monkeypatch.setattr(sys, "prefix", str(ours / ".venv"))
    assert detect(project) is None
    assert linters(project) == []


def test_a_worktree_uses_the_environment_of_the_workspace_but_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    workspace, worktree = tmp_path / "shop", tmp_path / "worktree"
    (worktree / "src").mkdir(parents=True)
    (worktree / "pyproject.toml").touch()
    environment(workspace, pytest_in_it=True)
    found = detect(worktree, workspace)
    assert found is not None
    command = found.test_command(["-x/test_a.py"], tmp_path / "report.xml")
    assert command.argv[0] == str(workspace / ".venv" / "bin" / "python")
    assert command.argv[4] == "./-x/test_a.py"
    assert command.environment["PYTHONPATH"] == f"{worktree}/src:{worktree}"


def test_npm_without_a_test_script_is_said(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}')
    looked: list[str] = []
    assert detect_all(tmp_path, tmp_path, looked) == []
    assert looked == ["a test script in package.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"scripts": 3}', '{"scripts": null}'])
def test_a_broken_package_json_is_no_test(tmp_path: Path, text: str) -> None:
    (tmp_path / "package.json").write_text(text)
    assert detect_all(tmp_path, tmp_path) == []


def test_make_targets(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("VERSION := 1\n.PHONY: test\ntest: build\n\tgo\nlint ::\n\tx\nA = b:c\n")
    assert targets(tmp_path) == {"test", "lint"}


@pytest.mark.parametrize(("path", "yes"), [("a/b.py", True), ("/etc/passwd", False), ("a/../../b", False), ("", False)])
def test_paths_stay_inside(path: str, yes: bool) -> None:
    assert inside(path) is yes


def test_an_operand_is_no_option() -> None:
    assert operand("-rf") == "./-rf"
    assert operand("a.py") == "a.py"

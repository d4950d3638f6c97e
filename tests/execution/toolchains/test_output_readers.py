"""The output of test runners and linters is read: pure functions on realistic samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.execution.runners.toolchains import output_readers
from engine.execution.runners.toolchains.tool_table import (
    Finding,
    FinishedRun,
)
from engine.model import CheckResult

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" errors="2" failures="1" skipped="1" tests="5" time="1.234">
<testcase classname="tests.test_cart.TestCart" name="test_total[a-b.c]" time="0.100"/>
<testcase classname="tests.test_cart" name="test_tax" time="0.900"><failure message="1 == 2">…</failure></testcase>
<testcase classname="tests.test_cart" name="test_gift" time="0.010"><skipped message="later"/></testcase>
<testcase classname="tests.test_cart" name="test_db" time="0.020"><error message="failed on setup">…</error></testcase>
<testcase classname="" name="tests.test_broken" time="0.000"><error message="collection failure">…</error></testcase>
</testsuite></testsuites>"""


def finished_run(output: str = "", exit_code: int = 1, *, report: str = "", folder: Path = Path("/")) -> FinishedRun:
    return FinishedRun("tool", "tool test", output, exit_code, report, folder)


def read(reader: str, run: FinishedRun) -> CheckResult:
    check = output_readers.read_result(reader, run)
    assert check is not None
    return check


def test_junit_reports_have_node_ids(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("test_cart.py", "test_broken.py"):
        (tmp_path / "tests" / name).touch()
    check = read("junit", finished_run(report=JUNIT, folder=tmp_path))
    assert (check.passed, check.failed, check.errors, check.skipped, check.seconds) == (1, 1, 2, 1, 1.234)
    assert check.failing == ("tests/test_cart.py::test_tax", "tests/test_cart.py::test_db", "tests/test_broken.py")
    assert check.durations[:2] == (
        ("tests/test_cart.py::test_tax", 0.9),
        ("tests/test_cart.py::TestCart::test_total[a-b.c]", 0.1),
    )


@pytest.mark.parametrize(("exit_code", "errors"), [(5, 0), (3, 1), (-11, 1)])
def test_a_run_without_its_report_has_an_error(exit_code: int, errors: int) -> None:
    check = read("junit", finished_run(report="<testsuite", exit_code=exit_code))
    assert (check.passed, check.errors, check.green) == (0, errors, False)


def test_cargo_that_does_not_compile_is_an_error() -> None:
    check = read("cargo", finished_run("error[E0425]: cannot find value `x` in this scope\n --> src/lib.rs:1:1\n", 101))
    assert (check.passed, check.failed, check.errors) == (0, 0, 1)
    assert check.failing == ("error[E0425]: cannot find value `x` in this scope",)


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
    check = read("cargo", finished_run(CARGO, 101))
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
    check = read("go", finished_run(GO))
    assert (check.passed, check.failed, check.skipped, check.errors) == (2, 1, 1, 1)
    assert check.failing == ("example.com/shop/cart::TestTax/gift_1.5", "example.com/shop/broken")
    assert check.durations[0] == ("example.com/shop/cart::TestAdd", 0.1)


def test_go_vet_lines() -> None:
    findings = output_readers.read_findings(
        "vet", "# example.com/shop\n./cart.go:7:2: Printf format %d has arg x of wrong type\n"
    )
    assert [(finding.path, finding.line, finding.rule) for finding in findings] == [("cart.go", 7, "vet")]


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
    check = read("words", finished_run(f"\x1b[32m> shop@1.0.0 test\x1b[0m\n{output}"))
    assert (check.passed, check.failed, check.skipped) == counts
    assert check.failing == failing
    assert check.seconds == pytest.approx(seconds, abs=0.001)


def test_a_failed_command_with_passed_tests_is_an_error() -> None:
    check = read("words", finished_run("Tests:       2 passed, 2 total\n", 1))
    assert (check.passed, check.errors, check.green) == (2, 1, False)
    assert output_readers.read_result("words", finished_run("compiled with great success\n", 0)) is None


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

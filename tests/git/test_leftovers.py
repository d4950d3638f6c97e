"""Debugging and markers in lines, which of them can go, and which tests are in quarantine."""

from __future__ import annotations

from datetime import date

import pytest

from engine.git import Git
from engine.git.leftovers import QuarantinedTest, read_quarantined_tests, removable_lines, scan_line, without_lines
from tests.conftest import Repository


@pytest.mark.parametrize(
    ("path", "line", "kinds"),
    [
        ("a.txt", "<<<<<<< HEAD", ["conflict marker"]),
        ("a.txt", ">>>>>>> feature/x", ["conflict marker"]),
        ("a.rst", "=======", []),
        ("a.txt", "<<<<<<<< eight", []),
        ("shop/a.py", "    print(x)", ["debug print"]),
        ("shop/a.py", "    pprint(x)", []),
        ("shop/a.py", "    print(x, file=sys.stderr)", []),
        ("shop/cli.py", "    print(x)", []),
        ("scripts/a.py", "print(x)", []),
        ("tests/test_a.py", "print(x)", []),
        ("tests/test_a.py", "    breakpoint()", ["breakpoint"]),
        ("a.py", "import pdb; pdb.set_trace()", ["breakpoint"]),
        ("a.ts", "  console.log(x)", ["console.log"]),
        ("a.ts", "  console.error(x)", []),
        ("a.js", "  debugger;", ["debugger statement"]),
        ("a.test.js", "describe.only('x', () => {", [".only"]),
        ("a.rs", "    dbg!(x);", ["dbg!"]),
        ("a.go", "// TODO: fix", ["TODO"]),
        ("a.py", "x = 1  # FIXME later", ["FIXME"]),
        ("a.py", "todo = 'TODO'", []),
    ],
)
def test_debugging_markers_and_todos_in_a_line(path: str, line: str, kinds: list[str]) -> None:
    assert [hit.kind for hit in scan_line(path, line)] == kinds


def test_tests_in_quarantine(repository: Repository) -> None:
    skipped = 'import pytest\n@pytest.mark.skip(reason="quarantined until {day}")\n'
    names = [f"tests/test_{number:02}.py" for number in range(60)]
    files = {name: f"{skipped.format(day='2026-01-19')}def test_a():\n    pass\n" for name in names}
    files["ü b/test_c.py"] = (
        "class TestCart:\n    def test_0(self):\n        pass\n\n"
        '    @pytest.mark.skip(reason="quarantined until 2026-02-01")\n    async def test_1(self):\n        pass\n'
    )
    files["tests/test_other.py"] = (
        "TEXT = '@pytest.mark.skip(reason=\"quarantined until 2026-02-01\")'\ndef test_b():\n    pass\n"
    )
    head = repository.commit("tests", files)
    repository.commit("none", dict.fromkeys(files, "def test_a():\n    pass\n"))
    git = Git(repository.path)
    result = read_quarantined_tests(git, head)
    assert result[0] == QuarantinedTest("tests/test_00.py::test_a", date(2026, 1, 19))
    assert len(result) == 50, "there is an end to it"
    assert read_quarantined_tests(git, "HEAD") == ()
    repository.commit("one", {name: files[name] for name in ("ü b/test_c.py", "tests/test_other.py")})
    assert read_quarantined_tests(git, "HEAD") == (
        QuarantinedTest("ü b/test_c.py::TestCart::test_1", date(2026, 2, 1)),
    )


PYTHON = """\
import pdb
import os; breakpoint()
def a():
    breakpoint()
    if os.sep: pdb.set_trace()
    x = breakpoint(
    )
    import pdb; pdb.set_trace()
    breakpoint()  # why
"""


def test_python_loses_only_whole_statements() -> None:
    assert removable_lines("a.py", PYTHON, range(1, 10)) == [1, 4, 8]
    after = without_lines("a.py", "def a():\n    breakpoint()\n\ndef b():\n    pass\n", [2])
    assert after == "def a():\n    pass\n\ndef b():\n    pass\n"
    assert removable_lines("a.py", "def a(:\n    breakpoint()\n", [2]) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.js", "let a = 1;\nconsole.log(a);\ndebugger\n", [2, 3]),
        ("a.js", "if (a)\n  console.log(a);\nb();\n", []),
        ("a.js", "const f = () =>\n  console.log(1);\n", []),
        ("a.js", "a();\nconsole.log(`x\n`);\n", []),
        ("a.ts", "else\n  console.log(1)\n", []),
        ("a.js", "console.log(a)\n  .then(b);\n", []),
        ("a.rs", "let x = 1;\ndbg!(x);\nlet y = dbg!(x);\n", [2]),
        ("a.rb", "def a\n  binding.pry\n  b\nend\n", [2]),
    ],
)
def test_other_languages_are_judged_by_their_lines(path: str, text: str, expected: list[int]) -> None:
    assert removable_lines(path, text, range(1, 5)) == expected

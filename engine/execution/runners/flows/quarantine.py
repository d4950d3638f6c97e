"""The flow that skips unreliable tests until a day, so that they are not forgotten."""

from __future__ import annotations

import ast
import sys
from datetime import date
from typing import Annotated

from pydantic import AfterValidator, Field

from engine.execution.runners.flow import CannotRun, FlowError, FlowResult, Job, Place
from engine.execution.runners.flows.parameter_types import Line, ProjectFlow, TestId
from engine.execution.runners.flows.test_runs import find_toolchains, run_tests, toolchain_for
from engine.execution.runners.flows.wording import count, describe_check, in_project, join_names
from engine.execution.runners.toolchains.tool_table import is_inside
from engine.git.quarantine import UNTIL
from engine.plain_files import read_plain

MAX_TEST_FILE_BYTES = 5_000_000


def _check_day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


class Quarantine(ProjectFlow):
    """Puts `pytest.mark.skipif` with a date above each test, and runs the file."""

    name = "quarantine"
    label = "Quarantine unreliable tests"
    place = Place.CHANGE_SET
    tests: list[TestId] = Field(min_length=1, max_length=20, description="ids of the tests, as pytest names them")
    until: Annotated[Line, AfterValidator(_check_day)] = Field(
        description="the day on which they run again, such as 2026-12-07"
    )
    why: Line = Field(default="flaky", max_length=120, description="the reason, for example `flaky: failed 3 of 20`")

    def describe(self) -> str:
        return f"Skip {join_names(self.tests, 2)}{in_project(self.project)} until {self.until}"

    def run(self, job: Job) -> FlowResult:
        tool = toolchain_for(find_toolchains(job, self.project), self.tests)
        if tool.name != "pytest" or any(
            ".py::" not in test or not is_inside(test.partition("::")[0]) for test in self.tests
        ):
            raise FlowError("only pytest tests can be skipped until a date")
        until, marked = date.fromisoformat(self.until), []
        for test in self.tests:
            path, _, rest = test.partition("::")
            file = tool.folder / path
            try:
                text = read_plain(file, MAX_TEST_FILE_BYTES, follow=False).decode()
                after = add_skip_mark(text, rest.partition("[")[0].split("::"), until, self.why)
            except (OSError, ValueError, SyntaxError) as error:
                raise FlowError(f"{path} cannot be changed: {error!s}") from error
            if after is None:
                job.say(f"{test}: already has its own skip mark")
                continue
            file.write_bytes(after.encode())
            marked.append(test)
            job.say(f"{test} is skipped until {self.until}")
        if not marked:
            return FlowResult("Nothing changed: these tests are already in quarantine")
        done = f"{count(len(marked), 'test')} skipped until {self.until}"
        try:
            check = run_tests(job, tool, sorted({test.partition("::")[0] for test in marked}))
        except CannotRun as error:
            job.say(str(error))
            return FlowResult(f"{done}; not tested: {error.message}")
        facts = {"tests": marked, "until": self.until}
        return FlowResult(f"{done}; its file: {describe_check(check)}", check=check, facts=facts)


def add_skip_mark(text: str, names: list[str], until: date, why: str) -> str | None:
    """The text of a test file with a skip mark above one test, and the imports that the mark needs; None when the test
    has the mark already. `names` are the test's classes and its function. A mark whose day is over is replaced.

    Raises `ValueError` when there is no such test, `SyntaxError` when the file does not parse.
    """
    tree = ast.parse(text)
    node = _find_test(tree, names)
    rows = text.split("\n")
    newline = "\r" if rows[0].endswith("\r") else ""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    old = [decorator for decorator in node.decorator_list if UNTIL in ast.unparse(decorator)]
    if any(until.isoformat() in ast.unparse(decorator) for decorator in old):
        return None
    imports, day = _missing_imports(tree)
    quote = "'" if text.count("'") > text.count('"') else '"'
    reason = f"{why}; {UNTIL} {until.isoformat()}".replace("\\", "").replace(quote, "")
    indent = rows[first - 1][: len(rows[first - 1]) - len(rows[first - 1].lstrip())]
    condition = f"{day}.today() < {day}({until.year}, {until.month}, {until.day})"
    mark = f"@pytest.mark.skipif({condition}, reason={quote}{reason}{quote})"
    if len(indent + mark) > 100:
        parts = ["@pytest.mark.skipif(", f"    {condition},", f"    reason={quote}{reason}{quote},", ")"]
        mark = f"{newline}\n{indent}".join(parts)
    for decorator in reversed(old):
        del rows[decorator.lineno - 1 : decorator.end_lineno]
    rows.insert(first - 1, f"{indent}{mark}{newline}")
    after = "\n".join(_add_imports(rows, tree, imports, newline))
    ast.parse(after)
    return after


def _find_test(tree: ast.Module, names: list[str]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body: list[ast.stmt] = tree.body
    for name in names[:-1]:
        body = next(
            (statement.body for statement in body if isinstance(statement, ast.ClassDef) and statement.name == name), []
        )
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == names[-1]:
            return statement
    raise ValueError(f"there is no test {'::'.join(names)}")


def _missing_imports(tree: ast.Module) -> tuple[list[str], str]:
    """The lines to add, and the name of the class `date` in the file."""
    has_pytest, day, is_taken = False, "", False
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            has_pytest = has_pytest or any(name.name == "pytest" and not name.asname for name in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module == "datetime":
            day = next((name.asname or name.name for name in statement.names if name.name == "date"), day)
    for node in ast.walk(tree):
        names = [getattr(node, "name", None), getattr(node, "arg", None)]
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "date"
        is_taken = is_taken or stored or ("date" in names and not isinstance(node, (ast.alias, ast.keyword)))
    lines = [] if has_pytest else ["import pytest"]
    if not day:
        day = "_date" if is_taken else "date"
        lines.insert(0, "from datetime import date" + (" as _date" if is_taken else ""))
    return lines, day


def _add_imports(rows: list[str], tree: ast.Module, lines: list[str], newline: str) -> list[str]:
    """`rows` with import `lines` among the file's own: the standard library's first, pytest's after them."""
    present = [statement for statement in tree.body if isinstance(statement, (ast.Import, ast.ImportFrom))]
    future = [
        statement for statement in present if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    ]
    others = [statement for statement in present if statement not in future]
    begins = others[0].lineno - 1 if others else _row_after_docstring(tree, future)
    standard = [statement for statement in others if _is_standard(statement)]
    rows = list(rows)
    for line in reversed(lines):
        if line == "import pytest":
            at = (standard[-1].end_lineno or 0) if standard else begins
            blank = at < len(rows) and not rows[at].strip()
            space = [newline] if blank else [newline, newline]
            rows[at:at] = [*([newline] if standard else []), f"{line}{newline}", *([] if others else space)]
        else:
            before = [
                statement
                for statement in standard
                if isinstance(statement, ast.Import) or (statement.module or "") < "datetime"
            ]
            at = (before[-1].end_lineno or 0) if before else begins
            rows[at:at] = [f"{line}{newline}", *([] if standard else [newline])]
    if not others:
        rows[begins:begins] = [newline] if begins else []
    return rows


def _row_after_docstring(tree: ast.Module, future: list[ast.ImportFrom]) -> int:
    """The index of the row after the docstring and the imports from the future."""
    if future:
        return future[-1].end_lineno or 0
    if tree.body and ast.get_docstring(tree, clean=False) is not None:
        return tree.body[0].end_lineno or 0
    return 0


def _is_standard(statement: ast.Import | ast.ImportFrom) -> bool:
    name = statement.names[0].name if isinstance(statement, ast.Import) else statement.module or ""
    return name.partition(".")[0] in sys.stdlib_module_names and not (
        isinstance(statement, ast.ImportFrom) and statement.level
    )

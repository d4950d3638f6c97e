"""Reads the results that test runners print, with the formats of `tools.toml` (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from engine.execution.runners.toolchains.run_results import FinishedRun, broken_run, make_result, with_exit_code
from engine.execution.runners.toolchains.tool_table import TABLES
from engine.frozen import frozen
from engine.model import CheckResult

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OUTCOMES = {word: outcome for outcome, words in TABLES["outcomes"].items() for word in words}
"""The outcome of a test by the word that a runner prints for it."""

_Pattern = Annotated[re.Pattern[str], BeforeValidator(lambda parts: re.compile("".join(parts), re.M))]
"""A regular expression. In the table it is one text or several."""

_NEVER = re.compile("(?!)")


class PrintedFormat(BaseModel):
    """The printed output of a runner, described by regular expressions: a table [formats.NAME] of `tools.toml`.

    The expressions have these groups: `name` and `place` of a test; `what`, its outcome; `ms` and `seconds`; `passed`
    and other numbers of tests; `counts`, a text with several numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    total: _Pattern
    """The numbers of the whole run. Without a match, the output does not have this format."""
    sign: _Pattern = re.compile("")
    """A second expression that must match."""
    time: _Pattern = _NEVER
    """The time of the whole run."""
    test: _Pattern = _NEVER
    """One test that ran."""
    until: str = "\0"
    """The text up to which tests are read."""
    failing: _Pattern = _NEVER
    """One failing test."""
    only_ran: bool = False
    """Whether failing tests count only if they are among those that ran."""
    between: str = "\n"
    """The text between the parts of a name. In the id it becomes a space."""
    joint: str = ""
    """The text between place and name in the id."""
    test_reader: Literal["lines", "tap", "go"] = "lines"
    """How the tests are read: each by the expression `test`, or by what TAP or `go test -v` prints around them."""
    hidden: bool = False
    """Whether `words` does not try this format."""

    def test_id(self, match: re.Match[str]) -> str:
        """The id of a test, in one line: its place, if it has one, and its name."""
        parts = {group.rstrip("2"): value for group, value in match.groupdict().items() if value is not None}
        name = " ".join(line.strip() for line in parts["name"].splitlines()).replace(self.between, " ")
        return f"{parts['place']}{self.joint}{name}" if "place" in parts else name


_FORMATS = {name: PrintedFormat(**form) for name, form in TABLES["formats"].items()}
_COUNT = re.compile(r"(\d+) (\w+)")
_NUMBER_GROUPS = frozenset({"tests", *TABLES["outcomes"]})
_TIME_GROUPS = frozenset({"ms", "seconds"})


@frozen
class PrintedTest:
    """One test that ran, as its runner printed it."""

    id: str
    outcome: str = ""
    """A key of the table `outcomes`; "" if it is not printed."""
    seconds: float | None = None


def read_printed(name: str, run: FinishedRun) -> CheckResult | None:
    """The result that a run printed in the format `name`; the format `words` tries all of them. None if it is only
    known that the run succeeded."""
    names = [name] if name != "words" else [name for name, form in _FORMATS.items() if not form.hidden]
    text = _ANSI.sub("", run.output).replace("\r\n", "\n")
    check = next(filter(None, (_read_format(_FORMATS[name], run.tool, text) for name in names)), None)
    if check is not None:
        return with_exit_code(run, check)
    return None if name == "words" else broken_run(run)


def _read_format(form: PrintedFormat, tool: str, text: str) -> CheckResult | None:
    """The result that `tool` printed; None if its output does not have the format."""
    totals = list(form.total.finditer(text))
    if not totals or not form.sign.search(text):
        return None
    tests = list(_TEST_READERS[form.test_reader](form, text))
    failing = [test.id for outcome in ("failed", "errors") for test in tests if test.outcome == outcome]
    listed = [form.test_id(match) for match in form.failing.finditer(text)]
    ran = {test.id: test for test in tests}
    failing += [test for test in listed if not form.only_ran or test in ran]
    durations = {test.id: test.seconds for test in tests if test.seconds is not None}
    counts = _read_counts(totals) or Counter(test.outcome for test in ran.values())
    seconds = sum(map(_read_seconds, [*totals, *form.time.finditer(text)])) or sum(durations.values())
    return make_result(tool, counts, seconds=seconds, failing=failing, durations=durations)


def _read_counts(totals: Iterable[re.Match[str]]) -> Counter[str]:
    """The number of tests by outcome; empty if the totals have no numbers."""
    counts: Counter[str] = Counter()
    for group, value in ((group, value) for total in totals for group, value in total.groupdict("0").items()):
        if group == "counts":
            counts.update({_OUTCOMES.get(word, ""): int(number) for number, word in _COUNT.findall(value)})
        elif (name := group.rstrip("2")) in _NUMBER_GROUPS:
            counts[name] += int(value)
    if "tests" in counts:
        counts["passed"] = max(0, counts["tests"] - counts["failed"] - counts["errors"] - counts["skipped"])
    return counts


def _read_seconds(match: re.Match[str]) -> float:
    took = match.groupdict()
    return float(took.get("ms") or 0) / 1000 + float(took.get("seconds") or 0)


# -- The tests that ran ----------------------------------------------------------------------------------------------


def _read_test_lines(form: PrintedFormat, text: str) -> Iterator[PrintedTest]:
    """Each match of `test` is a test."""
    for match in form.test.finditer(text.partition(form.until)[0]):
        groups = match.groupdict()
        seconds = None if _TIME_GROUPS.isdisjoint(groups) else _read_seconds(match)
        yield PrintedTest(form.test_id(match), _OUTCOMES.get(groups.get("what", ""), ""), seconds)


_TAP_LINE = re.compile(r"^(?P<indent> *)(?P<not>not )?ok \d+(?: - (?P<name>.*?))?(?P<skip> # (?:SKIP|TODO).*)?$", re.I)
_TAP_TIME = re.compile(r"^ *duration_ms: (?P<ms>[\d.]+)")


def _read_tap_tests(form: PrintedFormat, text: str) -> Iterator[PrintedTest]:
    """The time of a test follows its line. The line of a suite comes after those of its tests, which are indented more,
    and is left out."""
    depth, leaf = 0, PrintedTest("")
    for line in text.splitlines():
        if match := _TAP_LINE.match(line):
            if leaf.id:
                yield leaf
            indent = len(match["indent"])
            name = (match["name"] or "").strip() if indent >= depth else ""
            leaf = PrintedTest(name, "failed" if match["not"] and not match["skip"] else "")
            depth = indent
        elif time := _TAP_TIME.match(line):
            leaf = replace(leaf, seconds=_read_seconds(time))
    if leaf.id:
        yield leaf


_GO_TEST = re.compile(r"^ *--- (?P<what>PASS|FAIL|SKIP): (?P<name>.+) \((?P<seconds>[\d.]+)s\)$")


def _read_go_tests(form: PrintedFormat, text: str) -> Iterator[PrintedTest]:
    """The tests of a package come before its `ok` or `FAIL` line. Ids are `package::TestName`. A package that fails
    without a failed test has an error."""
    pending: dict[str, re.Match[str]] = {}
    for line in text.splitlines():
        if match := _GO_TEST.match(line):
            pending[match["name"]] = match
        elif package := form.total.match(line):
            yield from _go_tests_of(package["package"], pending)
            if package["what"] == "FAIL" and not any(test["what"] == "FAIL" for test in pending.values()):
                yield PrintedTest(package["package"], "errors")
            pending = {}


def _go_tests_of(package: str, tests: Mapping[str, re.Match[str]]) -> Iterator[PrintedTest]:
    """The tests of a package. One with subtests is left out, unless it failed and none of its subtests did."""
    parents = {name.rpartition("/")[0] for name in tests}
    failed = [name for name, match in tests.items() if match["what"] == "FAIL"]
    for name, match in tests.items():
        if name not in parents:
            yield PrintedTest(f"{package}::{name}", _OUTCOMES[match["what"]], _read_seconds(match))
        elif match["what"] == "FAIL" and not any(other.startswith(f"{name}/") for other in failed):
            yield PrintedTest(f"{package}::{name}", "failed")


_TEST_READERS: Mapping[str, Callable[[PrintedFormat, str], Iterator[PrintedTest]]] = {
    "lines": _read_test_lines, "tap": _read_tap_tests, "go": _read_go_tests,
}  # fmt: skip

# -- The text about failing tests ------------------------------------------------------------------------------------

_HEADING = re.compile(
    r"^\s*(?:not ok \d+ - |ok \d+ - |# |[●✖✗✕×✔✓] |--- (?:FAIL|PASS|SKIP): |=== RUN\s+|---- |FAIL\s+|\d+\) )"
)
"""The beginning of a line after which a runner prints about one test."""


def read_failures(output: str, failing: Iterable[str]) -> Mapping[str, str]:
    """The printed text about each of the tests `failing`; "" if there is none. It goes from each heading that names the
    test to the next heading."""
    named = {name: re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in failing}
    texts = dict.fromkeys(named, "")
    about: list[str] = []
    for line in output.splitlines():
        if _HEADING.match(line):
            about = [name for name, pattern in named.items() if pattern.search(line)]
        for name in about:
            texts[name] += f"{line}\n"
    return texts

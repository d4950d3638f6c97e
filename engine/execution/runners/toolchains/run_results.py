"""Reads the results of finished test runs, from the reports that test runners write and from what they print (pure).

Reports are JUnit's XML of pytest and PHPUnit, and the JSON of RSpec. `tools.toml` has the formats of what is printed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from engine.execution.runners.toolchains import TOOL_TABLES
from engine.frozen import frozen
from engine.model import CheckResult

if TYPE_CHECKING:
    from xml.etree import ElementTree

MAX_FAILING_IDS = 200
"""Maximum number of failing tests of a run that are kept by id. The numbers of tests are always complete."""

_ERROR_SIGNS = (
    re.compile(r"(?:\[ERROR\] |e: )?(?:file://)?(?P<sentence>[\w./+@-]*\.\w+(?::\[?|\()\d+[:,)\]].*)"),
    re.compile(r"(?i)(?P<sentence>.*\b(?:error|exception|failed|cannot)\b.*)"),
)
"""Match a line that says why a command failed, the surest first: it begins with a place in a file, as compilers write
it, or it has a word for a failure."""

_SAYS_NOTHING = re.compile(
    r"(?i)(?:npm )?\W*(?:warn(?:ing)?\b|w: )|.*?[:)] warning\b|npm (?:ERR!|error\b)|make(?:\[\d+\])?: \*\*\*"
)
"""Matches the line of a warning, and what npm and make say of a command that failed."""

_USAGE_ERRORS = {2: "collection failed", 3: "pytest crashed", 4: "pytest did not understand its arguments"}
"""What an exit code of pytest without a report means."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""Matches the colours of printed output."""

_OUTCOMES = {word: outcome for outcome, words in TOOL_TABLES["outcomes"].items() for word in words}
"""The outcome of a test by the word that a runner prints for it."""

_Pattern = Annotated[re.Pattern[str], BeforeValidator(lambda parts: re.compile("".join(parts), re.M))]
"""A regular expression. In the table it is one text or several."""

_NEVER = re.compile("(?!)")
"""Matches nothing."""

_COUNT = re.compile(r"(\d+) (\w+)")
"""Matches a number of tests and their outcome, as in `3 passed`."""

_NUMBER_GROUPS = frozenset({"tests", *TOOL_TABLES["outcomes"]})
_TIME_GROUPS = frozenset({"ms", "seconds"})
"""The groups of `PrintedFormat` that are numbers of tests, and those that are times."""

_TAP_LINE = re.compile(r"^(?P<indent> *)(?P<not>not )?ok \d+(?: - (?P<name>.*?))?(?P<skip> # (?:SKIP|TODO).*)?$", re.I)
_TAP_TIME = re.compile(r"^ *duration_ms: (?P<ms>[\d.]+)")
"""The line of one test in TAP, and that of its time."""

_GO_TEST = re.compile(r"^ *--- (?P<what>PASS|FAIL|SKIP): (?P<name>.+) \((?P<seconds>[\d.]+)s\)$")
"""The line of one test in the output of `go test -v`."""

_HEADING = re.compile(
    r"^\s*(?:not ok \d+ - |ok \d+ - |# |[●✖✗✕×✔✓] |--- (?:FAIL|PASS|SKIP): |=== RUN\s+|---- |FAIL\s+|\d+\) )"
)
"""The beginning of a line after which a runner prints about one test."""


# -- results of all runs


@frozen
class FinishedRun:
    """The output of a run that ended."""

    tool: str
    """The name of the tool in its result."""
    title: str
    """The name of its command on screens."""
    output_format: str
    """One of reports, one of printed output, or `words`, which tries all of printed output."""
    output: str
    exit_code: int
    report: str
    """The text of its report, "" without one."""
    folder: Path
    """The folder to which test ids are relative."""


def read_result(run: FinishedRun) -> CheckResult:
    """The result of a run. If the run broke before any test, `errors` is at least 1 and `passed` is 0."""
    check = _REPORT_READERS.get(run.output_format, _read_printed)(run)
    if check is not None:
        return check
    if run.exit_code and run.output_format != "words":
        return _add_error(run, _make_result(run.tool, {}))
    # The output names no tests, so only the exit code of the command is known.
    if not run.exit_code:
        return replace(_make_result(run.title, {"passed": 1}), counted=False)
    check = _make_result(run.title, {"failed": 1}, failing=[run.title])
    return replace(check, counted=False, error=_find_error(run))


def read_failures(run: FinishedRun, failing: Iterable[str]) -> Mapping[str, str]:
    """What the report of a run says about its failing tests, or what the run printed about each of the tests `failing`;
    "" if there is none."""
    reported = _read_reported_failures(run)
    return _read_printed_failures(run.output, failing) if reported is None else reported


# -- reports


def _read_junit(run: FinishedRun) -> CheckResult:
    """Read pytest's JUnit report, with pytest's own node ids. If it cannot be read, the run broke. Then the result has
    one error, which is the meaning of the exit code."""
    root = _parse_xml(run.report)
    if root is None:
        reason = _USAGE_ERRORS.get(run.exit_code, f"pytest ended with code {run.exit_code} and no report")
        check = _make_result(run.tool, {})
        return check if run.exit_code == 5 else replace(check, errors=1, error=reason)
    return _read_junit_cases(run, root)


def _read_phpunit(run: FinishedRun) -> CheckResult | None:
    """Read phpunit's JUnit report. Ids are `Class::method`, followed by the name of the data set if there is one."""
    root = _parse_xml(run.report)
    return _read_junit_cases(run, root) if root is not None else None


def _read_rspec(run: FinishedRun) -> CheckResult | None:
    """Read RSpec's JSON report. Ids are those of RSpec (`./spec/cart_spec.rb[1:2]`)."""
    report = _parse_rspec(run.report)
    if report is None:
        return None
    examples, summary = report["examples"], report["summary"]
    outcomes = {"passed": "passed", "failed": "failed", "pending": "skipped"}
    status = {str(example["id"]): str(example["status"]) for example in examples}
    counts = Counter(outcomes[outcome] for outcome in status.values() if outcome in outcomes)
    counts["errors"] = int(summary.get("errors_outside_of_examples_count", 0))
    check = _make_result(
        run.tool,
        counts,
        failing=[name for name, outcome in status.items() if outcome == "failed"],
        durations={
            str(example["id"]): float(example.get("run_time") or 0)
            for example in examples
            if example["status"] != "pending"
        },
    )
    return replace(check, error="an error outside the examples") if counts["errors"] else check


def _parse_rspec(text: str) -> dict[str, Any] | None:
    """RSpec's report with its `examples` and its `summary`; None if it cannot be read."""
    try:
        report = json.loads(text)
        report["examples"] = [example for example in report["examples"] if example["id"] and example["status"]]
        return report if report["summary"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _read_junit_cases(run: FinishedRun, root: ElementTree.Element) -> CheckResult:
    """The result in the JUnit report of a run."""
    durations: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for case in root.iter("testcase"):
        node = _make_junit_id(case, run)
        durations[node] = durations.get(node, 0.0) + _parse_seconds(case.get("time"))
        tags = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
        # A test may have two entries, for its body and its teardown. The worse outcome counts.
        if tags and (tags[0] == "failure" or outcomes.get(node, "skipped") == "skipped"):
            outcomes[node] = tags[0]
    counts = Counter({"failure": "failed", "error": "errors"}.get(outcome, outcome) for outcome in outcomes.values())
    counts["passed"] = len(durations) - len(outcomes)
    return _make_result(
        run.tool,
        counts,
        failing=[node for node, outcome in outcomes.items() if outcome != "skipped"],
        durations={node: seconds for node, seconds in durations.items() if outcomes.get(node) != "skipped"},
    )


def _parse_xml(text: str) -> ElementTree.Element | None:
    """The root of an XML document; None if it cannot be read."""
    from xml.etree import ElementTree  # not before the first report

    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None


def _make_junit_id(case: ElementTree.Element, run: FinishedRun) -> str:
    """The id of a case. PHPUnit names its class, see `_read_phpunit`. For pytest it is the node id: `classname` has the
    file and the classes, separated by dots. Which part is the file is found by looking for an existing one."""
    name = case.get("name", "")
    if run.output_format == "phpunit" and (owner := case.get("class")):  # of pytest, it may be a property of a test
        return f"{owner}::{name}"
    parts = [part for part in case.get("classname", "").split(".") if part]
    if not parts:  # a file that could not be collected, whose name is the dotted module
        dotted = name.replace(".", "/") + ".py"
        return dotted if (run.folder / dotted).is_file() else name
    for count in range(len(parts), 0, -1):
        file = "/".join(parts[:count]) + ".py"
        if (run.folder / file).is_file():
            return "::".join([file, *parts[count:], name])
    return "::".join([case.get("file") or ".".join(parts), name])


def _parse_seconds(text: str | None) -> float:
    """The seconds in an attribute; 0 if it is missing or no number."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


_REPORT_READERS: Mapping[str, Callable[[FinishedRun], CheckResult | None]] = {
    "junit": _read_junit, "phpunit": _read_phpunit, "rspec": _read_rspec,
}  # fmt: skip
"""The reader of each format of reports. It returns None if the run has no report that can be read."""


def _read_reported_failures(run: FinishedRun) -> Mapping[str, str] | None:
    """The text about each failing test; None if the run has no report that can be read."""
    root = _parse_xml(run.report)
    if root is not None:
        texts: dict[str, str] = {}
        for case in root.iter("testcase"):
            for failure in (*case.findall("failure"), *case.findall("error")):
                node = _make_junit_id(case, run)
                texts[node] = f"{texts.get(node, '')}{failure.get('message') or ''}\n{failure.text or ''}\n"
        return texts
    report = _parse_rspec(run.report)
    if report is None:
        return None
    return {example["id"]: str((example.get("exception") or {}).get("message", "")) for example in report["examples"]}


# -- printed output


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
    test: _Pattern = _NEVER
    """One test that ran."""
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

    def make_id(self, match: re.Match[str]) -> str:
        """The id of a test, in one line: its place, if it has one, and its name."""
        parts = {group.rstrip("2"): value for group, value in match.groupdict().items() if value is not None}
        name = " ".join(line.strip() for line in parts["name"].splitlines()).replace(self.between, " ")
        return f"{parts['place']}{self.joint}{name}" if "place" in parts else name


_FORMATS = {name: PrintedFormat(**form) for name, form in TOOL_TABLES["formats"].items()}


@frozen
class PrintedTest:
    """One test that ran, as its runner printed it."""

    id: str
    outcome: str
    """A key of the table `outcomes`; "" if it is not printed."""
    seconds: float | None = None


def _read_printed(run: FinishedRun) -> CheckResult | None:
    """The result that a run printed; None if its output does not have the format."""
    tries_all = run.output_format == "words"
    formats = list(_FORMATS.values()) if tries_all else [_FORMATS[run.output_format]]
    text = _ANSI.sub("", run.output).replace("\r\n", "\n")
    check = next(filter(None, (_read_format(form, run.tool, text) for form in formats)), None)
    return None if check is None else _add_error(run, check)


def _read_format(form: PrintedFormat, tool: str, text: str) -> CheckResult | None:
    """The result that `tool` printed; None if its output does not have the format."""
    totals = list(form.total.finditer(text))
    if not totals or not form.sign.search(text):
        return None
    tests = list(_TEST_READERS[form.test_reader](form, text))
    failing = [test.id for outcome in ("failed", "errors") for test in tests if test.outcome == outcome]
    failing_ids = [form.make_id(match) for match in form.failing.finditer(text)]
    ran = {test.id: test for test in tests}
    failing += [test for test in failing_ids if not form.only_ran or test in ran]
    durations = {test.id: test.seconds for test in tests if test.seconds is not None and test.outcome != "skipped"}
    counts = _read_counts(totals) or Counter(test.outcome for test in ran.values())
    return _make_result(tool, counts, failing=failing, durations=durations)


def _read_counts(totals: Iterable[re.Match[str]]) -> Counter[str]:
    """The number of tests by outcome; empty if the totals have no numbers."""
    counts: Counter[str] = Counter()
    for group, value in chain.from_iterable(total.groupdict("0").items() for total in totals):
        if group == "counts":
            counts.update({_OUTCOMES.get(word, ""): int(number) for number, word in _COUNT.findall(value)})
        elif (name := group.rstrip("2")) in _NUMBER_GROUPS:
            counts[name] += int(value)
    if "tests" in counts:
        counts["passed"] = max(0, counts["tests"] - counts["failed"] - counts["errors"] - counts["skipped"])
    return counts


def _read_seconds(match: re.Match[str]) -> float:
    """The seconds in the groups `ms` and `seconds` of a match."""
    groups = match.groupdict()
    return float(groups.get("ms") or 0) / 1000 + float(groups.get("seconds") or 0)


def _read_test_lines(form: PrintedFormat, text: str) -> Iterator[PrintedTest]:
    """Each match of `test` is a test."""
    for match in form.test.finditer(text):
        groups = match.groupdict()
        seconds = None if _TIME_GROUPS.isdisjoint(groups) else _read_seconds(match)
        yield PrintedTest(form.make_id(match), _OUTCOMES.get(groups.get("what", ""), ""), seconds)


def _read_tap_tests(form: PrintedFormat, text: str) -> list[PrintedTest]:
    """The time of a test follows its line. The line of a suite comes after those of its tests, which are indented more,
    and is left out."""
    tests: list[PrintedTest] = []
    previous_indent = 0
    for line in text.splitlines():
        if match := _TAP_LINE.match(line):
            indent = len(match["indent"])
            is_suite = indent < previous_indent
            name = "" if is_suite else (match["name"] or "").strip()
            failed = "failed" if match["not"] else ""
            tests.append(PrintedTest(name, "skipped" if match["skip"] else failed))
            previous_indent = indent
        elif tests and (time := _TAP_TIME.match(line)):
            tests[-1] = replace(tests[-1], seconds=_read_seconds(time))
    return [test for test in tests if test.id]


def _read_go_tests(form: PrintedFormat, text: str) -> Iterator[PrintedTest]:
    """The tests of a package come before its `ok` or `FAIL` line. Ids are `package::TestName`. A test with subtests is
    left out, unless it failed and none of its subtests did. A package that fails without a failed test has an error."""
    pending: dict[str, re.Match[str]] = {}
    for line in text.splitlines():
        if match := _GO_TEST.match(line):
            pending[match["name"]] = match
        elif package := form.total.match(line):
            parents = {name.rpartition("/")[0] for name in pending}
            failed = [name for name, test in pending.items() if test["what"] == "FAIL"]
            for name, test in pending.items():
                test_id = f"{package['package']}::{name}"
                if name not in parents:
                    yield PrintedTest(test_id, _OUTCOMES[test["what"]], _read_seconds(test))
                elif name in failed and not any(other.startswith(f"{name}/") for other in failed):
                    yield PrintedTest(test_id, "failed")
            if package["what"] == "FAIL" and not failed:
                yield PrintedTest(package["package"], "errors")
            pending = {}


_TEST_READERS: Mapping[str, Callable[[PrintedFormat, str], Iterable[PrintedTest]]] = {
    "lines": _read_test_lines, "tap": _read_tap_tests, "go": _read_go_tests,
}  # fmt: skip


def _read_printed_failures(output: str, failing: Iterable[str]) -> Mapping[str, str]:
    """The printed text about each of the tests `failing`; "" if there is none. It goes from each heading that names the
    test to the next heading."""
    patterns = {name: re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in failing}
    texts = dict.fromkeys(patterns, "")
    current_tests: list[str] = []
    for line in output.splitlines():
        if _HEADING.match(line):
            current_tests = [name for name, pattern in patterns.items() if pattern.search(line)]
        for name in current_tests:
            texts[name] += f"{line}\n"
    return texts


# -- making results


def _make_result(
    tool: str,
    counts: Mapping[str, int],
    *,
    failing: Iterable[str] = (),
    durations: Mapping[str, float] = MappingProxyType({}),
) -> CheckResult:
    """Make a `CheckResult`. Its failing tests have no repeats, and its durations begin with the slowest."""
    slowest = sorted(durations.items(), key=lambda pair: (-pair[1], pair[0]))
    return CheckResult(
        tool=tool,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        errors=counts.get("errors", 0),
        failing=tuple(dict.fromkeys(failing))[:MAX_FAILING_IDS],
        durations=tuple((name, round(value, 4)) for name, value in slowest),
    )


def _add_error(run: FinishedRun, check: CheckResult) -> CheckResult:
    """Add what the command says of its failure to `check` if no test failed. Perhaps the code did not compile, a linter
    failed before the tests, or the coverage was too low. Without a test id for it, that is an error of its own."""
    if run.exit_code == 0 or check.failed:
        return check
    return replace(check, errors=check.errors or 1, error=_find_error(run))


def _find_error(run: FinishedRun) -> str:
    """The sentence in the output that probably says why the command failed, in at most 200 characters."""
    lines = [line.strip() for line in _ANSI.sub("", run.output).splitlines()]
    lines = [line for line in lines if line and not _SAYS_NOTHING.match(line)]
    last = lines[-1] if lines else f"{run.title} ended with {run.exit_code}"
    matches = (sign.match(line) for sign in _ERROR_SIGNS for line in lines)
    sentence = next((match["sentence"] for match in matches if match), last)
    return sentence.removeprefix(f"{run.folder}/")[:200]

"""Reads the results of tools from their reports, or if they write none, from their printed output.

The functions are pure. Printed output is read with the formats of `tools.toml`; the format `words` tries all of them. A
reader returns None if it does not recognise the output. Then only the exit code is known.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from xml.etree import ElementTree

from pydantic import BaseModel, BeforeValidator, ConfigDict

from engine.execution.runners.toolchains.tool_table import TABLES, Finding, FinishedRun
from engine.model import CheckResult

MAX_FAILING = 200
"""Maximum number of failing tests of a run that are kept by id. The numbers of tests are always complete."""

USAGE_ERRORS = {2: "collection failed", 3: "pytest crashed", 4: "pytest did not understand its arguments"}

_ERROR = re.compile(r"(?i)\b(?:error|exception|failed|cannot)\b")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OUTCOMES = {word: outcome for outcome, words in TABLES["outcomes"].items() for word in words}
"""The outcome of a test by the word that a runner prints for it."""


def read_result(name: str, run: FinishedRun) -> CheckResult | None:
    """Read the result of a run with the reader `name`. None if it is only known that the run succeeded."""
    if name in _REPORTS:
        return _REPORTS[name](run)
    if name == "words":
        visible = [*(name for name, form in _FORMATS.items() if not form.hidden), "go"]
        checks = (_read_printed(name, run) for name in visible)
        check = next((check for check in checks if check is not None), None)
        return None if check is None else _with_exit_code(run, check)
    check = _read_printed(name, run)
    return _broken_run(run) if check is None else _with_exit_code(run, check)


def make_result(
    tool: str,
    counts: Mapping[str, int],
    *,
    seconds: float = 0.0,
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
        seconds=round(seconds, 3),
        failing=tuple(dict.fromkeys(failing))[:MAX_FAILING],
        durations=tuple((name, round(value, 4)) for name, value in slowest),
    )


def uncounted_result(tool: str, title: str, exit_code: int) -> CheckResult:
    """The result of a command whose output names no tests, so that only its exit code is known."""
    counts = {"failed" if exit_code else "passed": 1}
    check = make_result(tool, counts, failing=[title] if exit_code else ())
    return replace(check, counted=False)


def _broken_run(run: FinishedRun) -> CheckResult | None:
    """The result of a run that printed no result. It has one error if the command failed. None if it succeeded."""
    nothing = make_result(run.tool, {})
    return _with_exit_code(run, nothing) if run.exit_code else None


def _with_exit_code(run: FinishedRun, check: CheckResult) -> CheckResult:
    """Add one error to `check` if the command failed although no test did. Perhaps the code did not compile, a linter
    failed before the tests, or the coverage was too low."""
    if run.exit_code == 0 or check.failed or check.errors:
        return check
    lines = [line.strip() for line in run.output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or lines or [f"{run.title} ended with {run.exit_code}"]
    return replace(check, errors=1, failing=(errors[0][:200],))


# -- reports --------------------------------------------------------------------------------------------------------


def _read_junit(run: FinishedRun) -> CheckResult:
    """Read pytest's JUnit report, with pytest's own node ids. If it cannot be read, the run broke. Then the result has
    one error, and the meaning of the exit code takes the place of the id."""
    root = _parse_xml(run.report)
    if root is None:
        reason = USAGE_ERRORS.get(run.exit_code, f"pytest ended with code {run.exit_code} and no report")
        errors = 0 if run.exit_code == 5 else 1
        return make_result(run.tool, {"errors": errors}, failing=[reason])
    return _read_junit_cases(run.tool, root, lambda case: _pytest_id(case, run.folder))


def _read_phpunit(run: FinishedRun) -> CheckResult | None:
    """Read phpunit's JUnit report. Ids are `Class::method`, followed by the name of the data set if there is one."""
    root = _parse_xml(run.report)
    return _read_junit_cases(run.tool, root, _method_id) if root is not None else _broken_run(run)


def _read_rspec(run: FinishedRun) -> CheckResult | None:
    """Read RSpec's JSON report. Ids are those of RSpec (`./spec/cart_spec.rb[1:2]`)."""
    report = _parse_rspec(run.report)
    if report is None:
        return _broken_run(run)
    examples, summary = report
    outcomes = {"passed": "passed", "failed": "failed", "pending": "skipped"}
    status = {str(example["id"]): str(example["status"]) for example in examples}
    counts = Counter(outcomes[outcome] for outcome in status.values() if outcome in outcomes)
    counts["errors"] = outside = int(summary.get("errors_outside_of_examples_count", 0))
    failing = [name for name, outcome in status.items() if outcome == "failed"]
    return make_result(
        run.tool,
        counts,
        seconds=float(summary.get("duration", 0)),
        failing=failing or (["an error outside the examples"] if outside else []),
        durations={str(example["id"]): float(example.get("run_time") or 0) for example in examples},
    )


_REPORTS: Mapping[str, Callable[[FinishedRun], CheckResult | None]] = {
    "junit": _read_junit, "phpunit": _read_phpunit, "rspec": _read_rspec,
}  # fmt: skip


def _parse_rspec(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    try:
        report = json.loads(text)
        examples = [example for example in report["examples"] if example["id"] and example["status"]]
        return (examples, report["summary"]) if report["summary"] else None
    except (ValueError, KeyError, TypeError):
        return None


_HEADING = re.compile(
    r"^\s*(?:not ok \d+ - |ok \d+ - |# |[●✖✗✕×✔✓] |--- (?:FAIL|PASS|SKIP): |=== RUN\s+|---- |FAIL\s+|\d+\) )"
)
"""The beginning of a line after which a runner prints about one test."""


def failure_texts(run: FinishedRun, failing: tuple[str, ...]) -> Mapping[str, str]:
    """The output about each of the tests `failing`; "" if there is none.

    It comes from the report. For runners that only print, it is the text from each heading that names the test to the
    next heading.
    """
    root = _parse_xml(run.report)
    if root is not None:
        return _read_junit_failures(root, run.folder)
    report = _parse_rspec(run.report)
    if report is not None:
        return {example["id"]: str((example.get("exception") or {}).get("message", "")) for example in report[0]}
    named = {name: re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in failing}
    texts = dict.fromkeys(failing, "")
    about: list[str] = []
    for line in run.output.splitlines():
        if _HEADING.match(line):
            about = [name for name, pattern in named.items() if pattern.search(line)]
        for name in about:
            texts[name] += f"{line}\n"
    return texts


def _read_junit_failures(root: ElementTree.Element, folder: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for case in root.iter("testcase"):
        for failure in (*case.findall("failure"), *case.findall("error")):
            node = _method_id(case) if case.get("class") else _pytest_id(case, folder)
            texts[node] = f"{texts.get(node, '')}{failure.get('message') or ''}\n{failure.text or ''}\n"
    return texts


def _read_junit_cases(tool: str, root: ElementTree.Element, name: Callable[[ElementTree.Element], str]) -> CheckResult:
    durations: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for case in root.iter("testcase"):
        node = name(case)
        durations[node] = durations.get(node, 0.0) + _seconds_attribute(case.get("time"))
        tags = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
        # A test may have two entries, for its body and its teardown. The worse outcome counts.
        if tags and (tags[0] == "failure" or outcomes.get(node, "skipped") == "skipped"):
            outcomes[node] = tags[0]
    counts = Counter({"failure": "failed", "error": "errors"}.get(outcome, outcome) for outcome in outcomes.values())
    counts["passed"] = len(durations) - len(outcomes)
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    return make_result(
        tool,
        counts,
        seconds=_seconds_attribute(suite.get("time")) if suite is not None else 0.0,
        failing=[node for node, outcome in outcomes.items() if outcome != "skipped"],
        durations={node: seconds for node, seconds in durations.items() if outcomes.get(node) != "skipped"},
    )


def _parse_xml(text: str) -> ElementTree.Element | None:
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None


def _method_id(case: ElementTree.Element) -> str:
    return f"{case.get('class') or case.get('classname', '')}::{case.get('name', '')}"


def _pytest_id(case: ElementTree.Element, folder: Path) -> str:
    """pytest's node id of a case. Its `classname` has the file and the classes, separated by dots. Which part is the
    file is found by looking for an existing one."""
    name, parts = case.get("name", ""), [part for part in case.get("classname", "").split(".") if part]
    if not parts:  # a file that could not be collected, whose name is the dotted module
        dotted = name.replace(".", "/") + ".py"
        return dotted if (folder / dotted).is_file() else name
    for count in range(len(parts), 0, -1):
        file = "/".join(parts[:count]) + ".py"
        if (folder / file).is_file():
            return "::".join([file, *parts[count:], name])
    return "::".join([case.get("file") or ".".join(parts), name])


def _seconds_attribute(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


# -- printed text ---------------------------------------------------------------------------------------------------


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
    hidden: bool = False
    """Whether `words` does not try this format."""

    def test_id(self, match: re.Match[str]) -> str:
        """The id of a test, in one line: its place, if it has one, and its name."""
        parts = {group.rstrip("2"): value for group, value in match.groupdict().items() if value is not None}
        name = " ".join(line.strip() for line in parts["name"].splitlines()).replace(self.between, " ")
        return f"{parts['place']}{self.joint}{name}" if "place" in parts else name


_FORMATS = {name: PrintedFormat(**form) for name, form in TABLES["formats"].items()}
_COUNT = re.compile(r"(\d+) (\w+)")
_TIME_GROUPS = frozenset({"ms", "seconds"})


def _read_printed(name: str, run: FinishedRun) -> CheckResult | None:
    """The result in the printed output of a runner; None if the output does not have the format `name`."""
    text = _ANSI.sub("", run.output).replace("\r\n", "\n")
    if name == "go":
        return _read_go(run.tool, text)
    form = _FORMATS[name]
    totals = list(form.total.finditer(text))
    if not totals or not form.sign.search(text):
        return None
    tests = [(form.test_id(match), match) for match in form.test.finditer(text.partition(form.until)[0])]
    outcomes = [(test, _OUTCOMES.get(match.groupdict().get("what", ""), "")) for test, match in tests]
    durations = {test: _read_seconds(match) for test, match in tests if not _TIME_GROUPS.isdisjoint(match.groupdict())}
    failing = [test for test, outcome in outcomes if outcome == "failed"]
    listed = [form.test_id(match) for match in form.failing.finditer(text)]
    failing += [test for test in listed if not form.only_ran or test in dict(tests)]
    if name == "node" and re.search(r"^TAP version", text, re.M):
        failing, durations = _read_tap(text)
    counts = _read_counts(totals) or Counter(dict(outcomes).values())
    seconds = sum(map(_read_seconds, [*totals, *form.time.finditer(text)])) or sum(durations.values())
    return make_result(run.tool, counts, seconds=seconds, failing=failing, durations=durations)


def _read_counts(totals: Iterable[re.Match[str]]) -> Counter[str]:
    """The number of tests by outcome; empty if the totals have no numbers."""
    counts: Counter[str] = Counter()
    for group, value in ((group, value) for total in totals for group, value in total.groupdict("0").items()):
        if group == "counts":
            counts.update({_OUTCOMES.get(word, ""): int(number) for number, word in _COUNT.findall(value)})
        elif group not in _TIME_GROUPS:
            counts[group.rstrip("2")] += int(value)
    if "tests" in counts:
        counts["passed"] = max(0, counts["tests"] - counts["failed"] - counts["errors"] - counts["skipped"])
    return counts


def _read_seconds(match: re.Match[str]) -> float:
    took = match.groupdict()
    return float(took.get("ms") or 0) / 1000 + float(took.get("seconds") or 0)


_TAP_LINE = re.compile(r"^(?P<indent> *)(?P<not>not )?ok \d+(?: - (?P<name>.*?))?(?P<skip> # (?:SKIP|TODO).*)?$", re.I)
_TAP_TIME = re.compile(r"^ *duration_ms: (?P<ms>[\d.]+)")


def _read_tap(text: str) -> tuple[list[str], dict[str, float]]:
    """(failing tests, seconds of each test). The line of a suite comes after those of its tests, which are indented
    more. It is left out."""
    failing: list[str] = []
    durations: dict[str, float] = {}
    depth, leaf = 0, ""
    for line in text.splitlines():
        if match := _TAP_LINE.match(line):
            indent = len(match["indent"])
            leaf = (match["name"] or "").strip() if indent >= depth else ""
            if leaf and match["not"] and not match["skip"]:
                failing.append(leaf)
            depth = indent
        elif (time := _TAP_TIME.match(line)) and leaf:
            durations[leaf] = _read_seconds(time)
    return failing, durations


_GO_TEST = re.compile(r"^ *--- (?P<what>PASS|FAIL|SKIP): (?P<name>.+) \((?P<seconds>[\d.]+)s\)$")
_GO_PACKAGE = re.compile(r"^(?P<what>ok|FAIL)\s+(?P<package>\S+)(?:\s+(?P<seconds>[\d.]+)s)?(?:\s+[\[(].*)?$")


def _read_go(tool: str, text: str) -> CheckResult | None:
    """Read the output of `go test -v`, in which the tests of a package come before its `ok` or `FAIL` line. Ids are
    `package::TestName`."""
    tests: dict[str, re.Match[str]] = {}
    packages: list[re.Match[str]] = []
    broken_packages: list[str] = []
    pending: list[re.Match[str]] = []
    for line in text.splitlines():
        if match := _GO_TEST.match(line):
            pending.append(match)
        elif match := _GO_PACKAGE.match(line):
            packages.append(match)
            tests |= {f"{match['package']}::{test['name']}": test for test in pending}
            if match["what"] == "FAIL" and not any(test["what"] == "FAIL" for test in pending):
                broken_packages.append(match["package"])
            pending = []
    if not packages:
        return None
    parents = {name.rpartition("/")[0] for name in tests if "/" in name.partition("::")[2]}
    leaves = {name: test for name, test in tests.items() if name not in parents}
    failed = [name for name, test in tests.items() if test["what"] == "FAIL"]
    # A test with subtests counts as failed only if none of its subtests failed.
    failing = [name for name in failed if not any(subtest.startswith(f"{name}/") for subtest in failed)]
    counts = Counter(_OUTCOMES["pass" if test["what"] == "PASS" else test["what"]] for test in leaves.values())
    return make_result(
        tool,
        {**counts, "failed": len(failing), "errors": len(broken_packages)},
        seconds=sum(map(_read_seconds, packages)),
        failing=[*failing, *broken_packages],
        durations={name: _read_seconds(test) for name, test in leaves.items()},
    )


# -- linters --------------------------------------------------------------------------------------------------------

_CLIPPY_HEAD = re.compile(r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$")
_CLIPPY_PLACE = re.compile(r"^ *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+$")
_CLIPPY_RULE = re.compile(
    r"index\.html#(?P<clippy>\w+)|`#\[(?:warn|deny)\((?P<lint>[\w:]+)\)\]`|`-[DW] (?P<flag>[\w:-]+)`"
)


def read_findings(name: str, output: str) -> list[Finding]:
    """The findings in the output of a linter or type checker with the format `name`; [] if it printed no position."""
    return list(_read_clippy(output) if name == "clippy" else _read_lines(TABLES["findings"][name], output))


def _read_lines(form: Mapping[str, Any], output: str) -> Iterator[Finding]:
    pattern, heading = "".join(form["line"]), form.get("heading", "(?!)")
    file = ""
    for line in output.splitlines():
        if match := re.match(pattern, line):
            groups = match.groupdict()
            path, message = groups.get("path", file).removeprefix("./"), groups.get("message", form.get("message", ""))
            rule = (groups.get("rule") or form["rule"]).rstrip(":")
            yield Finding(path, int(groups.get("line", 0)), rule, message.strip())
        elif match := re.match(heading, line):
            file = match["path"].strip()


def _read_clippy(output: str) -> Iterator[Finding]:
    """Read each `warning:` or `error:` block with a position as one finding. The rule is in its link or its note."""
    findings: dict[Finding, None] = {}  # --all-targets prints the findings of a library again for its tests
    for block in re.split(r"\n(?=(?:warning|error)(?:\[\w+\])?: )", output):
        lines = block.splitlines()
        head = _CLIPPY_HEAD.match(lines[0]) if lines else None
        place = next(filter(None, map(_CLIPPY_PLACE.match, lines)), None)
        if head and place:
            rule = _CLIPPY_RULE.search(block)
            name = (rule["clippy"] or rule["lint"] or rule["flag"]) if rule else (head["code"] or head["level"])
            name = name.replace("-", "_").removeprefix("clippy::")
            findings[Finding(place["path"], int(place["line"]), name, head["message"])] = None
    yield from findings

"""Reads the reports that test runners write: JUnit's XML of pytest and PHPUnit, and the JSON of RSpec (pure)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from engine.execution.runners.toolchains.run_results import FinishedRun, broken_run, make_result
from engine.model import CheckResult

USAGE_ERRORS = {2: "collection failed", 3: "pytest crashed", 4: "pytest did not understand its arguments"}


def read_failures(run: FinishedRun) -> Mapping[str, str] | None:
    """The text about each failing test; None if the run has no report that can be read."""
    root = _parse_xml(run.report)
    if root is not None:
        return _read_junit_failures(root, run.folder)
    report = _parse_rspec(run.report)
    if report is None:
        return None
    return {example["id"]: str((example.get("exception") or {}).get("message", "")) for example in report[0]}


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
    return _read_junit_cases(run.tool, root, _method_id) if root is not None else broken_run(run)


def _read_rspec(run: FinishedRun) -> CheckResult | None:
    """Read RSpec's JSON report. Ids are those of RSpec (`./spec/cart_spec.rb[1:2]`)."""
    report = _parse_rspec(run.report)
    if report is None:
        return broken_run(run)
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


def _parse_rspec(text: str) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    try:
        report = json.loads(text)
        examples = [example for example in report["examples"] if example["id"] and example["status"]]
        return (examples, report["summary"]) if report["summary"] else None
    except (ValueError, KeyError, TypeError):
        return None


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


REPORT_READERS: Mapping[str, Callable[[FinishedRun], CheckResult | None]] = {
    "junit": _read_junit, "phpunit": _read_phpunit, "rspec": _read_rspec,
}  # fmt: skip
"""The reader of each format of reports. It returns None if it is only known that the run succeeded."""

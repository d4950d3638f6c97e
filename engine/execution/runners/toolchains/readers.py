"""Reading what a run of tests left: reports for machines first, else what was printed for people.

Pure functions over an `Ended`. A reader that does not recognise what it sees gives None; then only the exit code is
known. `words` tries every one that reads printed text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from engine.execution.runners.toolchains.missing import failure_texts
from engine.execution.runners.toolchains.shapes import Ended, result
from engine.model import CheckResult

USAGE_ERRORS = {2: "collection failed", 3: "pytest crashed", 4: "pytest did not understand its arguments"}


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NODE_TOTAL = re.compile(
    r"^[#ℹ] (?P<word>tests|pass|fail|cancelled|skipped|todo|duration_ms) (?P<number>[\d.]+)$", re.M
)
_TAP = re.compile(r"^(?P<indent> *)(?P<not>not )?ok \d+(?: - (?P<name>.*?))?(?P<skip> # (?:SKIP|TODO).*)?$", re.I)
_TAP_TIME = re.compile(r"^ *duration_ms: (?P<ms>[\d.]+)")
_SPEC = re.compile(r"^(?P<indent> *)(?P<mark>[✔✖﹣]) (?P<name>.+?) \((?P<ms>[\d.]+)ms\)(?P<skip> # .*)?$")
_JEST_TOTAL = re.compile(r"^Tests: +(?P<counts>.*\d+ total)$", re.M)
_VITEST_TOTAL = re.compile(r"^ +Tests  +(?P<counts>.*)\(\d+\)$", re.M)
_COUNT = re.compile(r"(?P<number>\d+) (?P<word>passed|failed|skipped|todo)")
_JEST_FAIL = re.compile(r"^  ● (?P<name>.+)$", re.M)
_VITEST_FAIL = re.compile(r"^ FAIL  (?P<name>.+)$", re.M)
_TIMED = re.compile(r"^ *(?P<mark>[✓✔√✕×]) (?P<name>.+?) \(?(?P<ms>[\d.]+) ?ms\)?$", re.M)
_SECONDS = re.compile(r"^(?:Time: +|   Duration  )(?P<number>[\d.]+) ?(?P<unit>m?s)", re.M)
_MOCHA_TOTAL = re.compile(
    r"^  (?P<number>\d+) (?P<word>passing|failing|pending)(?: \((?P<took>[\d.]+)(?P<unit>m?s)\))?$", re.M
)
_MOCHA_FAIL = re.compile(r"^  \d+\) (?P<suite>.+)\n(?P<rest>(?: {7}.+\n?)*)", re.M)
_PYTEST_TOTAL = re.compile(r"^=* ?(?P<counts>\d+ (?:passed|failed|skipped|error)[^=\n]*) in (?P<seconds>[\d.]+)s", re.M)
_PYTEST_COUNT = re.compile(r"(?P<number>\d+) (?P<word>passed|failed|skipped|errors?)")
_PYTEST_FAIL = re.compile(r"^(?:FAILED|ERROR) (?P<name>\S+)", re.M)


_CARGO_TEST = re.compile(r"^test (?P<name>.+?) (?:- should panic )?\.\.\. (?P<what>ok|FAILED|ignored)\b", re.M)
_CARGO_BARE = re.compile(r"^test (?P<name>\S.*?) (?:- should panic )?\.\.\. ")
_CARGO_TOTAL = re.compile(
    r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;"
    r".*?(?:finished in (?P<seconds>[\d.]+)s)?$",
    re.M,
)
_CARGO_LISTED = re.compile(r"^    (?P<name>\S.*)$")
_GO_TEST = re.compile(r"^ *--- (?P<what>PASS|FAIL|SKIP): (?P<name>.+) \((?P<seconds>[\d.]+)s\)$")
_GO_PACKAGE = re.compile(r"^(?P<what>ok|FAIL)\s+(?P<package>\S+)(?:\s+(?P<seconds>[\d.]+)s)?(?:\s+[\[(].*)?$")

_ERROR = re.compile(r"(?i)\b(?:error|exception|failed|cannot)\b")

TextReader = Callable[[str, str], CheckResult | None]
"""Takes the name that the result carries and what was printed; None when it is not this runner's."""


# -- reports --------------------------------------------------------------------------------------------------------


def junit(ended: Ended) -> CheckResult:
    """pytest's JUnit report as a result; ids are pytest's own node ids.

    Without a readable report the run broke: one error, and the exit code's meaning as the failing "id".
    """
    root = _xml(ended.report)
    if root is None:
        reason = USAGE_ERRORS.get(ended.exit_code, f"pytest ended with code {ended.exit_code} and no report")
        errors = 0 if ended.exit_code == 5 else 1
        return result(ended.tool, passed=0, failed=0, errors=errors, failing=[reason])
    return _cases(ended.tool, root, lambda case: _node_id(case, ended.folder))


def phpunit(ended: Ended) -> CheckResult | None:
    """phpunit's JUnit report; ids are `Class::method`, with the name of the data set where there is one."""
    root = _xml(ended.report)
    return _cases(ended.tool, root, _method) if root is not None else _broken(ended)


def _method(case: ElementTree.Element) -> str:
    return f"{case.get('class') or case.get('classname', '')}::{case.get('name', '')}"


def rspec(ended: Ended) -> CheckResult | None:
    """RSpec's JSON report; ids are its own (`./spec/cart_spec.rb[1:2]`)."""
    examples = _rspec(ended.report)
    if examples is None:
        return _broken(ended)
    status = {str(one["id"]): str(one["status"]) for one in examples}
    outside = int(json.loads(ended.report)["summary"].get("errors_outside_of_examples_count", 0))
    failing = [name for name, what in status.items() if what == "failed"]
    return result(
        ended.tool,
        passed=sum(what == "passed" for what in status.values()),
        failed=len(failing),
        skipped=sum(what == "pending" for what in status.values()),
        errors=outside,
        seconds=float(json.loads(ended.report)["summary"].get("duration", 0)),
        failing=failing or (["an error outside the examples"] if outside else []),
        durations={str(one["id"]): float(one.get("run_time") or 0) for one in examples},
    )


def _rspec(report: str) -> list[dict[str, Any]] | None:
    try:
        found = json.loads(report)
        return [one for one in found["examples"] if one["id"] and one["status"]] if found["summary"] else None
    except (ValueError, KeyError, TypeError):
        return None


def texts(ended: Ended, failing: tuple[str, ...]) -> Mapping[str, str]:
    """What a finished run said about each of `failing`, "" where nothing is known."""
    if (root := _xml(ended.report)) is not None:
        said: dict[str, str] = {}
        for case in root.iter("testcase"):
            for bad in (*case.findall("failure"), *case.findall("error")):
                node = _method(case) if case.get("class") else _node_id(case, ended.folder)
                said[node] = f"{said.get(node, '')}{bad.get('message') or ''}\n{bad.text or ''}\n"
        return said
    if (examples := _rspec(ended.report)) is not None:
        return {one["id"]: str((one.get("exception") or {}).get("message", "")) for one in examples}
    return failure_texts(ended.output, failing)


def _cases(tool: str, root: ElementTree.Element, name: Callable[[ElementTree.Element], str]) -> CheckResult:
    durations: dict[str, float] = {}
    bad: dict[str, str] = {}
    skipped: set[str] = set()
    for case in root.iter("testcase"):
        node = name(case)
        durations[node] = durations.get(node, 0.0) + _number(case.get("time"))
        if case.find("failure") is not None:
            bad[node] = "failure"
        elif case.find("error") is not None:
            bad.setdefault(node, "error")
        elif case.find("skipped") is not None:
            skipped.add(node)
    failed = sum(kind == "failure" for kind in bad.values())
    skipped -= bad.keys()
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    return result(
        tool,
        passed=len(durations) - len(bad) - len(skipped),
        failed=failed,
        skipped=len(skipped),
        errors=len(bad) - failed,
        seconds=_number(suite.get("time")) if suite is not None else 0.0,
        failing=bad,
        durations={node: seconds for node, seconds in durations.items() if node not in skipped},
    )


def _xml(text: str) -> ElementTree.Element | None:
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None


def _node_id(case: ElementTree.Element, folder: Path) -> str:
    """`classname` is the dotted file and classes, which only the files themselves can tell apart."""
    name, parts = case.get("name", ""), [part for part in case.get("classname", "").split(".") if part]
    if not parts:  # a file that could not be collected: its name is the dotted module
        dotted = name.replace(".", "/") + ".py"
        return dotted if (folder / dotted).is_file() else name
    for count in range(len(parts), 0, -1):
        file = "/".join(parts[:count]) + ".py"
        if (folder / file).is_file():
            return "::".join([file, *parts[count:], name])
    return "::".join([case.get("file") or ".".join(parts), name])


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _broken(ended: Ended) -> CheckResult | None:
    """One error when a run broke before any test, None when all that is known is that it ended well."""
    return _settled(ended, result(ended.tool, passed=0, failed=0)) if ended.exit_code else None


def _settled(ended: Ended, found: CheckResult) -> CheckResult:
    """A run whose tests are well but whose command is not has one error: it did not compile, or a linter before it or
    a coverage limit after it said no."""
    if ended.exit_code == 0 or found.failed or found.errors:
        return found
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    said = [line for line in lines if _ERROR.search(line)] or lines or [f"{ended.title} ended with {ended.exit_code}"]
    return replace(found, errors=1, failing=(said[0][:200],))


# -- printed text ---------------------------------------------------------------------------------------------------


def words(ended: Ended) -> CheckResult | None:
    """What any known test runner printed, or None."""
    text = _plain(ended.output)
    found = next((check for reader in _TEXTS if (check := reader(ended.tool, text)) is not None), None)
    return None if found is None else _settled(ended, found)


def _plain(text: str) -> str:
    return _ANSI.sub("", text).replace("\r\n", "\n")


def _printed(reader: TextReader) -> Callable[[Ended], CheckResult | None]:
    """A reader of one runner's printed text; without any sign of it the run broke."""

    def read(ended: Ended) -> CheckResult | None:
        found = reader(ended.tool, _plain(ended.output))
        return _broken(ended) if found is None else _settled(ended, found)

    return read


_UNITTEST = re.compile(
    r"^(?P<method>\w+) \((?P<id>[\w.]+)\)(?:\n.+)?? \.\.\. (?P<what>ok|FAIL|ERROR|skipped|expected)", re.M
)
_UNITTEST_BAD = re.compile(r"^(?P<what>FAIL|ERROR): (?P<method>\w+) \((?P<id>[\w.]+)\)", re.M)
_UNITTEST_TOTAL = re.compile(
    r"^Ran (?P<tests>\d+) tests? in (?P<seconds>[\d.]+)s\s+(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>.*)\))?", re.M
)


def _unittest(tool: str, text: str) -> CheckResult | None:
    total = next(reversed(list(_UNITTEST_TOTAL.finditer(text))), None)
    if total is None:
        return None
    counts = {word: int(number) for word, number in re.findall(r"(\w+)=(\d+)", total["counts"] or "")}
    failed, errors, skipped = (counts.get(word, 0) for word in ("failures", "errors", "skipped"))
    return result(
        tool,
        passed=max(0, int(total["tests"]) - failed - errors - skipped),
        failed=failed,
        skipped=skipped,
        errors=errors,
        seconds=float(total["seconds"]),
        failing=[_unittest_id(match["method"], match["id"]) for match in _UNITTEST_BAD.finditer(text)],
    )


def _unittest_id(method: str, place: str) -> str:
    """Since Python 3.11 the place ends with the method; a module that cannot be imported is named by the loader."""
    if place.startswith("unittest.loader._FailedTest"):
        return method
    return place if place.endswith(f".{method}") else f"{place}.{method}"


_MINITEST_TOTAL = re.compile(
    r"^(?P<runs>\d+) (?:runs|tests), \d+ assertions, (?P<failures>\d+) failures, (?P<errors>\d+) errors"
    r"(?:, \d+ pendings, (?P<omissions>\d+) omissions)?(?:, (?P<skips>\d+) (?:skips|notifications))?",
    re.M,
)
_MINITEST_BAD = re.compile(r"^ *\d+\) (?:Failure|Error):\n(?P<id>[\w:]+#\S+)", re.M)
_MINITEST_TIMED = re.compile(r"^(?P<id>[\w:]+#\S+) = (?P<seconds>[\d.]+) s = (?P<mark>[.FES])", re.M)
_FINISHED = re.compile(r"^Finished in (?P<seconds>[\d.]+)", re.M)


def _minitest(tool: str, text: str) -> CheckResult | None:
    if not (total := _MINITEST_TOTAL.search(text)):
        return None
    failed, errors = int(total["failures"]), int(total["errors"])
    skipped = int(total["omissions"] or total["skips"] or 0)
    took = _FINISHED.search(text)
    return result(
        tool,
        passed=max(0, int(total["runs"]) - failed - errors - skipped),
        failed=failed,
        skipped=skipped,
        errors=errors,
        seconds=float(took["seconds"]) if took else 0.0,
        failing=[match["id"] for match in _MINITEST_BAD.finditer(text)],
        durations={match["id"]: float(match["seconds"]) for match in _MINITEST_TIMED.finditer(text)},
    )


_GRADLE = re.compile(r"^clawpy-test\t(?P<what>SUCCESS|FAILURE|SKIPPED)\t(?P<id>[^\t\n]+)\t(?P<ms>\d+)$", re.M)


def _gradle(tool: str, text: str) -> CheckResult | None:
    tests = {match["id"].removesuffix("()"): match for match in _GRADLE.finditer(text)}
    if not tests:
        return None
    failing = [name for name, match in tests.items() if match["what"] == "FAILURE"]
    return result(
        tool,
        passed=sum(match["what"] == "SUCCESS" for match in tests.values()),
        failed=len(failing),
        skipped=sum(match["what"] == "SKIPPED" for match in tests.values()),
        seconds=sum(int(match["ms"]) for match in tests.values()) / 1000,
        failing=failing,
        durations={name: int(match["ms"]) / 1000 for name, match in tests.items()},
    )


_MAVEN_CLASS = re.compile(
    r"Tests run: (?P<run>\d+), Failures: (?P<failures>\d+), Errors: (?P<errors>\d+), Skipped: (?P<skipped>\d+), "
    r"Time elapsed: (?P<seconds>[\d.]+) ?s",
    re.M,
)
_MAVEN_TOTAL = re.compile(
    r"^(?:\[\w+\] )?Tests run: (?P<run>\d+), Failures: (?P<failures>\d+), Errors: (?P<errors>\d+), "
    r"Skipped: (?P<skipped>\d+) *$",
    re.M,
)
_MAVEN_BAD = re.compile(
    r"^(?:\[ERROR\] +)?(?:(?P<name>[\w.$]+)\.(?P<method>[\w$]+)|(?P<old>[\w$]+)\((?P<of>[\w.$]+)\))(?:\(\))?"
    r"(?: --)? +Time elapsed: [\d.]+ ?s(?:ec)? +<<< (?:FAILURE|ERROR)!",
    re.M,
)


def _maven(tool: str, text: str) -> CheckResult | None:
    totals = list(_MAVEN_TOTAL.finditer(text)) or list(_MAVEN_CLASS.finditer(text))
    if not totals:
        return None
    run, failed, errors, skipped = (
        sum(int(total[key]) for total in totals) for key in ("run", "failures", "errors", "skipped")
    )
    failing = [
        f"{match['name'] or match['of']}#{match['method'] or match['old']}" for match in _MAVEN_BAD.finditer(text)
    ]
    return result(
        tool,
        passed=max(0, run - failed - errors - skipped),
        failed=failed,
        skipped=skipped,
        errors=errors,
        seconds=sum(float(match["seconds"]) for match in _MAVEN_CLASS.finditer(text)),
        failing=failing,
    )


_MIX_TOTAL = re.compile(
    r"^(?:\d+ doctests?, )?(?P<tests>\d+) tests?, (?P<failures>\d+) failures?(?P<rest>(?:, \d+ \w+)*)$", re.M
)
_MIX_BAD = re.compile(r"^ +\d+\) test .*\n +(?P<id>\S+\.exs:\d+)$", re.M)


def _mix(tool: str, text: str) -> CheckResult | None:
    totals = list(_MIX_TOTAL.finditer(text))
    if not totals:
        return None
    failed = sum(int(total["failures"]) for total in totals)
    skipped = sum(
        int(number) for total in totals for number in re.findall(r"(\d+) (?:skipped|excluded)", total["rest"])
    )
    return result(
        tool,
        passed=max(0, sum(int(total["tests"]) for total in totals) - failed - skipped),
        failed=failed,
        skipped=skipped,
        seconds=sum(float(match["seconds"]) for match in _FINISHED.finditer(text)),
        failing=[match["id"] for match in _MIX_BAD.finditer(text)],
    )


_DOTNET = re.compile(
    r"^ +(?P<what>Passed|Failed|Skipped) (?P<id>\S.*?)(?: \[(?:< )?(?P<ms>[\d.]+) (?P<unit>m?s)\])?$", re.M
)
_DOTNET_TOTAL = re.compile(r"^ *(?:Total tests|Passed|Failed|Skipped): +\d+", re.M)


def _dotnet(tool: str, text: str) -> CheckResult | None:
    tests = {match["id"]: match for match in _DOTNET.finditer(text)}
    if not tests or not _DOTNET_TOTAL.search(text):
        return None
    failing = [name for name, match in tests.items() if match["what"] == "Failed"]
    durations = {name: float(match["ms"] or 0) / (1000 if match["unit"] != "s" else 1) for name, match in tests.items()}
    return result(
        tool,
        passed=sum(match["what"] == "Passed" for match in tests.values()),
        failed=len(failing),
        skipped=sum(match["what"] == "Skipped" for match in tests.values()),
        seconds=sum(durations.values()),
        failing=failing,
        durations=durations,
    )


_BUN = re.compile(r"^\((?P<what>pass|fail|skip|todo)\) (?P<name>.+?)(?: \[(?P<ms>[\d.]+)ms\])?$", re.M)
_BUN_TOTAL = re.compile(r"^Ran (?P<tests>\d+) tests? across", re.M)


def _bun(tool: str, text: str) -> CheckResult | None:
    if not _BUN_TOTAL.search(text):
        return None
    tests = {match["name"].replace(" > ", " "): match for match in _BUN.finditer(text)}
    failing = [name for name, match in tests.items() if match["what"] == "fail"]
    return result(
        tool,
        passed=sum(match["what"] == "pass" for match in tests.values()),
        failed=len(failing),
        skipped=sum(match["what"] in ("skip", "todo") for match in tests.values()),
        failing=failing,
        durations={name: float(match["ms"] or 0) / 1000 for name, match in tests.items()},
    )


def _cargo(tool: str, text: str) -> CheckResult | None:
    """The totals of every test binary, the names under `failures:`."""
    totals = list(_CARGO_TOTAL.finditer(text))
    if not totals:
        return None
    passed, failed, ignored = (sum(int(total[key]) for total in totals) for key in ("passed", "failed", "ignored"))
    failing = [match["name"] for match in _CARGO_TEST.finditer(text) if match["what"] == "FAILED"]
    failing += [name for name in _cargo_failures(text) if name not in failing]
    seconds = sum(float(total["seconds"] or 0) for total in totals)
    return result(tool, passed=passed, failed=failed, skipped=ignored, seconds=seconds, failing=failing)


def _cargo_failures(output: str) -> list[str]:
    """Names listed under `failures:`; tests that print something lose their `... FAILED` line."""
    names: list[str] = []
    listing = False
    for line in output.splitlines():
        if line == "failures:":
            listing = True
        elif listing and (match := _CARGO_LISTED.match(line)):
            names.append(match["name"].strip())
        elif line.strip():
            listing = False
    ran = {match["name"] for match in map(_CARGO_BARE.match, output.splitlines()) if match}
    return [name for name in names if name in ran]


def _go(tool: str, text: str) -> CheckResult | None:
    """A package's tests are the lines before its own `ok` or `FAIL` line; ids are `package::TestName`."""
    durations: dict[str, float] = {}
    outcome: dict[str, str] = {}
    broken: list[str] = []
    seconds = 0.0
    packages = 0
    tests: list[re.Match[str]] = []
    for line in text.splitlines():
        if match := _GO_TEST.match(line):
            tests.append(match)
        elif match := _GO_PACKAGE.match(line):
            packages += 1
            package = match["package"]
            for test in tests:
                outcome[f"{package}::{test['name']}"] = test["what"]
                durations[f"{package}::{test['name']}"] = float(test["seconds"])
            if match["what"] == "FAIL" and not any(test["what"] == "FAIL" for test in tests):
                broken.append(package)
            seconds += float(match["seconds"] or 0)
            tests = []
    if not packages:
        return None
    parents = {name.rpartition("/")[0] for name in outcome if "/" in name.partition("::")[2]}
    leaves = {name: what for name, what in outcome.items() if name not in parents}
    failing = [name for name, what in leaves.items() if what == "FAIL"]
    failing += [name for name in sorted(parents) if outcome.get(name) == "FAIL" and not _below(name, failing)]
    return result(
        tool,
        passed=sum(what == "PASS" for what in leaves.values()),
        failed=len(failing),
        skipped=sum(what == "SKIP" for what in leaves.values()),
        errors=len(broken),
        seconds=seconds,
        failing=[*failing, *broken],
        durations={name: durations[name] for name in leaves},
    )


def _below(name: str, failing: Sequence[str]) -> bool:
    return any(other.startswith(f"{name}/") for other in failing)


def _node(tool: str, text: str) -> CheckResult | None:
    totals = {match["word"]: float(match["number"]) for match in _NODE_TOTAL.finditer(text)}
    if not {"tests", "pass", "fail"} <= totals.keys():
        return None
    failing, durations = _tap(text) if re.search(r"^TAP version", text, re.M) else _spec(text)
    return result(
        tool,
        passed=int(totals["pass"]),
        failed=int(totals["fail"] + totals.get("cancelled", 0)),
        skipped=int(totals.get("skipped", 0) + totals.get("todo", 0)),
        seconds=totals.get("duration_ms", 0) / 1000,
        failing=failing,
        durations=durations,
    )


def _tap(text: str) -> tuple[list[str], dict[str, float]]:
    """Leaves only: a suite's own line comes after its tests' deeper lines."""
    failing: list[str] = []
    durations: dict[str, float] = {}
    depth, leaf = 0, ""
    for line in text.splitlines():
        if match := _TAP.match(line):
            indent = len(match["indent"])
            leaf = (match["name"] or "").strip() if indent >= depth else ""
            if leaf and match["not"] and not match["skip"]:
                failing.append(leaf)
            depth = indent
        elif (time := _TAP_TIME.match(line)) and leaf:
            durations[leaf] = float(time["ms"]) / 1000
    return failing, durations


def _spec(text: str) -> tuple[list[str], dict[str, float]]:
    """The tree of the spec reporter; what it repeats under "failing tests:" at the end is not read again."""
    failing: list[str] = []
    durations: dict[str, float] = {}
    for line in text.partition("failing tests:")[0].splitlines():
        if match := _SPEC.match(line):
            durations[match["name"]] = float(match["ms"]) / 1000
            if match["mark"] == "✖" and not match["skip"]:
                failing.append(match["name"])
    return failing, durations


def _counts(text: str) -> dict[str, int]:
    return {match["word"]: int(match["number"]) for match in _COUNT.finditer(text)}


def _jest(tool: str, text: str) -> CheckResult | None:
    if not (total := _JEST_TOTAL.search(text)):
        return None
    return _js(tool, text, _counts(total["counts"]), [m["name"].replace(" › ", " ") for m in _JEST_FAIL.finditer(text)])


def _vitest(tool: str, text: str) -> CheckResult | None:
    if not (total := _VITEST_TOTAL.search(text)):
        return None
    names = [match["name"].split(" > ")[1:] for match in _VITEST_FAIL.finditer(text)]
    return _js(tool, text, _counts(total["counts"]), [" ".join(parts) for parts in names if parts])


def _js(tool: str, text: str, counts: dict[str, int], failing: list[str]) -> CheckResult:
    took = _SECONDS.search(text)
    seconds = float(took["number"]) / (1000 if took["unit"] == "ms" else 1) if took else 0.0
    durations = {match["name"]: float(match["ms"]) / 1000 for match in _TIMED.finditer(text)}
    failed = counts.get("failed", 0)
    return result(
        tool,
        passed=counts.get("passed", 0),
        failed=failed,
        skipped=counts.get("skipped", 0) + counts.get("todo", 0),
        seconds=seconds,
        failing=[name for name in failing if not name.startswith("Test suite failed")],
        durations=durations,
    )


def _mocha(tool: str, text: str) -> CheckResult | None:
    totals = {match["word"]: match for match in _MOCHA_TOTAL.finditer(text)}
    if "passing" not in totals:
        return None
    counts = {word: int(match["number"]) for word, match in totals.items()}
    took = totals["passing"]
    failing = []
    for match in _MOCHA_FAIL.finditer(text[took.end() :]):
        lines = [match["suite"], *(line.strip() for line in match["rest"].splitlines())]
        failing.append(" ".join(lines).rstrip(":"))
    return result(
        tool,
        passed=counts["passing"],
        failed=counts.get("failing", 0),
        skipped=counts.get("pending", 0),
        seconds=float(took["took"] or 0) / (1000 if took["unit"] == "ms" else 1),
        failing=failing,
        durations={match["name"]: float(match["ms"]) / 1000 for match in _TIMED.finditer(text)},
    )


def _pytest(tool: str, text: str) -> CheckResult | None:
    if not (total := _PYTEST_TOTAL.search(text)):
        return None
    counts = {match["word"].rstrip("s"): int(match["number"]) for match in _PYTEST_COUNT.finditer(total["counts"])}
    return result(
        tool,
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        errors=counts.get("error", 0),
        seconds=float(total["seconds"]),
        failing=[match["name"] for match in _PYTEST_FAIL.finditer(text)],
    )


_TEXTS: tuple[TextReader, ...] = (
    _node, _jest, _vitest, _mocha, _bun, _pytest, _unittest, _cargo, _minitest, _mix, _maven, _dotnet, _go,
)  # fmt: skip
UNITTEST, MINITEST, CARGO, GO, MIX = map(_printed, (_unittest, _minitest, _cargo, _go, _mix))
MAVEN = _printed(_maven)
"""surefire's; ids are `package.Class#method`, as `-Dtest` takes them."""
GRADLE = _printed(_gradle)
"""The lines that our own init script has Gradle print, one a test."""
DOTNET = _printed(_dotnet)
"""Ids are full names."""

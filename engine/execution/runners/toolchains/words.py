"""Reading what test runners print for people: node --test (TAP and spec), jest, vitest, mocha, pytest's last line.

Pure functions over text. A runner that is not recognised gives None, and then only the exit code is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.execution.runners.toolchains.base import result
from engine.values import CheckResult

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


def read_words(tool: str, output: str, exit_code: int) -> CheckResult | None:
    """What a known test runner said, or None. `tool` is the name that the result carries."""
    text = _ANSI.sub("", output).replace("\r\n", "\n")
    readers: tuple[Callable[[str, str], CheckResult | None], ...] = (_node, _jest, _vitest, _mocha, _pytest)
    found = next((check for reader in readers if (check := reader(tool, text)) is not None), None)
    if found is not None and exit_code != 0 and found.failed == 0 and found.errors == 0:
        return result(  # its tests are well, the command is not: a linter before it, a coverage limit after it
            tool,
            passed=found.passed,
            failed=0,
            skipped=found.skipped,
            errors=1,
            seconds=found.seconds,
            failing=[f"{tool} ended with code {exit_code} though no test failed"],
            durations=dict(found.durations),
        )
    return found


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

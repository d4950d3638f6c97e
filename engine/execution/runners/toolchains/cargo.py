"""cargo test and cargo clippy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from engine.execution.runners.toolchains.base import Command, Finding, Linter, LintResult, Toolchain, result
from engine.values import CheckResult

LOCK = ("Cargo.lock",)

_TEST = re.compile(r"^test (?P<name>.+?) (?:- should panic )?\.\.\. (?P<what>ok|FAILED|ignored)\b", re.M)
_BARE = re.compile(r"^test (?P<name>\S.*?) (?:- should panic )?\.\.\. ")
_TOTAL = re.compile(
    r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;"
    r".*?(?:finished in (?P<seconds>[\d.]+)s)?$",
    re.M,
)
_LISTED = re.compile(r"^    (?P<name>\S.*)$")
_HEAD = re.compile(r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$")
_PLACE = re.compile(r"^ *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+$")
_RULE = re.compile(r"index\.html#(?P<clippy>\w+)|`#\[(?:warn|deny)\((?P<lint>[\w:]+)\)\]`|`-[DW] (?P<flag>[\w:-]+)`")


class Cargo(Toolchain):
    """A Rust crate or workspace. Which tests belong to a file only the compiler knows, so all of them run."""

    name = "cargo"
    title = "cargo test"
    suffixes = (".rs", "Cargo.toml")

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        argv = ["cargo", "test", "--color=never", "--no-fail-fast"]
        if tests:
            argv += ["--", "--exact", *(test for test in tests if not test.startswith("-"))]
        return Command(tuple(argv), environment(report.parent), codes=(0, 101), makes=LOCK)

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        return read_cargo(output, exit_code)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        return {path: [] for path in paths}

    def linter(self) -> Linter | None:
        return Clippy() if shutil.which("cargo-clippy") else None


def environment(scratch: Path) -> dict[str, str]:
    """Builds outside the tree, so that checking it changes nothing in it; one session builds once."""
    return {"CARGO_TARGET_DIR": str(scratch / "cargo-target"), "CARGO_TERM_PROGRESS_WHEN": "never"}


def read_cargo(output: str, exit_code: int) -> CheckResult:
    """The text of `cargo test` as a result: the totals of every test binary, the names under `failures:`.

    No totals at all means that it did not compile (or that cargo could not start): one error.
    """
    totals = list(_TOTAL.finditer(output))
    passed, failed, ignored = (sum(int(total[key]) for total in totals) for key in ("passed", "failed", "ignored"))
    seconds = sum(float(total["seconds"] or 0) for total in totals)
    failing = [match["name"] for match in _TEST.finditer(output) if match["what"] == "FAILED"]
    failing += [name for name in _failures(output) if name not in failing]
    broken = exit_code != 0 and failed == 0
    if broken:
        failing = [next((line for line in output.splitlines() if line.startswith("error")), "cargo test broke")]
    return result(
        "cargo",
        passed=passed,
        failed=failed,
        skipped=ignored,
        errors=int(broken),
        seconds=seconds,
        failing=failing,
    )


def _failures(output: str) -> list[str]:
    """Names listed under `failures:`; tests that print something lose their `... FAILED` line."""
    names: list[str] = []
    listing = False
    for line in output.splitlines():
        if line == "failures:":
            listing = True
        elif listing and (match := _LISTED.match(line)):
            names.append(match["name"].strip())
        elif line.strip():
            listing = False
    ran = {match["name"] for match in map(_BARE.match, output.splitlines()) if match}
    return [name for name in names if name in ran]


class Clippy(Linter):
    """cargo clippy looks at whole crates; its findings are read from what it prints for people."""

    name = "clippy"
    suffixes = (".rs",)

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        return Command(
            ("cargo", "clippy", "--color=never", "--all-targets", "--quiet"),
            environment(scratch),
            codes=(0, 101),
            makes=LOCK,
        )

    def parse(self, output: str, exit_code: int) -> LintResult:
        return LintResult(self.name, tuple(read_clippy(output)))

    def fixes(self, paths: Sequence[str]) -> list[Command]:
        return [Command(("cargo", "fmt", "--all"), codes=(0,))]


def read_clippy(output: str) -> list[Finding]:
    """Each `warning:` or `error:` block with a place as one finding; the rule from its link or its note."""
    found: list[Finding] = []
    for block in re.split(r"\n(?=(?:warning|error)(?:\[\w+\])?: )", output):
        lines = block.splitlines()
        head = _HEAD.match(lines[0]) if lines else None
        place = next(filter(None, map(_PLACE.match, lines)), None)
        if not head or not place:
            continue
        rule = _RULE.search(block)
        name = (rule["clippy"] or rule["lint"] or rule["flag"]) if rule else (head["code"] or head["level"])
        name = name.replace("-", "_").removeprefix("clippy::")
        finding = Finding(place["path"], int(place["line"]), name, head["message"])
        if finding not in found:  # --all-targets shows a library's findings once more for its tests
            found.append(finding)
    return found


def find_cargo(folder: Path, workspace: Path, looked: list[str]) -> Cargo | None:
    """cargo, when there is a Cargo.toml."""
    if not (folder / "Cargo.toml").is_file():
        return None
    looked.append("cargo on the PATH")
    return Cargo(folder, workspace) if shutil.which("cargo") else None

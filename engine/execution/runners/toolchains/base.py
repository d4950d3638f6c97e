"""The one shape that every tool has: commands as data, output read by pure functions."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains.missing import Missing, failure_texts, fix_for
from engine.plain_files import read_plain
from engine.values import CheckResult

MAX_FAILING = 200
"""So many failing ids are kept of one run; the counts are always whole."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line that a toolchain asks for.

    `environment` is added to the session's; `codes` are the exit codes that mean the tool did its work (tests may
    still be red); `report` is a file the tool writes for machines, or None when its output is all there is; `makes`
    are files that the tool puts into the project when they are missing, and that a check must not leave there.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0, 1)
    report: Path | None = None
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a linter said. `line` counts from 1, 0 when the whole file is meant."""

    path: str
    line: int
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class LintResult:
    """What a linter said: its findings in its own order."""

    tool: str
    findings: tuple[Finding, ...]

    @property
    def rules(self) -> list[tuple[str, int]]:
        """How often each rule was broken, most often first, then by name."""
        return sorted(Counter(finding.rule for finding in self.findings).items(), key=lambda pair: (-pair[1], pair[0]))


class Linter(ABC):
    """A project's own linter: `lint` looks, `fixes` mends what is safe to mend."""

    name: str
    suffixes: tuple[str, ...] = ()
    only_looks: bool = True
    """Whether the command line of `lint` can write nothing; False for a script, which may do anything (SPEC 2.12)."""

    @abstractmethod
    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        """The command that looks at `paths` (relative to the project), at everything when there are none; what it
        must write (build results, caches) it writes under `scratch`."""

    @abstractmethod
    def parse(self, output: str, exit_code: int) -> LintResult:
        """The findings in what `lint` printed. A tool that broke has no findings and an exit code not in `codes`."""

    def fix(self, missing: Missing) -> str:
        """What brings it."""
        return fix_for(missing, "install what the project needs")

    def believes(self, missing: Missing) -> bool:
        """Whether what the output calls missing is not there, and no mistake in the project itself."""
        return True

    @abstractmethod
    def fixes(self, paths: Sequence[str]) -> list[Command]:
        """Formatter and safe fixes, in order; [] when this linter mends nothing."""

    def takes(self, path: str) -> bool:
        """Whether a file is one of this linter's."""
        return not self.suffixes or path.endswith(self.suffixes)


class Toolchain(ABC):
    """How one project runs its tests.

    `folder` holds the files to test, `workspace` the operator's tree in which the tools are installed; they differ
    when a flow works in a worktree. `suffixes` are the files whose change matters to it.
    """

    name: str = ""
    title: str = ""
    suffixes: tuple[str, ...] = ()
    exact: bool = True
    """Whether single tests can be asked for by id."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self.folder = folder
        self.workspace = workspace

    @property
    def where(self) -> str:
        """The environment that runs the tests, "" where there is only one."""
        return ""

    @abstractmethod
    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        """The command that runs `tests` (ids, files or packages; none = the whole suite).

        `report` is a file under the session's scratch folder which the tool may write.
        """

    @abstractmethod
    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        """What a finished run said. Failing ids can be handed to `test_command`; a run that broke before any test
        ran has `errors` ≥ 1 and nothing passed."""

    @abstractmethod
    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """For each changed file its tests, as `test_command` takes them; [] when none are known."""

    def present(self, tests: Sequence[str]) -> list[str]:
        """What to run so that those of `tests` run that exist in this state of the files; [] when none does."""
        return list(tests)

    def failure_texts(self, report: Path, output: str, failing: tuple[str, ...]) -> Mapping[str, str]:
        """What a finished run said about each of `failing`, "" where nothing is known."""
        return failure_texts(output, failing)

    def believes(self, missing: Missing) -> bool:
        """Whether what the output calls missing is not there, and no mistake in the project itself."""
        return True

    def fix(self, missing: Missing) -> str:
        """What brings it."""
        return fix_for(missing, "install what the project needs")

    def linter(self) -> Linter | None:
        """The project's own linter, or None."""
        return None

    def takes(self, path: str) -> bool:
        """Whether a changed file concerns this toolchain."""
        return path.endswith(self.suffixes)

    def borrows(self) -> tuple[str, ...]:
        """Folders of the workspace that a worktree lacks and that the tools need in place (`node_modules`)."""
        return ()


def result(
    tool: str,
    *,
    passed: int,
    failed: int,
    skipped: int = 0,
    errors: int = 0,
    seconds: float = 0.0,
    failing: Iterable[str] = (),
    durations: Mapping[str, float] | None = None,
) -> CheckResult:
    """A `CheckResult` with its lists in order: failing as met, without repeats; durations slowest first."""
    slowest = sorted((durations or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    return CheckResult(
        tool=tool,
        passed=passed,
        failed=failed,
        skipped=skipped,
        errors=errors,
        seconds=round(seconds, 3),
        failing=tuple(dict.fromkeys(failing))[:MAX_FAILING],
        durations=tuple((name, round(value, 4)) for name, value in slowest),
    )


def uncounted(tool: str, title: str, exit_code: int) -> CheckResult:
    """The result of a command whose output names no tests: all that is known is how it ended."""
    red = exit_code != 0
    return replace(result(tool, passed=int(not red), failed=int(red), failing=[title] if red else []), counted=False)


def succeeds(argv: Sequence[str], limit: float = 10.0) -> bool:
    """Whether the operator's own program, asked in no folder of a project, ends with 0 within `limit` seconds.
    What is asked must read nothing of a project; see `python.has_pytest`, the only one that asks."""
    environment = {name: os.environ[name] for name in ("HOME", "PYENV_ROOT") if name in os.environ}
    environment["PATH"] = os.defpath
    try:
        done = subprocess.run(
            argv, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def read(file: Path, limit: int = 1_000_000) -> str:
    """A text file's first `limit` bytes as text, "" when it is not there, cannot be read or is no ordinary file."""
    try:
        return read_plain(file, limit, cut=True).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def operand(path: str) -> str:
    """A path as a command's operand: one that begins with a dash cannot become an option."""
    return f"./{path}" if path.startswith("-") else path


def inside(path: str) -> bool:
    """Whether a path stays inside the project: relative, no `..`, not empty."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path

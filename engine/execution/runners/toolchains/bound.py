"""Rows of the table bound to one project: command lines to run, and what came of them read."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from engine.execution.runners.toolchains import python, readers
from engine.execution.runners.toolchains.missing import INSTALL_PROGRAM, Missing, fix_for
from engine.execution.runners.toolchains.shapes import Command, Ended, Finding, operand, read, uncounted
from engine.execution.runners.toolchains.table import LAST, Checker, Tester
from engine.model import CheckResult

LARGEST_REPORT = 50_000_000
"""Characters of a report that are read."""

Words = Mapping[str, tuple[str, ...]]
"""What stands for each word in braces of a command."""

_BRACES = re.compile(r"\{(-*\w*)\}")


def filled(template: str, words: Words) -> tuple[str, ...] | None:
    """A command of the table with its words filled in; None when one of them is not there."""
    argv: list[str] = []
    for word in shlex.split(template):
        if any(name not in words for name in _BRACES.findall(word)):
            return None
        if (whole := _BRACES.fullmatch(word)) is not None:
            argv += words[whole[1]]
        else:
            argv.append(_BRACES.sub(lambda match: " ".join(words[match[1]]), word))
    return tuple(argv)


def _environment(row: Mapping[str, str], words: Words) -> dict[str, str]:
    return {name: _BRACES.sub(lambda match: " ".join(words[match[1]]), value) for name, value in row.items()}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A row of the table that runs one project's tests.

    `folder` holds the files to test, `workspace` is the same folder in the operator's tree, in which the tools are
    installed; they differ in a worktree. `top` is the top of the operator's repository. `below` are folders whose
    tests another project runs.
    """

    row: Tester
    folder: Path
    workspace: Path
    top: Path
    title: str
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    install: str = ""
    below: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of files whose change matters to it; () when any may."""
        return self.row.suffixes

    @property
    def exact(self) -> bool:
        """Whether single tests can be asked for by id."""
        return bool(self.row.one)

    @property
    def where(self) -> str:
        """The interpreter that runs the tests, "" where there is only one."""
        return dict(self.words).get("python", ("",))[0]

    def test_command(self, tests: Sequence[str], report: Path) -> Command:
        """The command that runs `tests` (ids, files or packages; none = the whole suite). `report` is a file in the
        session's scratch folder which the tool may write."""
        extra = report.parent / self.row.extra[0]
        if self.row.extra[0]:
            extra.write_text(self.row.extra[1], encoding="utf-8")
        words = {
            **dict(self.words), **_asked(self.row, tests), "folder": (str(self.folder),), "report": (str(report),),
            "scratch": (str(report.parent),), "extra": (str(extra),),
        }  # fmt: skip
        argv = filled(self.row.one if tests else self.row.test, words)
        if argv is None:
            raise ValueError(f"{self.row.name}: its command contains an unknown placeholder")
        if not tests and "pytest" in argv:
            argv += tuple(f"--ignore={folder}" for folder in self.below)
        environment = _environment(self.row.environment, words)
        if self.row.kind == "python":
            start = [str(self.folder / name) for name in words.get("start", ())]
            environment["PYTHONPATH"] = os.pathsep.join([*start, *python.roots(self.folder)])
        reports = "{report}" in self.row.test
        return Command(argv, environment, self.row.codes, report if reports else None, self.row.makes)

    def parse(self, report: Path, output: str, exit_code: int) -> CheckResult:
        """What a finished run said. Failing ids can be handed to `test_command`; a run that broke before any test
        ran has `errors` ≥ 1 and nothing passed."""
        ended = self._ended(report, output, exit_code)
        return self.row.read(ended) or uncounted(self.row.name, self.title, exit_code)

    def failure_texts(self, report: Path, output: str, failing: tuple[str, ...]) -> Mapping[str, str]:
        """What a finished run said about each of `failing`, "" where nothing is known."""
        return readers.texts(self._ended(report, output, 1), failing)

    def _ended(self, report: Path, output: str, exit_code: int) -> Ended:
        text = read(report, LARGEST_REPORT) if "{report}" in self.row.test else ""
        return Ended(self.row.name, self.title, output, exit_code, text, self.folder)

    def takes(self, path: str) -> bool:
        """Whether a changed file concerns it."""
        return not self.row.suffixes or path.endswith(self.row.suffixes)

    def tests_for(self, paths: Sequence[str]) -> dict[str, list[str]]:
        """For each changed file (relative to `folder`) its tests, as `test_command` takes them; [] when none are
        known."""
        if self.row.tests == python.TEST_FILES and self.row.read is readers.junit:
            return python.related(paths, python.test_texts(self.folder), python.exported(self.folder, paths))
        if self.row.kind == "go":
            return {path: _package_of(self.folder, path) for path in paths}
        if self.row.name in ("rspec", "mix"):
            return {path: [path] if re.search(self.row.tests, path) else [] for path in paths}
        return {path: [] for path in paths}  # only the compiler or the script knows

    def present(self, tests: Sequence[str]) -> list[str]:
        """What to run so that those of `tests` run that exist in this state of the files; [] when none does."""
        if self.row.read is not readers.junit:
            return list(tests)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)  # pytest stops at the first id it lacks
        return [file for file in files if (self.folder / file).is_file()]

    def believes(self, missing: Missing) -> bool:
        """Whether what the output calls missing is not there, and no mistake in the project itself."""
        return _believes(self.row.kind, self.folder, self.workspace, missing)

    def fix(self, missing: Missing) -> str:
        """What brings it."""
        return _fix(self.row.kind, self.workspace, self.install, missing)


def _asked(row: Tester, tests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Single tests in each of the forms that commands take."""
    if row.kind == "go":
        names = [test.partition("::")[2] for test in tests]
        packages = tuple(dict.fromkeys(operand(test.partition("::")[0]) for test in tests))
        return {"packages": packages, "pattern": (f"-run={_go_pattern(names)}",) if names and all(names) else ()}
    plain = [test for test in tests if not test.startswith("-")] if row.kind == "rust" else list(map(operand, tests))
    pattern = f"^({'|'.join(map(_escaped, tests))})$"
    return {
        "tests": tuple(plain),
        "pattern": (pattern,),
        "name": (shlex.quote(f"--name=/{pattern}/"),),
        "each": tuple(word for test in tests for word in ("--tests", test)),
        "commas": (",".join(tests),),
        "alternatives": ("|".join(f"FullyQualifiedName={test}" for test in tests),),
    }


def _escaped(name: str) -> str:
    """The name of a test as a regular expression that every language reads the same."""
    return re.sub(r"([.*+?^${}()|\[\]\\/])", r"\\\1", name)


def _go_pattern(names: Sequence[str]) -> str:
    """One `-run` expression: exact for a test and its subtests, any of several by their top name."""
    if len(names) == 1:
        return "/".join(f"^{re.escape(part)}$" for part in names[0].split("/"))
    tops = dict.fromkeys(name.split("/")[0] for name in names)
    return f"^({'|'.join(map(re.escape, tops))})$"


def _package_of(folder: Path, path: str) -> list[str]:
    place = PurePosixPath(path).parent
    has_tests = path.endswith(".go") and any((folder / place).glob("*_test.go"))
    return ["./" if str(place) == "." else f"./{place}"] if has_tests else []


def _believes(kind: str, folder: Path, workspace: Path, missing: Missing) -> bool:
    if missing.kind != "package":
        return True
    if kind == "python":
        return python.is_foreign(missing.what, folder, workspace)
    if kind == "node" and (workspace / "node_modules").exists():
        # A package that package.json does not name, where the others are installed, is a mistake in the project.
        return f'"{missing.what}"' in read(workspace / "package.json")
    return True


def _fix(kind: str, workspace: Path, install: str, missing: Missing) -> str:
    """Without installed packages a program that a script calls comes with them."""
    comes_along = kind == "node" and missing.kind == "program" and not (workspace / "node_modules").exists()
    if comes_along and missing.what not in INSTALL_PROGRAM:
        return install
    return fix_for(missing, install or "install what the project needs")


@dataclass(frozen=True, slots=True)
class Linter:
    """A row of the table that looks at one project's source files; `folder` and `workspace` as for `Toolchain`."""

    row: Checker
    folder: Path
    workspace: Path
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    install: str = ""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the files that it reads."""
        return self.row.suffixes

    @property
    def only_looks(self) -> bool:
        """Whether its command line can write nothing (SPEC 2.12)."""
        return self.row.only_looks

    def lint(self, paths: Sequence[str], scratch: Path) -> Command:
        """The command that looks at `paths` (relative to `folder`), at everything when there are none; what it must
        write it writes under `scratch`."""
        return self._command(self.row.look, paths, scratch, self.row.codes)

    def parse(self, output: str, exit_code: int) -> list[Finding]:
        """The findings in what `lint` printed. A tool that broke has no findings and an exit code not in `codes`."""
        found = self.row.read(output) if exit_code or self.row.kind != LAST else []
        prefix = f"{self.folder}/"
        return [replace(one, path=one.path.removeprefix(prefix)) for one in found]

    def fixes(self, paths: Sequence[str], scratch: Path) -> list[Command]:
        """Formatter and safe fixes, in order; [] when it mends nothing."""
        commands = [self._command(template, paths, scratch, self.row.codes) for template in self.row.fixes]
        return [command for command in commands if command.argv]

    def _command(self, template: str, paths: Sequence[str], scratch: Path, codes: tuple[int, ...]) -> Command:
        folders = sorted({str(PurePosixPath(path).parent) for path in paths})
        words = {
            **dict(self.words), "paths": tuple(map(operand, paths)) or (".",), "scratch": (str(scratch),),
            "packages": tuple(f"./{folder}" if folder != "." else "." for folder in folders) or ("./...",),
        }  # fmt: skip
        environment = _environment(self.row.environment, words)
        return Command(filled(template, words) or (), environment, codes, makes=self.row.makes)

    def takes(self, path: str) -> bool:
        """Whether a file is a source file of a kind that it reads."""
        return path.endswith(self.row.suffixes) and "__snapshots__" not in path

    def believes(self, missing: Missing) -> bool:
        """As for `Toolchain`."""
        return _believes(self.row.kind, self.folder, self.workspace, missing)

    def fix(self, missing: Missing) -> str:
        """What brings it."""
        return _fix(self.row.kind, self.workspace, self.install, missing)


@contextmanager
def borrowed(tools: Sequence[Toolchain | Linter], folder: Path, workspace: Path) -> Iterator[None]:
    """For the time of a run, folders which only the operator's tree has (`node_modules`) are linked into the worktree
    `folder`, for the projects of `tools` and for the folders above them.

    The links are gone afterwards, so that they can be part of no change set.
    """
    used: list[Toolchain | Linter] = list(tools) if folder != workspace else []
    places = {above for tool in used for above in python.upwards(tool.folder, folder)}
    names = {name for tool in used for name in BORROWED.get(tool.row.kind, ())}
    links: list[Path] = []
    for place in sorted(places):
        for name in sorted(names):
            link, there = place / name, workspace / place.relative_to(folder) / name
            if there.is_dir() and not os.path.lexists(link) and place.is_dir():
                links.append(link)
                link.symlink_to(there, target_is_directory=True)
    try:
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)


BORROWED: Mapping[str, tuple[str, ...]] = {"node": ("node_modules",), "php": ("vendor",), "elixir": ("deps",)}
"""Folders of the operator's tree that a worktree lacks and that the tools of a language need in place."""

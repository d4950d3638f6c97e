"""The projects of a repository: a folder with a manifest each, and which tools of the table each has (SPEC 3.9).

Looking runs no program of a repository: manifests are read as files, environments are looked at, git lists the files,
and only the operator's own Python is asked whether it has pytest.

Which project runs which tests, in a repository that holds several (a monorepo):

- A runner that collects the tests of the folders below by itself runs them all, and those folders have no tests of
  their own: `cargo test` and Maven, Gradle, mix and .NET of a workspace, jest, vitest and `node --test` at the top,
  pytest for the folders that its `testpaths` name.
- A script that only hands on to the members (`npm test --workspaces`, `pnpm -r test`, turbo, nx, lerna) is not
  offered: each member is, which is quicker and names single tests.
- Otherwise every folder runs its own tests, and pytest at the top leaves those of the projects below out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from engine.execution.own_environment import which
from engine.execution.runners.toolchains import python, readers
from engine.execution.runners.toolchains.missing import INSTALL_PROGRAM, Missing, fix_for
from engine.execution.runners.toolchains.shapes import Command, Ended, LintResult, operand, read, uncounted
from engine.execution.runners.toolchains.table import (
    CHECKERS, KEEPERS, LAST, MANIFESTS, TESTERS, Checker, Keeper, Tester,
)  # fmt: skip
from engine.git import Git
from engine.values import CheckResult, Refusal, sanitise

DEEPEST = 4
"""Folders below the top of a repository that are looked at."""

MOST = 200
"""Projects of one repository that are looked at."""

NOT_PROJECTS = frozenset(
    {"node_modules", "vendor", "third_party", "test", "tests", "testdata", "__tests__", "spec", "specs", "fixtures",
     "__fixtures__", "fixture", "templates", "target", "dist", "build", "site-packages"}
)  # fmt: skip
"""Folders whose manifests are somebody else's, or what a test works on."""

CHANGELOGS = ("CHANGELOG.md", "CHANGES.md", "HISTORY.md", "NEWS.md", "CHANGELOG.rst", "CHANGES.rst", "HISTORY.rst")
LARGEST_REPORT = 50_000_000
"""Characters of a report that are read."""

_BRACES = re.compile(r"\{(-*\w*)\}")
_HANDS_ON = re.compile(
    r"--workspaces\b|(?:^|\s)-ws\b|(?:^|\s)(?:pnpm|bun)\b.*(?:\s-r\b|--recursive|--filter)|\b(?:turbo|nx|lerna|wsrun)\b"
    r"|workspaces (?:foreach|run)"
)
Words = Mapping[str, tuple[str, ...]]
"""What stands for each word in braces of a command."""


# -- what a project is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packages:
    """What installs a project's packages. `folder`, `manifest` and `lock` are paths from the top of the repository
    (`folder` "" is the top; `lock` "" where there is none); `commands` are run in `folder`, one after the other.
    `installed` is False when it can be seen that they are not there. `hosts` are what it needs of the network."""

    keeper: str
    kind: str
    folder: str
    manifest: str
    lock: str
    commands: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    installed: bool = True

    @property
    def install(self) -> str:
        """The command as the operator would type it in `folder`."""
        return " && ".join(shlex.join(command) for command in self.commands)


@dataclass(frozen=True, slots=True)
class Project:
    """A folder of a repository with a manifest of its own. `path` is "" for the top, else relative to it.

    `tools` run its tests, one a language, the first is the main one; () when it has no tests, cannot run them or
    another project does. `tested_by` is the path of the project that runs them. `lacks` names what its tests need and
    do not find, "" when nothing; `looked` says where it was looked. `changelog` is relative to the top.
    """

    path: str = ""
    name: str = ""
    tools: tuple[Toolchain, ...] = ()
    linters: tuple[Linter, ...] = ()
    packages: tuple[Packages, ...] = ()
    changelog: str = ""
    tested_by: str | None = None
    lacks: str = ""
    looked: tuple[str, ...] = ()

    @property
    def tool(self) -> Toolchain | None:
        """What runs its tests, None when nothing does."""
        return self.tools[0] if self.tools else None

    @property
    def install(self) -> str:
        """The command that installs its packages, "" when none is known."""
        return self.packages[0].install if self.packages else ""

    @property
    def lock(self) -> str:
        """Its lock file, relative to the top, "" when it has none."""
        return self.packages[0].lock if self.packages else ""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of files whose change matters to its tests; () when any may."""
        return tuple(suffix for tool in self.tools for suffix in tool.row.suffixes)

    def within(self, path: str) -> str | None:
        """`path`, relative to the top, as it is in this project's folder; None when it lies elsewhere."""
        if not self.path:
            return path
        return path.removeprefix(f"{self.path}/") if path.startswith(f"{self.path}/") else None

    def tests(self, path: str) -> bool:
        """Whether a change of `path` (relative to the top) can change what its tests say."""
        return self.within(path) is not None and any(tool.takes(path) for tool in self.tools)

    def lints(self, path: str) -> bool:
        """Whether one of its linters reads `path` (relative to the top)."""
        return self.within(path) is not None and any(linter.takes(path) for linter in self.linters)


def project_of(found: Sequence[Project], path: str) -> Project | None:
    """The innermost of `found` that holds `path`, a file relative to the top of the repository."""
    holding = [project for project in found if project.within(path) is not None]
    return max(holding, key=lambda project: len(project.path), default=None)


# -- rows bound to a project ----------------------------------------------------------------------------------------


def _filled(template: str, words: Words) -> tuple[str, ...] | None:
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

    @property
    def borrows(self) -> tuple[str, ...]:
        """Folders of the operator's tree that a worktree lacks and that the tool needs in place."""
        return self.row.borrows

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
        argv = _filled(self.row.one if tests else self.row.test, words)
        if argv is None:
            raise ValueError(f"{self.row.name}: a word of its command is not known")
        if not tests and "pytest" in argv:
            argv += tuple(f"--ignore={folder}" for folder in self.below)
        environment = _environment(self.row.environment, words)
        if self.row.kind == "python":
            environment["PYTHONPATH"] = os.pathsep.join(python.roots(self.folder))
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
            return python.related(paths, python.test_texts(self.folder))
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

    def parse(self, output: str, exit_code: int) -> LintResult:
        """The findings in what `lint` printed. A tool that broke has no findings and an exit code not in `codes`."""
        whole = tuple(self.row.read(output)) if exit_code or self.row.kind != LAST else ()
        prefix = f"{self.folder}/"
        return LintResult(self.name, tuple(replace(one, path=one.path.removeprefix(prefix)) for one in whole))

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
        return Command(_filled(template, words) or (), environment, codes, makes=self.row.makes)

    def takes(self, path: str) -> bool:
        """Whether a file is a source file of a kind that it reads."""
        return path.endswith(self.row.suffixes) and "__snapshots__" not in path

    def believes(self, missing: Missing) -> bool:
        """As for `Toolchain`."""
        return _believes(self.row.kind, self.folder, self.workspace, missing)

    def fix(self, missing: Missing) -> str:
        """What brings it."""
        return _fix(self.row.kind, self.workspace, self.install, missing)

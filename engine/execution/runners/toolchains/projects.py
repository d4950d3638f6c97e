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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

from engine.execution.own_environment import which
from engine.execution.runners.toolchains import python, readers
from engine.execution.runners.toolchains.missing import INSTALL_PROGRAM, Missing, fix_for
from engine.execution.runners.toolchains.shapes import Command, Ended, LintResult, operand, read, uncounted
from engine.execution.runners.toolchains.table import (
    CHECKERS,
    KEEPERS,
    LAST,
    MANIFESTS,
    TESTERS,
    Checker,
    Keeper,
    Tester,
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
    def untested(self) -> str:
        """Why nothing runs its tests, in words; "" when something does."""
        if self.tools:
            return ""
        if self.tested_by is not None:
            return f"its tests run with those of {self.tested_by or 'the top'}"
        return f"its tests need {self.lacks}" if self.lacks else "it has no tests"

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


# -- looking --------------------------------------------------------------------------------------------------------


@dataclass
class _Place:
    """One folder that is looked at. `root` is the top of the files, `top` that of the operator's repository, in which
    the tools are; `asked` remembers what interpreters said, for one look at a repository."""

    folder: Path
    workspace: Path
    root: Path
    top: Path
    asked: dict[Path, bool] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)  # the kind, and what was not there
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> frozenset[str]:
        """The files and links of the folder itself."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except OSError:
            return frozenset()

    def above(self, folder: Path) -> _Place:
        """Another folder of the same repository, one above this."""
        workspace = self.top / folder.relative_to(self.root) if folder.is_relative_to(self.root) else folder
        return _Place(folder, workspace, self.root, self.top, self.asked)

    def files(self, patterns: Sequence[str]) -> list[str]:
        """The files that are there of those named; `*` stands for anything but `/`."""
        found: list[str] = []
        for pattern in patterns:
            if "/" in pattern:
                found += [str(file.relative_to(self.folder)) for file in sorted(self.folder.glob(pattern))]
            elif "*" in pattern:
                found += sorted(name for name in self.names if fnmatch(name, pattern))
            elif pattern in self.names:
                found.append(pattern)
        return found

    def text(self, name: str) -> str:
        """What is in a file of the folder, "" when it cannot be read."""
        if name not in self._texts:
            self._texts[name] = read(self.folder / name)
        return self._texts[name]

    def says(self, files: Sequence[str], pattern: str) -> re.Match[str] | None:
        """Where one of `files` says what `pattern` asks for."""
        found = (re.search(pattern, self.text(name), re.MULTILINE) for name in files[:20])
        return next((match for match in found if match is not None), None)

    @cached_property
    def interpreters(self) -> list[tuple[str, Path]]:
        found = python.interpreters(self.workspace, self.top)
        if self.folder != self.workspace:  # a worktree that was prepared has an environment of its own
            own = self.folder / ".venv" / "bin" / "python"
            found = [*([(".venv of the worktree", own)] if own.exists() else []), *found]
        return found

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json; {} when it cannot be read, npm will say why in its own words."""
        try:
            scripts = json.loads(self.text("package.json")).get("scripts", {})
            return {str(name): str(script) for name, script in scripts.items()}
        except (ValueError, AttributeError):
            return {}

    def has_pytest(self, where: str, interpreter: Path) -> bool:
        if interpreter not in self.asked:
            self.asked[interpreter] = python.has_pytest(interpreter, operators=where.endswith(" on the PATH"))
        return self.asked[interpreter]

    def program(self, name: str, *, own: Iterable[Path] = ()) -> str | None:
        """A program of one of the folders `own`, else the operator's."""
        here = next((str(folder / name) for folder in own if os.access(folder / name, os.X_OK)), None)
        return here or which(name, project=self.top)


Found = Callable[["_Place", Any, Sequence[str]], "dict[str, tuple[str, ...]] | None"]


def _module(place: _Place, row: Tester, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    for where, interpreter in place.interpreters:
        place.looked.append(f"{row.program} in {where}")
        if place.has_pytest(where, interpreter):
            return {"python": (str(interpreter),)}
    place.missing.append((row.kind, "pytest"))
    return None


def _unittest(place: _Place, row: Tester, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """Only where nothing says that the project wants pytest."""
    wants = place.says(
        place.files(("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements*.txt")), "pytest"
    )
    if wants or place.says(files, r"^\s*(?:import|from) pytest\b") or not place.interpreters:
        return None
    start = next((name for name in ("tests", "test") if any(file.startswith(f"{name}/") for file in files)), ".")
    inside = start != "." and (place.folder / start / "__init__.py").is_file()
    return {"python": (str(place.interpreters[0][1]),), "start": ("." if inside else start,)}


def _program(place: _Place, row: Tester | Checker, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    bins = [interpreter.parent for where, interpreter in place.interpreters] if row.kind == "python" else []
    found = place.program(row.program, own=bins)
    return _seen(place, row, found)


def _seen(place: _Place, row: Tester | Checker, found: str | None) -> dict[str, tuple[str, ...]] | None:
    if isinstance(row, Tester):
        place.looked.append(f"{row.program} on the PATH")
        if found is None:
            place.missing.append((row.kind, row.program))
    return None if found is None else {"program": (found,)}


def _wrapper(place: _Place, row: Tester, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """gradlew or mvnw, which the project brings along; it runs in the sandbox like everything else of it."""
    name = {"gradle": "gradlew", "mvn": "mvnw"}[row.program]
    for above in python.upwards(place.workspace, place.top):
        if os.access(above / name, os.X_OK):
            return {"program": (os.path.relpath(above / name, place.workspace).replace(name, f"./{name}", 1),)}
    return _seen(place, row, place.program(row.program))


def _bundle(place: _Place, row: Tester | Checker, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    if "Gemfile" in place.names and row.program in place.text("Gemfile") and place.program("bundle"):
        return {"program": ("bundle", "exec", row.program)}
    return _seen(place, row, place.program(row.program))


def _vendor(place: _Place, row: Tester | Checker, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    return _seen(place, row, place.program(row.program, own=[place.workspace / "vendor" / "bin"]))


def _script(place: _Place, row: Tester, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """The script `test` of package.json, when it is this row's runner and nothing more; the row without a program
    takes any other. What `npm init` writes into it is no test."""
    script = place.scripts.get("test", "")
    if not script or "no test specified" in script:
        place.looked.append("a test script in package.json")
        return None
    rest = _runner(script, row.program)
    if rest is None:
        return None
    manager = manager_of(place)
    if not place.program(manager):
        place.looked.append(f"{manager} on the PATH")
        place.missing.append((row.kind, manager))
        return None
    return {**_manager(manager), "script": tuple(rest)}


def _runner(script: str, runner: str) -> list[str] | None:
    """The words of a script after its runner; None when it is another, or more than that runner."""
    if not runner:
        return [script]
    try:
        words = shlex.split(script)
    except ValueError:
        return None
    begin = runner.split()
    alone = not any(sign in script for sign in ("&&", "||", ";", "|"))
    return words[len(begin) :] if alone and words[: len(begin)] == begin else None


def manager_of(place: _Place) -> str:
    """Which of npm, pnpm, yarn and bun a package is kept with: by its lock file, or by that of a folder above it."""
    packages = _packages(place)
    return next((one.keeper for one in packages if one.kind == "node"), "npm")


def _manager(name: str) -> dict[str, tuple[str, ...]]:
    run = {"npm": ("npm", "run", "--silent"), "pnpm": ("pnpm", "--silent", "run")}.get(name, (name, "run"))
    return {"run": run, "--": ("--",) if name == "npm" else ()}


def _target(place: _Place, row: Tester, files: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    match = place.says(files, row.says)
    words = _seen(place, row, place.program(row.program))
    return None if match is None or words is None else {**words, "target": (match["target"],)}


FIND: Mapping[str, Found] = {
    "module": _module, "unittest": _unittest, "program": _program, "wrapper": _wrapper, "bundle": _bundle,
    "vendor": _vendor, "script": _script, "target": _target,
}  # fmt: skip
"""How a tool is looked for, by the word in the table."""


def _tools(place: _Place) -> tuple[Toolchain, ...]:
    """One tool for each language of the folder, in the order of the table; make and the like only when no other."""
    found: dict[str, Toolchain] = {}
    for row in TESTERS:
        files = [] if row.kind in found or (row.kind == LAST and found) else place.files(row.manifests)
        if not files:
            continue
        if row.says and not place.says(files, row.says):
            if row.kind == LAST:
                place.looked.append(f"a target `test` or `check` in the {files[0]}")
            continue
        words = FIND[row.found](place, row, files)
        if words is None:
            continue
        if row.kind == "rust":
            words["workspace"] = ("--workspace",) if place.says(files, r"^\[workspace\]") else ()
        found[row.kind] = Toolchain(
            row, place.folder, place.workspace, place.top, _title(row, words), tuple(words.items())
        )
    return tuple(found.values())


def _title(row: Tester, words: Words) -> str:
    if row.found == "script" and not row.title:
        return f"{words['run'][0]} test"
    return f"{row.program} {words['target'][0]}" if row.found == "target" else row.title or row.program


def _linters(place: _Place) -> tuple[Linter, ...]:
    """Every linter and type checker that the project uses and that is installed; of those that do the same the first,
    and a lint target of a Makefile only when there is no other."""
    bins = _bins(place)
    found: list[Linter] = []
    python_here = bool(place.files(("*.py", "pyproject.toml", "setup.py", "requirements.txt", "tests/*.py")))
    chosen = {row.name for row in CHECKERS if row.optional and _configured(place, row)}
    for row in CHECKERS:
        if (row.kind == LAST and found) or any(
            row.group and one.row.group == row.group == "lint" and one.row.kind == row.kind for one in found
        ):
            continue
        if row.kind == "python" and not python_here:
            continue
        configured = _configured(place, row)
        if not configured and not (row.optional and not chosen):
            continue
        words = _checker(place, row, bins, configured=configured)
        if words is not None:
            found.append(Linter(row, place.folder, place.workspace, tuple(words.items())))
    return tuple(found)


def _configured(place: _Place, row: Checker) -> bool:
    """Whether a file shows it, here or, for a tool that looks upwards itself, in a folder above."""
    for one in row.configured:
        name, _, pattern = one.partition(":")
        for folder in python.upwards(place.folder, place.root) if row.optional else [place.folder]:
            here = place if folder == place.folder else place.above(folder)
            files = here.files((name,))
            if files and (not pattern or here.says(files, pattern)):
                return True
    return False


def _bins(place: _Place) -> list[Path]:
    """The programs of the project's own Python environments."""
    places = [interpreter for where, interpreter in place.interpreters if not where.endswith(" on the PATH")]
    return [interpreter.parent for interpreter in places if (interpreter.parent.parent / "pyvenv.cfg").exists()]


def _checker(
    place: _Place, row: Checker, bins: Sequence[Path], *, configured: bool
) -> dict[str, tuple[str, ...]] | None:
    modules = [above / "node_modules" / ".bin" for above in python.upwards(place.workspace, place.top)]
    own = {"environment": list(bins), "node_modules": modules}.get(row.found, [])
    if row.found == "lint script":
        if "lint" not in place.scripts:
            return None
        words = _manager(manager_of(place))
    elif row.found == "bundle":
        words = _bundle(place, row, ()) or {}
    elif row.found == "vendor":
        words = _vendor(place, row, ()) or {}
    else:
        everywhere = row.found not in ("environment", "node_modules") or (row.found == "environment" and configured)
        program = place.program(row.program, own=own) if everywhere else _first(own, row.program)
        words = {"program": (program,)} if program else {}
    if not words:
        return None
    if row.kind == "node" and (prettier := _first(modules, "prettier")):
        words["prettier"] = (prettier,)
    if row.kind == "node" and "format" in place.scripts and "prettier" not in words:
        words["format"] = ()
    if row.kind == "python":
        words |= _formatter(place, row, words["program"], bins)
    return words


def _first(folders: Iterable[Path], name: str) -> str | None:
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


def _formatter(
    place: _Place, row: Checker, program: tuple[str, ...], bins: Sequence[Path]
) -> dict[str, tuple[str, ...]]:
    """black where the project formats with it, else ruff where it lints with that."""
    black = place.says(place.files(("pyproject.toml",)), r"^\[tool\.black\b") and place.program("black", own=bins)
    if black:
        return {"formatter": (black, "--quiet")}
    return {"formatter": (*program, "format", "--force-exclude")} if row.name == "ruff" else {}


# -- packages -------------------------------------------------------------------------------------------------------


def _packages(place: _Place) -> tuple[Packages, ...]:
    """What installs the packages of each language of a folder: by the nearest lock file that holds for it, else by
    what its manifest says."""
    chosen: dict[str, Packages] = {}
    for row in KEEPERS:
        if row.kind not in chosen and place.files(row.manifests):
            rows = [one for one in KEEPERS if one.kind == row.kind and place.files(one.manifests)]
            chosen[row.kind] = _kept_by(place, rows)
    return tuple(chosen.values())


def _kept_by(place: _Place, rows: Sequence[Keeper]) -> Packages:
    for folder in python.upwards(place.folder, place.root):
        here = place if folder == place.folder else place.above(folder)
        holding = rows if here is place else [row for row in rows if _holds_members(here, row)]
        for row in holding:
            if locks := here.files(row.locks):
                return _bound(here, row, locks[0])
        if holding and here is not place:
            return _bound(here, _said(here, holding), "")
    return _bound(place, _said(place, rows), "")


def _holds_members(above: _Place, row: Keeper) -> bool:
    name, _, pattern = row.members.partition(":")
    return name in above.names and (not pattern or above.says((name,), pattern) is not None)


def _said(place: _Place, rows: Sequence[Keeper]) -> Keeper:
    """The one that the manifest names, else the usual one."""
    saying = [row for row in rows if row.says and place.says(place.files(row.manifests), row.says)]
    return next(iter([*saying, *(row for row in rows if not row.says)]), rows[0])


def _bound(place: _Place, row: Keeper, lock: str) -> Packages:
    folder = "" if place.folder == place.root else place.folder.relative_to(place.root).as_posix()
    manifest = next(iter(place.files(row.manifests)), "")

    def told(name: str) -> str:
        return f"{folder}/{name}" if folder and name else name

    commands = _pip(place) if row.name == "pip" else _install(place, row, lock)
    return Packages(row.name, row.kind, folder, told(manifest), told(lock), commands, row.hosts, _installed(place, row))


def _install(place: _Place, row: Keeper, lock: str) -> tuple[tuple[str, ...], ...]:
    wrapper = next((f"./{name}" for name in ("gradlew", "mvnw") if name in place.names), "")
    words = {
        "where": tuple(python.where_listed(place.folder).split()) if row.name == "uv" else (),
        "wrapper": (wrapper or ("gradle" if row.name == "gradle" else "mvn"),),
    }
    if row.name == "yarn" and lock and ".yarnrc.yml" in place.names:  # yarn 2 and later name it anew
        return (("yarn", "install", "--immutable"),)
    command = _filled((row.install if lock else row.unlocked).replace("{where}", " {where}"), words)
    return (command,) if command else ()


def _pip(place: _Place) -> tuple[tuple[str, ...], ...]:
    own = next((name for name in python.ENVIRONMENTS if (place.workspace / name / "bin" / "pip").exists()), "")
    needs = [word for need in python.pip_needs(place.folder) for word in need.split(" ", 1)]
    install = (f"{own or '.venv'}/bin/pip", "install", "pytest", *needs)
    return (install,) if own else (("python3", "-m", "venv", ".venv"), install)


def _installed(place: _Place, row: Keeper) -> bool:
    if row.kind == "python":
        return any(not where.endswith(" on the PATH") for where, _ in place.interpreters)
    if row.kind == "node" and not re.search(
        r'"(?:dev|optional)?[dD]ependencies"\s*:\s*\{\s*"', place.text("package.json")
    ):
        return True
    return not row.folders or any((place.workspace / name).exists() for name in row.folders)


# -- the projects of a repository -----------------------------------------------------------------------------------


def project_at(folder: Path, workspace: Path | None = None) -> Project:
    """The project in `folder` alone, without a look at git or at the folders below. `workspace` is where the tools are
    installed when `folder` is a worktree."""
    installed = workspace or folder
    return _looked_at(_Place(folder, installed, folder, installed), "", lambda kind: True)


def projects(folder: Path, workspace: Path | None = None, *, git: Git | None = None) -> tuple[Project, ...]:
    """Every project of the repository whose top is `folder`, the top first, then by path; see the top of this module
    for which of them run their tests.

    `workspace` is the operator's repository when `folder` is a worktree of it. Takes some tens of milliseconds, since
    the operator's interpreter is asked whether it has pytest. Where git cannot be asked there is only the top.
    """
    installed = workspace or folder
    tracked, files = _listed(git or Git(folder))
    tests = _TestFiles(files)
    asked: dict[Path, bool] = {}
    found: list[Project] = []
    for path in ["", *_folders(tracked)]:
        place = _Place(folder / path, installed / path, folder, installed, asked)
        if not path or place.files(MANIFESTS):
            found.append(_looked_at(place, path, partial(tests.has, path)))
    divided = _divided(found)
    return tuple(_own_share(project, divided, tests) for project in divided)


def packages_of(folder: Path, *, git: Git | None = None) -> dict[str, tuple[Packages, ...]]:
    """What installs the packages of each folder with a manifest, by its path from the top `folder` of a repository. One
    look at git and at files: quicker than `projects`, for nothing is asked about tests."""
    tracked, _ = _listed(git or Git(folder))
    places = {path: _Place(folder / path, folder / path, folder, folder) for path in ["", *_folders(tracked)]}
    return {path: _packages(place) for path, place in places.items()}


def _listed(git: Git) -> tuple[list[str], list[str]]:
    """The files that git tracks, and those with the ones not yet tracked that no rule ignores."""
    try:
        output = git.output("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    except Refusal:
        return [], []
    entries = [os.fsdecode(entry) for entry in output.split(b"\0") if entry]
    return [entry[2:] for entry in entries if not entry.startswith("? ")], [entry[2:] for entry in entries]


def _folders(tracked: Iterable[str]) -> list[str]:
    """The folders below the top that hold a manifest which git tracks, in order."""
    exact = {name for name in MANIFESTS if "*" not in name}
    endings = tuple(name.removeprefix("*") for name in MANIFESTS if "*" in name)
    found: set[str] = set()
    for path in tracked:
        folder, _, name = path.rpartition("/")
        if folder and (name in exact or name.endswith(endings)) and folder not in found:
            parts = folder.split("/")
            if len(parts) <= DEEPEST and not NOT_PROJECTS.intersection(parts) and sanitise(folder) == folder:
                found.add(folder)
    return sorted(found)[:MOST]


class _TestFiles:
    """Which files of a repository hold tests, by the names that the tools of each language go by."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._matching: dict[str, list[str]] = {}

    def of(self, kind: str) -> list[str] | None:
        """The test files of a language in order, None when names do not tell."""
        rows = [row for row in TESTERS if row.kind == kind]
        if not self._files or not rows or not all(row.tests for row in rows):
            return None
        if kind not in self._matching:
            endings = tuple(suffix for row in rows for suffix in row.suffixes)
            pattern = re.compile("|".join(dict.fromkeys(row.tests for row in rows)))
            self._matching[kind] = sorted(
                file for file in self._files if file.endswith(endings) and pattern.search(file)
            )
        return self._matching[kind]

    def has(self, path: str, kind: str) -> bool:
        """Whether there are any in the folder `path`; True when names do not tell."""
        files = self.of(kind)
        if files is None or not path:
            return files is None or bool(files)
        begin = bisect_left(files, f"{path}/")
        return begin < len(files) and files[begin].startswith(f"{path}/")


def _looked_at(place: _Place, path: str, has_tests: Callable[[str], bool]) -> Project:
    """What one folder has, whatever the others have."""
    packages = _packages(place)
    found = _tools(place)
    tools = [tool for tool in found if has_tests(tool.row.kind)]
    if found and not tools:
        place.looked[:] = [f"files that {found[0].title} takes for tests"]
    linters = _linters(place)
    installs = {one.kind: one.install for one in packages}
    if "python" in {one.row.kind for one in tools} | {one.row.kind for one in linters}:
        installs["python"] = python.environment_command(place.workspace)
    kinds = {tool.row.kind for tool in tools}
    lacking = [what for kind, what in place.missing if kind not in kinds and has_tests(kind)]
    lacking += [FOLDERS[one.keeper] for one in packages if one.kind in kinds - {"python"} and not one.installed]
    changelog = next((name for name in CHANGELOGS if name in place.names), "")
    return Project(
        path=path,
        name=_name(place),
        tools=tuple(replace(tool, install=installs.get(tool.row.kind, "")) for tool in tools),
        linters=tuple(replace(one, install=installs.get(one.row.kind, "")) for one in linters),
        packages=packages,
        changelog=f"{path}/{changelog}" if path and changelog else changelog,
        lacks=next(iter(lacking), ""),
        looked=tuple(dict.fromkeys(place.looked)),
    )


FOLDERS = {row.name: row.folders[0] for row in KEEPERS if row.folders}
"""The folder of packages that each keeper makes."""


def _name(place: _Place) -> str:
    manifests = [name for name in ("pyproject.toml", "package.json", "Cargo.toml") if name in place.names]
    said = place.says(manifests, r'^\s*"?name"?\s*[=:]\s*"([^"\n]{1,100})"')
    return sanitise(said[1] if said else place.workspace.name)


def _divided(found: Sequence[Project]) -> list[Project]:
    """Each project without the tests that one above it runs; `found` has the top first."""
    done: list[Project] = []
    for project in found:
        tools, tested_by = project.tools, None
        for above in done:
            inside = above.within(project.path)
            if inside and inside != "":
                runs = {tool.row.kind for tool in above.tools if _collects(tool, inside)}
                if any(tool.row.kind in runs for tool in tools):
                    tested_by = above.path
                tools = tuple(tool for tool in tools if tool.row.kind not in runs)
        done.append(replace(project, tools=tools, tested_by=None if tools else tested_by))
    return done


def _collects(tool: Toolchain, inside: str) -> bool:
    """Whether a tool runs the tests of the folder `inside` below its own by itself."""
    words = dict(tool.words)
    match tool.row.name:
        case "cargo":
            return bool(words["workspace"])
        case "maven":
            return "<module>" in read(tool.folder / "pom.xml")
        case "gradle":
            return not any(
                (tool.folder / inside / name).exists() for name in ("settings.gradle", "settings.gradle.kts")
            )
        case "mix":
            return "apps_path" in read(tool.folder / "mix.exs")
        case "dotnet":
            return any(tool.folder.glob("*.sln*"))
        case "jest" | "vitest" | "node:test" | "bun":
            return all(word.startswith("-") or word == "run" for word in words["script"])
        case "pytest":
            return python.collects(tool.folder, inside)
    return False


def _own_share(project: Project, every: Sequence[Project], tests: _TestFiles) -> Project:
    """A project without the tests of those below it, which run them themselves."""
    below = [(other, inside) for other in every if (inside := project.within(other.path)) and other is not project]
    tools: list[Toolchain] = []
    for tool in project.tools:
        same = [inside for other, inside in below if any(one.row.kind == tool.row.kind for one in other.tools)]
        if tool.row.name == "script" and same and _HANDS_ON.search(" ".join(dict(tool.words)["script"])):
            continue
        if tool.row.kind == "python" and same:
            others = tuple(f"{project.path}/{inside}/" if project.path else f"{inside}/" for inside in same)
            mine = [file for file in tests.of("python") or () if project.within(file) and not file.startswith(others)]
            if not mine:
                continue
            tools.append(replace(tool, below=tuple(same)))
            continue
        tools.append(tool)
    return replace(project, tools=tuple(tools), lacks=project.lacks if tools or not project.tools else "")


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

"""The tools that Clawpy knows, read from `tools.toml` (SPEC 3.9): a new tool is a new row there.

Three tables: what runs tests, what looks at source files, what installs a project's packages. Below them is what tools
take and give: command lines, findings, what a run left; and how files of a project are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from engine.frozen import frozen
from engine.plain_files import read_plain

TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))
"""All of the file, for what else is data: formats, what a run lacked, what brings it."""

ANY_CODE = tuple(range(124))

LAST = "last"
"""The kind of tools that are used only when nothing else tests a project."""

MANIFESTS: tuple[str, ...] = tuple(TABLES["manifests"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a test runner and a linter have in common.

    `kind` is its language. `found` says how the tool is looked for, see `looking.FIND`; `program` is its name. `codes`
    are exit codes that mean it did its work. `makes` are files it puts into a project that has none.
    """

    name: str
    kind: str
    found: str
    read: str = "words"
    program: str = ""
    suffixes: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0, 1)
    environment: Mapping[str, str] = field(default_factory=dict)
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tester(Row):
    """A tool that runs tests.

    `manifests`: a folder that holds one of them may have it (`*` stands for anything but `/`); `says`: what must stand
    in one of them, as a regular expression. `test` runs everything, `one` single tests: the same where `test` takes
    `{tests}`, "" where it cannot. `tests` match the files that hold tests ("" = names do not tell). `read` is a format,
    see `readers`. `extra` is a file (name, text) that must lie in the scratch folder.
    """

    manifests: tuple[str, ...]
    test: str
    one: str = ""
    title: str = ""
    says: str = ""
    tests: str = ""
    extra: tuple[str, str] = ("", "")

    @property
    def single(self) -> str:
        """The command that runs single tests, "" when it cannot."""
        return self.test if "{tests}" in self.test else self.one


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker(Row):
    """A linter or type checker.

    `configured`: files (`name`, or `name:regular expression`) one of which shows that the project uses it, in folders
    above, too, for one that `inherits`; an `optional` one is used without, when the project's own environment has it.
    `look` is a command that looks at `{paths}`, `fixes` are commands that mend. `only_looks` is False for a script,
    which may do anything (SPEC 2.12). Of several of one `kind` and `group` the first is used.
    """

    configured: tuple[str, ...]
    look: str
    fixes: tuple[str, ...] = ()
    optional: bool = False
    inherits: bool = False
    only_looks: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """What installs a project's packages. `install` is the command where there is a lock file, `unlocked` where there
    is none. `folders` are what is there once it is done (empty: not to be told by looking). `hosts` are what it needs
    of the network. `lock` brings the lock file in step with its manifest, and runs no script of a package. `members`
    (`file:regular expression`) shows that a folder above keeps the packages of those below it, too."""

    name: str
    kind: str
    manifests: tuple[str, ...]
    hosts: tuple[str, ...]
    locks: tuple[str, ...] = ()
    install: str = ""
    unlocked: str = ""
    lock: str = ""
    says: str = ""
    folders: tuple[str, ...] = ()
    members: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What the tools of a language share. `tree` are folders of a project that hold its packages; `borrowed` are those
    that a worktree needs in place; `install` is the environment of the commands that install."""

    tree: tuple[str, ...] = ()
    borrowed: tuple[str, ...] = ()
    install: Mapping[str, str] = field(default_factory=dict)


_NAMED = {"environment": "environments", "suffixes": "suffixes", "hosts": "hosts"}
"""Keys whose value may be the name of one that several rows share."""

R = TypeVar("R")


def _made(form: type[R], row: Mapping[str, Any]) -> R:
    values = {}
    for name in (each.name for each in fields(form) if each.name in row):  # type: ignore[arg-type]
        value = row[name]
        if name in _NAMED and isinstance(value, str):
            value = TABLES[_NAMED[name]][value]
        if value == "any":
            value = ANY_CODE
        values[name] = tuple(value) if isinstance(value, list) else value
    return form(**values)


def _tester(row: Mapping[str, Any]) -> Tester:
    program = row.get("program", row["name"])
    title = "" if row["found"] == "script" else program  # that of a script names the package manager
    shared = TABLES["languages"].get(row["kind"], {})
    return _made(Tester, {"program": program, "title": title, **shared, **row})


LANGUAGES: Mapping[str, Language] = {kind: _made(Language, row) for kind, row in TABLES["languages"].items()}
TESTERS: tuple[Tester, ...] = tuple(map(_tester, TABLES["tester"]))
CHECKERS: tuple[Checker, ...] = tuple(
    _made(Checker, {"program": row["name"], "environment": "quiet", **row}) for row in TABLES["linter"]
)
KEEPERS: tuple[Keeper, ...] = tuple(
    _made(Keeper, {"unlocked": row.get("install", ""), **row}) for row in TABLES["keeper"]
)


@frozen
class Command:
    """A command line that a tool asks for.

    `environment` is added to the session's; `codes` are the exit codes that mean the tool did its work (tests may
    still be red); `report` is a file the tool writes for machines, or None when its output is all there is; `makes`
    are files that the tool puts into the project when they are missing, and that a check must not leave there.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = (0, 1)
    report: Path | None = None
    makes: tuple[str, ...] = ()


@frozen
class Finding:
    """One thing a linter said. `line` counts from 1, 0 when the whole file is meant."""

    path: str
    line: int
    rule: str
    message: str


@frozen
class Ended:
    """What a finished run left behind: its output, its exit code, the text of its report ("" without one) and the
    folder that its test ids are relative to. `tool` is the name that the result carries, `title` how the operator
    knows the command."""

    tool: str
    title: str
    output: str
    exit_code: int
    report: str
    folder: Path


def read(file: Path, limit: int = 1_000_000) -> str:
    """A text file's first `limit` bytes as text, "" when it is not there, cannot be read or is not a regular file."""
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

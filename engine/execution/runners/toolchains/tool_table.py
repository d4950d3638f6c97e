"""The tools that Clawpy knows, read from `tools.toml` (SPEC 3.9): a new tool is a new row there.

Three tables: what runs tests, what looks at source files, what installs a project's packages. Below them is what tools
take and give: command lines, findings, what a run left; and how files of a project are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from engine.frozen import frozen
from engine.plain_files import read_plain

TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))
"""The whole file, for its other tables: output formats, what a run lacked, what brings it."""

FALLBACK = "fallback"
"""The kind of tools that are used only when nothing else tests, or lints, a project."""

MANIFESTS: tuple[str, ...] = tuple(TABLES["manifests"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """What a test runner and a linter have in common.

    `kind` is its language. `detected_by` names how the tool is looked for, a key of `detection.DETECTORS`; `program` is
    its name. `exit_codes` mean that it did its work. `created_files` are what it puts into a project without them.
    """

    name: str
    kind: str
    detected_by: str
    output_format: str = "words"
    program: str = ""
    suffixes: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (0, 1)
    environment: Mapping[str, str] = field(default_factory=dict)
    created_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRunnerRow(ToolRow):
    """A tool that runs tests.

    A folder that holds one of `manifests` may have it (`*` stands for anything but `/`); `manifest_pattern` is an
    expression that one of them must match. `test_command` runs everything, `single_test_command` single tests: the same
    where the former takes `{tests}`, "" where it cannot. `test_files` is a regular expression for files that hold tests
    ("" = names do not tell). `output_format` is one of `output_readers`. `extra_file` (name, text) must lie in the
    scratch folder.
    """

    manifests: tuple[str, ...]
    test_command: str
    single_test_command: str = ""
    title: str = ""
    manifest_pattern: str = ""
    test_files: str = ""
    extra_file: tuple[str, str] = ("", "")

    @property
    def single(self) -> str:
        """The command that runs single tests, "" when it cannot."""
        return self.test_command if "{tests}" in self.test_command else self.single_test_command


@dataclass(frozen=True, slots=True, kw_only=True)
class LinterRow(ToolRow):
    """A linter or type checker.

    `configured` are files (`name`, or `name:regular expression`) one of which shows that the project uses it, also in
    the folders above if it `uses_parent_settings`; one that `runs_unconfigured` is used without when the project's own
    environment has it. `lint_command` checks `{paths}`, `fix_commands` change them. `is_read_only` is False for a
    script, which may do anything (SPEC 2.12). Of several of one `kind` and `group` the first is used.
    """

    configured: tuple[str, ...]
    lint_command: str
    fix_commands: tuple[str, ...] = ()
    runs_unconfigured: bool = False
    uses_parent_settings: bool = False
    is_read_only: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageManagerRow:
    """What installs a project's packages.

    `install_command` is used where there is a lock file, `unlocked_install_command` where there is none.
    `package_folders` exist once it is done (empty: the files do not tell). `hosts` are what it needs of the network.
    `update_lock_command` brings the lock file in step with its manifest, and runs no script of a package.
    `workspace_sign` (`file:regular expression`) shows that a folder above keeps the packages of those below it, too."""

    name: str
    kind: str
    manifests: tuple[str, ...]
    hosts: tuple[str, ...]
    lock_files: tuple[str, ...] = ()
    install_command: str = ""
    unlocked_install_command: str = ""
    update_lock_command: str = ""
    manifest_pattern: str = ""
    package_folders: tuple[str, ...] = ()
    workspace_sign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What the tools of a language share. `package_folders` of a project hold its packages; `linked_folders` are those
    that a worktree needs in place; `install_environment` is that of the commands that install. `test_runners` are
    values of the rows of its test runners."""

    package_folders: tuple[str, ...] = ()
    linked_folders: tuple[str, ...] = ()
    install_environment: Mapping[str, str] = field(default_factory=dict)
    test_runners: Mapping[str, Any] = field(default_factory=dict)


_SHARED_VALUES = {"environment": "environments", "suffixes": "suffixes", "hosts": "hosts"}
"""Keys whose value may be the name of one that several rows share."""

RowType = TypeVar("RowType")


def build_row(form: type[RowType], row: Mapping[str, Any]) -> RowType:
    """A table of the file as a row. Raises `TypeError` for an unknown or a missing key, `KeyError` for the name of a
    shared value that does not exist."""
    values = {}
    for name, value in row.items():
        if name in _SHARED_VALUES and isinstance(value, str):
            value = TABLES[_SHARED_VALUES[name]][value]
        if name == "exit_codes" and value == "any":
            value = range(124)
        values[name] = tuple(value) if isinstance(value, list | range) else value
    return form(**values)


def _test_runner(row: Mapping[str, Any]) -> TestRunnerRow:
    program = row.get("program", row["name"])
    title = "" if row["detected_by"] == "script" else program  # that of a script names the package manager
    return build_row(
        TestRunnerRow, {"program": program, "title": title, **language_of(row["kind"]).test_runners, **row}
    )


LANGUAGES: Mapping[str, Language] = {kind: build_row(Language, row) for kind, row in TABLES["languages"].items()}


def language_of(kind: str) -> Language:
    """What the tools of a language share; nothing for a language without such a table."""
    return LANGUAGES.get(kind, Language())


TEST_RUNNERS: tuple[TestRunnerRow, ...] = tuple(map(_test_runner, TABLES["test_runner"]))
LINTERS: tuple[LinterRow, ...] = tuple(
    build_row(LinterRow, {"program": row["name"], "environment": "quiet", **row}) for row in TABLES["linter"]
)
PACKAGE_MANAGERS: Mapping[str, PackageManagerRow] = {
    row["name"]: build_row(PackageManagerRow, {"unlocked_install_command": row.get("install_command", ""), **row})
    for row in TABLES["package_manager"]
}
"""By name, in the order in which they are tried."""


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
class FinishedRun:
    """What a finished run left behind: its output, its exit code, the text of its report ("" without one) and the
    folder that its test ids are relative to. `tool` is the name that the result carries, `title` how the operator
    knows the command."""

    tool: str
    title: str
    output: str
    exit_code: int
    report: str
    folder: Path


def read_text(file: Path, limit: int = 1_000_000) -> str:
    """A text file's first `limit` bytes as text, "" when it is not there, cannot be read or is not a regular file."""
    try:
        return read_plain(file, limit, cut=True).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def as_operand(path: str) -> str:
    """A path as a command's operand: one that begins with a dash cannot become an option."""
    return f"./{path}" if path.startswith("-") else path


def is_inside(path: str) -> bool:
    """Whether a path stays inside the project: relative, no `..`, not empty."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path

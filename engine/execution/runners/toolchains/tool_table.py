"""The tools that Clawpy knows, read from `tools.toml` (SPEC 3.9): a new tool is a new row there.

It has three tables: test runners, linters, package managers. Below them are the values that tools take and return, and
functions that read files of a project.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from engine.files import read_plain, read_table
from engine.frozen import frozen

TABLES: Mapping[str, Any] = read_table(__file__, "tools.toml")
"""The whole file, for its other tables: output formats, missing items and their fixes."""

FALLBACK = "fallback"
"""The kind of tools that are used only when nothing else tests, or lints, a project."""

TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test[_-][^/]*$|[._-](?:test|tests|spec)\.[^/.]+$"
    r"|(?:^|/)(?:conftest|tests)\.py$|(?:^|/)Test[A-Z][^/]*$|[a-z0-9]Tests?\.\w+$"
)
"""Files that hold tests, by their folder or by the naming rules of any language."""

MANIFESTS: tuple[str, ...] = tuple(TABLES["manifests"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """The fields that test runners and linters share."""

    name: str
    kind: str
    """Its language."""
    detected_by: str = "program"
    """How the tool is found: a case of `detection._find_tool`."""
    output_format: str = "words"
    """A reader of `output_readers`."""
    program: str = ""
    """The name of the program."""
    wrapper: str = ""
    """A script of the project that runs this program in the right version, where there is one."""
    manifest_pattern: str = ""
    """A regular expression that one of the manifests must match."""
    suffixes: tuple[str, ...] = ()
    """Endings of files that matter to it; () = any."""
    exit_codes: tuple[int, ...] = (0, 1)
    """Exit codes with which it did its work."""
    environment: Mapping[str, str] = field(default_factory=dict)
    created_files: tuple[str, ...] = ()
    """Files that it puts into a project without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRunnerRow(ToolRow):
    """A tool that runs tests."""

    manifests: tuple[str, ...]
    """Files of which a folder with this tool has one; `*` matches anything but `/`."""
    test_command: str
    """Runs the whole suite; with `{tests}` also single tests."""
    single_test_command: str = ""
    """Runs single tests, where `test_command` cannot."""
    title: str = ""
    """The name on screens; "" is made of the package manager."""
    test_files: str = ""
    """A regular expression for files that hold tests; "" = names do not tell."""
    member_sign: str = ""
    """`file:regular expression`: shows that it also runs the tests of the folders below."""
    extra_file: tuple[str, str] = ("", "")
    """Name and text of a file that must lie in the scratch folder."""

    @property
    def single(self) -> str:
        """The command that runs single tests, "" when it cannot."""
        return self.test_command if "{tests}" in self.test_command else self.single_test_command


@dataclass(frozen=True, slots=True, kw_only=True)
class LinterRow(ToolRow):
    """A linter or type checker."""

    configured: tuple[str, ...]
    """Files (`name`, or `name:regular expression`) one of which shows that the project uses it."""
    lint_command: str
    """Checks `{paths}`."""
    fix_commands: tuple[str, ...] = ()
    """Change `{paths}`."""
    runs_unconfigured: bool = False
    """It is used without configuration when the project's own environment has it."""
    uses_parent_settings: bool = False
    """It may be configured in a folder above."""
    group: str = ""
    """Only the first linter of one kind and group is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageManagerRow:
    """A tool that installs a project's packages."""

    name: str
    kind: str
    """Its language."""
    manifests: tuple[str, ...]
    hosts: tuple[str, ...]
    """The hosts that it needs."""
    lock_files: tuple[str, ...] = ()
    install_command: str = ""
    """Used where there is a lock file."""
    unlocked_install_command: str = ""
    """Used where there is no lock file."""
    update_lock_command: str = ""
    """Updates the lock file to its manifest, and runs no script of a package."""
    add_command: str = ""
    """Adds a package for development."""
    manifest_pattern: str = ""
    """A regular expression that one of the manifests must match."""
    package_folders: tuple[str, ...] = ()
    """Folders that exist once packages are installed; () = folders do not tell."""
    workspace_sign: str = ""
    """`file:regular expression`: shows that a folder also keeps the packages of the folders below it."""
    program: str = ""
    """The `{wrapper}` of its commands, where the project has no script `wrapper`."""
    wrapper: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Values that the tools of one language share."""

    package_folders: tuple[str, ...] = ()
    """Folders of a project that hold its packages."""
    linked_folders: tuple[str, ...] = ()
    """Folders that are linked into a worktree."""
    install_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the commands that install."""
    test_runners: Mapping[str, Any] = field(default_factory=dict)
    """Values of the rows of its test runners."""


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
    title = "" if row.get("detected_by") == "script" else program  # that of a script names the package manager
    return build_row(
        TestRunnerRow, {"program": program, "title": title, **language_of(row["kind"]).test_runners, **row}
    )


LANGUAGES: Mapping[str, Language] = {kind: build_row(Language, row) for kind, row in TABLES["languages"].items()}


def language_of(kind: str) -> Language:
    """The values of a language; an empty `Language` for one without a table."""
    return LANGUAGES.get(kind, Language())


TEST_RUNNERS: tuple[TestRunnerRow, ...] = tuple(map(_test_runner, TABLES["test_runner"]))
LINTERS: tuple[LinterRow, ...] = tuple(
    build_row(LinterRow, {"program": row["name"], "environment": "quiet", **row}) for row in TABLES["linter"]
)
PACKAGE_MANAGERS: Mapping[str, PackageManagerRow] = {
    row["name"]: build_row(PackageManagerRow, {"unlocked_install_command": row.get("install_command", ""), **row})
    for row in TABLES["package_manager"]
}
"""Package managers by name, in the order in which they are tried."""


@frozen
class Command:
    """A command line of a tool."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to the session's."""
    exit_codes: tuple[int, ...] = (0, 1)
    """Exit codes with which the tool did its work; tests may still have failed."""
    report: Path | None = None
    """A file that the tool writes for machines; None when it only prints."""
    created_files: tuple[str, ...] = ()
    """Files that the tool puts into a project without them, and that a check must not leave there."""


@frozen
class Finding:
    """One finding of a linter."""

    path: str
    line: int
    """From 1; 0 for the whole file."""
    rule: str
    message: str


@frozen
class FinishedRun:
    """The output of a run that ended."""

    tool: str
    """The name of the tool in its result."""
    title: str
    """The name of its command on screens."""
    output: str
    exit_code: int
    report: str
    """The text of its report, "" without one."""
    folder: Path
    """The folder to which test ids are relative."""


def read_text(file: Path, limit: int = 1_000_000) -> str:
    """The first `limit` bytes of a file as text; "" when it does not exist, cannot be read or is no regular file."""
    try:
        return read_plain(file, limit, cut=True).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file; {} when it cannot be read or is not TOML, which the project's own tools will report."""
    try:
        return tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def folders_up_to(folder: Path, top: Path) -> list[Path]:
    """`folder` and those above it up to `top`; `folder` alone when it lies elsewhere."""
    if not folder.is_relative_to(top):
        return [folder]
    return [folder, *(above for above in folder.parents if above.is_relative_to(top))]


def as_operand(path: str) -> str:
    """A path as a command's operand: one that begins with a dash cannot become an option."""
    return f"./{path}" if path.startswith("-") else path


def is_inside(path: str) -> bool:
    """Whether a path stays inside the project: relative, no `..`, not empty."""
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path

"""Finds the projects of a repository, and the tools that test, lint and install them (SPEC 3.8, 3.9).

This module has the tools that Clawpy knows, as rows of `tools.toml`. To add a tool, add a row there. The file also has
what a run may lack, such as a program or a package. Such an item is neither a finding nor a failed test, because it
says nothing about the project.

`project_folder` reads one folder, in which `detection` finds test runners, linters and package managers.
`project_tools` makes the command lines of tools, and reads the findings of linters. `run_results` reads the results of
tests. `python_projects` finds the environments of Python, and the tests of a changed Python file. `projects` combines
the folders of a repository; sensing and flows use it. `installing` finds the commands that install packages, and puts
packages into the tree. `lock_files` compares lock files with manifests.

Nothing here starts a program of a repository. It may import engine.git, engine.files, engine.model, `runners`,
`engine.execution.sandbox.host_paths`, platformdirs and the standard library; `installing` also
`engine.execution.live_session`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from engine.files import read_plain, read_table
from engine.frozen import frozen, frozen_kw_only

TOOL_TABLES: Mapping[str, Any] = read_table(__file__, "tools.toml")
"""The whole file, for its other tables: output formats, missing items and their fixes."""

FALLBACK = "fallback"
"""Stands for the language of tools that are used only if no other tool tests or lints the project."""

TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test[_-][^/]*$|[._-](?:test|tests|spec)\.[^/.]+$"
    r"|(?:^|/)(?:conftest|tests)\.py$|(?:^|/)Test[A-Z][^/]*$|[a-z0-9]Tests?\.\w+$"
)
"""Files that hold tests, by their folder or by the naming rules of any language."""

MANIFESTS: tuple[str, ...] = tuple(TOOL_TABLES["manifests"])
"""Files of which each shows that a folder is a project. `*` matches anything but `/`."""


_SHARED_VALUES = {"environment": "environments", "suffixes": "suffixes", "hosts": "hosts"}
"""Keys of rows whose value may be the name of a shared value, by the table with the shared values."""

RowType = TypeVar("RowType")


@frozen_kw_only
class ToolRow:
    """The fields that test runners and linters share."""

    name: str
    language: str
    detected_by: str = "program"
    """How the tool is found: a case of `detection`."""
    output_format: str = "words"
    """A format of reports or of printed output."""
    program: str = ""
    """The name of the program."""
    wrapper: str = ""
    """The name of a script in a project that runs this program in the right version; "" for none."""
    manifest_pattern: str = ""
    """A regular expression that one of the manifests must match."""
    suffixes: tuple[str, ...] = ()
    """The endings of files that concern it; () for all files."""
    exit_codes: tuple[int, ...] = (0, 1)
    """The exit codes with which it did its work."""
    environment: Mapping[str, str] = field(default_factory=dict)
    created_files: tuple[str, ...] = ()
    """Files that it makes in a project that does not have them."""


@frozen_kw_only
class TestRunnerRow(ToolRow):
    """A tool that runs tests."""

    manifests: tuple[str, ...]
    """Files of which a folder with this tool has at least one. `*` matches anything but `/`."""
    test_command: str
    """The command that runs the whole suite. If it contains `{tests}`, it also runs single tests."""
    single_test_command: str = ""
    """The command that runs single tests, if `test_command` cannot."""
    title: str = ""
    """The name on screens; "" for that of the program, or of the package manager that runs its script."""
    test_files: str = ""
    """A regular expression for files that contain tests; "" if their names do not show it."""
    runs_files: bool = False
    """Whether it can run the tests of one file, which is then named instead of a test."""
    member_sign: str = ""
    """`file:regular expression`. A match shows that the tool also runs the tests of the folders below."""
    tests_below: str = ""
    """What decides whether the tool also runs the tests of a folder below: a case of `projects`. "" if only
    `member_sign` does."""
    extra_file: tuple[str, str] = ("", "")
    """The name and the text of a file that the tool needs in the scratch folder."""

    @property
    def single_tests_template(self) -> str:
        """The command that runs single tests; "" if the tool cannot run them."""
        return self.test_command if "{tests}" in self.test_command else self.single_test_command


@frozen_kw_only
class LinterRow(ToolRow):
    """A linter or type checker."""

    configured: tuple[str, ...]
    """Files (`name`, or `name:regular expression`) of which each shows that the project uses the linter."""
    lint_command: str
    """The command that checks `{paths}`."""
    fix_commands: tuple[str, ...] = ()
    """The commands that format and fix `{paths}`."""
    runs_unconfigured: bool = False
    """Whether it is used without configuration if the project's own environment has it."""
    uses_parent_settings: bool = False
    """Whether it may be configured in a folder above."""
    group: str = ""
    """Only the first linter of one language and group is used."""


@frozen_kw_only
class PackageManagerRow:
    """A tool that installs a project's packages."""

    name: str
    language: str
    manifests: tuple[str, ...]
    hosts: tuple[str, ...]
    """The hosts that it needs."""
    lock_files: tuple[str, ...] = ()
    install_command: str = ""
    """The command for a project with a lock file."""
    unlocked_install_command: str = ""
    """The command for a project without a lock file."""
    update_lock_command: str = ""
    """The command that updates the lock file to its manifest. It runs no script of a package."""
    add_command: str = ""
    """The command that adds a package for development."""
    manifest_pattern: str = ""
    """A regular expression that one of the manifests must match."""
    package_folders: tuple[str, ...] = ()
    """Folders that exist after packages are installed; () if no folder shows it."""
    workspace_sign: str = ""
    """`file:regular expression`. A match shows that a folder also has the packages of the folders below it."""
    program: str = ""
    """The program that replaces `{wrapper}` in its commands, if the project has no script `wrapper`."""
    wrapper: str = ""
    """The name of a script in a project that runs this program in the right version; "" for none."""


@frozen_kw_only
class Language:
    """Values that the tools of one language share."""

    package_folders: tuple[str, ...] = ()
    """Folders of a project that contain its packages."""
    linked_folders: tuple[str, ...] = ()
    """Folders that are linked into a worktree."""
    install_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the commands that install."""
    test_runners: Mapping[str, Any] = field(default_factory=dict)
    """Values that all rows of its test runners have."""


def build_row(form: type[RowType], row: Mapping[str, Any]) -> RowType:
    """Make a row from a table of the file. Raises `TypeError` for an unknown or a missing key, and `KeyError` if a
    shared value does not exist."""
    values = {}
    for name, value in row.items():
        if name in _SHARED_VALUES and isinstance(value, str):
            value = TOOL_TABLES[_SHARED_VALUES[name]][value]
        if name == "exit_codes" and value == "any":
            value = range(124)
        values[name] = tuple(value) if isinstance(value, list | range) else value
    return form(**values)


LANGUAGES: Mapping[str, Language] = {name: build_row(Language, row) for name, row in TOOL_TABLES["languages"].items()}
"""The languages by name."""

TEST_RUNNERS: tuple[TestRunnerRow, ...] = tuple(
    build_row(TestRunnerRow, {"program": row["name"], **LANGUAGES[row["language"]].test_runners, **row})
    for row in TOOL_TABLES["test_runner"]
)
"""The test runners, in the order in which they are tried."""

LINTERS: tuple[LinterRow, ...] = tuple(
    build_row(LinterRow, {"program": row["name"], "environment": "quiet", **row}) for row in TOOL_TABLES["linter"]
)
"""The linters and type checkers, in the order in which they are tried."""

PACKAGE_MANAGERS: Mapping[str, PackageManagerRow] = {
    row["name"]: build_row(PackageManagerRow, {"unlocked_install_command": row.get("install_command", ""), **row})
    for row in TOOL_TABLES["package_manager"]
}
"""Package managers by name, in the order in which they are tried."""


@frozen
class ToolCommand:
    """A command line of a tool."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to those of the session."""
    exit_codes: tuple[int, ...] = (0, 1)
    """The exit codes with which the tool did its work. Tests may still have failed."""
    report: Path | None = None
    """The file to which the tool writes a report; None if it only prints."""
    created_files: tuple[str, ...] = ()
    """Files that the tool makes in a project that does not have them. A check must remove them."""


# -- what a run may lack

MISSING_KINDS: Mapping[str, Any] = TOOL_TABLES["missing"]
"""The kinds of missing items: the messages that show them, a sentence and a fix for each."""

PROGRAM_FIXES: Mapping[str, str] = TOOL_TABLES["programs"]
"""The commands that install programs which are not packages of a project, by program."""

EXECUTION_KINDS = frozenset({"program", "permission"})
"""The kinds that a shell reports if it cannot start a program. They count even if the exit code is 0."""


@frozen
class MissingItem:
    """Something that a run needed and did not find: a program, a package, the network, a service … (SPEC 2.12)."""

    kind: str
    """A key of `MISSING_KINDS`."""
    name: str
    """Its name as the tool printed it; "" if it printed none."""

    @property
    def sentence(self) -> str:
        """A sentence on what is missing, without a full stop."""
        return str(MISSING_KINDS[self.kind]["sentence"]).format(what=self.name or "it")


@cache
def _compile_patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """(kind, regular expression, alias) of each message, in the order in which they are tried."""
    patterns = []
    for kind, row in MISSING_KINDS.items():
        for sign in row["signs"]:
            message, alias = (sign["says"], sign["as"]) if isinstance(sign, dict) else ("".join(sign), "")
            for name, expression in TOOL_TABLES["missing_names"].items():
                message = message.replace(name, expression)
            patterns.append((kind, re.compile(message, re.MULTILINE), alias))
    return tuple(patterns)


def _find_missing(text: str) -> Iterator[MissingItem]:
    """The missing items that are named in `text`, the output of a run or of a failed test. They have the order of the
    rows."""
    plugins: Mapping[str, str] = TOOL_TABLES["plugins"]
    for kind, pattern, alias in _compile_patterns():
        for match in pattern.finditer(text):
            name = (match.groupdict().get("what") or "").strip()
            if alias:
                yield MissingItem(kind, alias.format(what=name))
            elif kind not in ("fixture", "option"):
                yield MissingItem(kind, name)
            elif name in plugins:  # any other name may be a mistake in the project
                yield MissingItem(kind, plugins[name])


def find_first_missing(text: str, is_valid: Callable[[MissingItem], bool]) -> MissingItem | None:
    """The first missing item for which `is_valid` is true, or None."""
    return next(filter(is_valid, _find_missing(text)), None)


def find_usual_fix(missing: MissingItem, install: str) -> str:
    """The command or the advice for a missing item. `install` is the command that installs the project's packages."""
    if missing.kind == "program" and missing.name in PROGRAM_FIXES:
        return PROGRAM_FIXES[missing.name]
    row = MISSING_KINDS[missing.kind]
    fix = row["fix"] if missing.name else row.get("fix_nameless", row["fix"])
    return str(fix).format(what=missing.name, install=install)


# -- files of a project


def read_text(file: Path, limit: int = 1_000_000) -> str:
    """The first `limit` bytes of a file as text; "" if it does not exist, cannot be read or is no regular file."""
    try:
        return read_plain(file, limit, cut=True).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def list_folders_up_to(folder: Path, top: Path) -> list[Path]:
    """`folder` and the folders above it up to `top`. Only `folder` if it is not below `top`."""
    if not folder.is_relative_to(top):
        return [folder]
    return [folder, *(above for above in folder.parents if above.is_relative_to(top))]

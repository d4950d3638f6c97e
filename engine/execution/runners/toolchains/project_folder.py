"""One folder in which tools are searched: its files, its interpreters and its programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from engine.execution.runners.toolchains import python_environments
from engine.execution.runners.toolchains.python_environments import ON_PATH
from engine.execution.runners.toolchains.tool_table import folders_up_to, read_text
from engine.execution.sandbox.environment import which


@dataclass
class ProjectFolder:
    """One folder in which tools are searched."""

    folder: Path
    workspace: Path
    """The same folder in the operator's tree; another one than `folder` in a worktree."""
    root: Path
    """The top of the files."""
    top: Path
    """The top of the operator's repository, in which the tools are installed."""
    pytest_by_interpreter: dict[Path, bool] = field(default_factory=dict)
    """Whether each interpreter has pytest, shared by the folders of one search."""
    searched: list[str] = field(default_factory=list)
    """The places where tools were searched, in words."""
    missing: list[tuple[str, str]] = field(default_factory=list)
    """Language and name of each tool that was not found."""
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> frozenset[str]:
        """The files and links of the folder itself."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except OSError:
            return frozenset()

    def with_folders_above(self) -> Iterator[ProjectFolder]:
        """This folder and those above it, up to the top of the files."""
        yield self
        for folder in folders_up_to(self.folder, self.root)[1:]:
            workspace = self.top / folder.relative_to(self.root)
            yield ProjectFolder(folder, workspace, self.root, self.top, self.pytest_by_interpreter)

    def find_files(self, patterns: Sequence[str]) -> list[str]:
        """The existing files that match `patterns`, in which `*` matches anything but `/`."""
        names: list[str] = []
        for pattern in patterns:
            if "/" in pattern:
                names += [str(file.relative_to(self.folder)) for file in sorted(self.folder.glob(pattern))]
            elif "*" in pattern:
                names += sorted(name for name in self.names if fnmatch(name, pattern))
            elif pattern in self.names:
                names.append(pattern)
        return names

    def read_file(self, name: str) -> str:
        """The text of a file of the folder, "" when it cannot be read."""
        if name not in self._texts:
            self._texts[name] = read_text(self.folder / name)
        return self._texts[name]

    def search_files(self, files: Sequence[str], pattern: str) -> re.Match[str] | None:
        """The first match of `pattern` in `files`, or None."""
        matches = (re.search(pattern, self.read_file(name), re.MULTILINE) for name in files[:20])
        return next((match for match in matches if match is not None), None)

    @cached_property
    def interpreters(self) -> list[tuple[str, Path]]:
        interpreters = python_environments.find_interpreters(self.workspace, self.top)
        if self.folder != self.workspace:  # a worktree that was prepared has an environment of its own
            own = self.folder / ".venv" / "bin" / "python"
            interpreters = [*([(".venv of the worktree", own)] if own.exists() else []), *interpreters]
        return interpreters

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json; {} when it cannot be read, npm will say why in its own words."""
        try:
            scripts = json.loads(self.read_file("package.json")).get("scripts", {})
            return {str(name): str(script) for name, script in scripts.items()}
        except (ValueError, AttributeError):
            return {}

    def has_pytest(self, where: str, interpreter: Path) -> bool:
        if interpreter not in self.pytest_by_interpreter:
            self.pytest_by_interpreter[interpreter] = python_environments.has_pytest(
                interpreter, operators=where.endswith(ON_PATH)
            )
        return self.pytest_by_interpreter[interpreter]

    def find_program(self, name: str, *, own: Iterable[Path] = ()) -> str | None:
        """A program in one of the folders `own`, else the operator's."""
        return first_executable(own, name) or which(name, project=self.top)


def first_executable(folders: Iterable[Path], name: str) -> str | None:
    """The first program of that name in `folders`, None when there is none."""
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)

"""One folder in which `detection` searches tools: its files, its scripts and its interpreters, each read once. No
program of the folder is run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from engine.execution.runners.toolchains import list_folders_up_to, python_projects, read_text
from engine.execution.runners.toolchains.python_projects import Interpreter
from engine.execution.sandbox.host_paths import which


@dataclass
class ProjectFolder:
    """One folder in which tools are searched."""

    folder: Path
    root: Path
    """The top of the files: a worktree, or the operator's repository."""
    top: Path
    """The top of the operator's repository, in which the tools are installed."""
    pytest_by_interpreter: dict[Interpreter, bool] = field(default_factory=dict)
    """Whether each interpreter has pytest. The folders of one search share it."""
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def workspace(self) -> Path:
        """The same folder in the operator's tree. It is different from `folder` if that is in a worktree."""
        return self.top / self.folder.relative_to(self.root)

    @cached_property
    def file_names(self) -> frozenset[str]:
        """The names of files and links in the folder."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
        except OSError:
            return frozenset()

    def walk_upwards(self) -> Iterator[ProjectFolder]:
        """This folder and those above it, up to the top of the files."""
        yield self
        for folder in list_folders_up_to(self.folder, self.root)[1:]:
            yield ProjectFolder(folder, self.root, self.top, self.pytest_by_interpreter)

    def find_files(self, patterns: Sequence[str]) -> list[str]:
        """The existing files that match `patterns`, in which `*` matches anything but `/`."""
        names: list[str] = []
        for pattern in patterns:
            if "/" in pattern:
                names += [str(file.relative_to(self.folder)) for file in sorted(self.folder.glob(pattern))]
            elif "*" in pattern:
                names += sorted(name for name in self.file_names if fnmatch(name, pattern))
            elif pattern in self.file_names:
                names.append(pattern)
        return names

    def read_file(self, name: str) -> str:
        """The text of a file of the folder; "" if it cannot be read."""
        if name not in self._texts:
            self._texts[name] = read_text(self.folder / name)
        return self._texts[name]

    def search_files(self, files: Sequence[str], pattern: str) -> re.Match[str] | None:
        """The first match of `pattern` in `files`, or None."""
        matches = (re.search(pattern, self.read_file(name), re.MULTILINE) for name in files[:20])
        return next((match for match in matches if match is not None), None)

    def shows(self, evidence: str) -> bool:
        """Whether the folder has the file that `evidence` names. `evidence` is `name`, or `name:regular expression`,
        which must then match the text of the file."""
        name, _, pattern = evidence.partition(":")
        files = self.find_files((name,))
        return bool(files) and (not pattern or self.search_files(files, pattern) is not None)

    @cached_property
    def interpreters(self) -> list[Interpreter]:
        """The interpreters of the project, the preferred one first."""
        interpreters = python_projects.find_interpreters(self.workspace, self.top)
        worktree_python = self.folder / ".venv" / "bin" / "python"
        if self.folder != self.workspace and worktree_python.exists():  # a worktree that was prepared
            interpreters.insert(0, Interpreter(".venv of the worktree", worktree_python))
        return interpreters

    @property
    def environments(self) -> list[Interpreter]:
        """The interpreters that belong to the project and not to the operator."""
        return [interpreter for interpreter in self.interpreters if not interpreter.is_operators]

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json; {} if it cannot be read, because npm will report that."""
        try:
            scripts = json.loads(self.read_file("package.json")).get("scripts", {})
            return {str(name): str(script) for name, script in scripts.items()}
        except (ValueError, AttributeError):
            return {}

    def has_pytest(self, interpreter: Interpreter) -> bool:
        """See `python_projects.has_pytest`. The answer is remembered."""
        if interpreter not in self.pytest_by_interpreter:
            self.pytest_by_interpreter[interpreter] = python_projects.has_pytest(interpreter)
        return self.pytest_by_interpreter[interpreter]

    def find_program(self, name: str, *, own: Iterable[Path] = ()) -> str | None:
        """A program in one of the folders `own`, or else on the operator's PATH."""
        return find_executable(own, name) or which(name, project=self.top)


def find_executable(folders: Iterable[Path], name: str) -> str | None:
    """The first program with this name in `folders`; None if there is none."""
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)

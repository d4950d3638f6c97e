"""git in one folder."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypedDict, Unpack

from engine.frozen import frozen
from engine.git.process import GitError, operators_configuration, run_git
from engine.git.repository import find_repository
from engine.git.shadow import Repository
from engine.model import Refusal, sanitise

_NO_SUBMODULES = "--ignore-submodules=all"  # .gitmodules would win over the configuration
_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")

_OPTIONS_BY_COMMAND: Mapping[str, tuple[str, ...]] = {
    "status": (_NO_SUBMODULES,),
    "diff": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-files": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-index": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-tree": _NO_PROGRAMS,
    "log": _NO_PROGRAMS,
    "show": _NO_PROGRAMS,
}
"""Options of all these commands: no program, and no look into a repository below the folder."""


def _check_nothing() -> None:
    """No session, nothing to check."""


class RunOptions(TypedDict, total=False):
    """The options of `Git.run`, for the methods that call it."""

    stdin: bytes | None
    environment: Mapping[str, str] | None
    allowed: Sequence[int]
    timeout: float | None


@frozen
class Git:
    """git in one folder, without side effects and without any program that a repository names; see `repository`.

    `environment` is added to a fixed one (for instance GIT_INDEX_FILE). `pinned`: the repository, also when something
    else lies in `folder` by then; by default it is looked for before each call. `check` is called before each call and
    after a failed one, and may raise: a session's git ends with the session.
    """

    folder: Path
    timeout: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    pinned: Repository | None = None
    check: Callable[[], None] = _check_nothing

    @property
    def repository(self) -> Repository:
        """The repository of `folder`. Raises `Refusal`: `no_folder`, `bare_repository`, `git_failed`."""
        repository = self.pinned or find_repository(self.folder)
        if repository is not None:
            return repository
        if not self.folder.is_dir():
            raise Refusal("no_folder", f"{self.folder} does not exist", "name an existing folder")
        if (self.folder / "HEAD").exists() and (self.folder / "objects").is_dir():
            message = f"{self.folder} is a bare repository without working files"
            raise Refusal("bare_repository", message, "clone it first")
        raise GitError(["rev-parse"], 128, "not a git repository", self.folder)

    def pin(self) -> Git:
        """The same, bound to the repository that is there now. Raises as `repository` does."""
        return replace(self, pinned=self.repository)

    def over(self, folder: Path, index: Path) -> Git:
        """The same repository over other files and another index. `folder` may belong to a session: its own `.git` is
        never looked at."""
        variables = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
        return replace(self.pin(), folder=folder, environment={**self.environment, **variables})

    def output(self, *arguments: str, **options: Unpack[RunOptions]) -> bytes:
        """Standard output of `git ARGUMENTS`. Raises `GitError` when the exit code is not among `allowed`,
        or when it takes longer than `timeout` seconds (exit code -1)."""
        return self.run(*arguments, **options).stdout

    def text(self, *arguments: str, **options: Unpack[RunOptions]) -> str:
        """The same as text without the last newline; bytes that are no UTF-8 survive as surrogate escapes."""
        return self.output(*arguments, **options).decode(errors="surrogateescape").removesuffix("\n")

    def items(self, *arguments: str, **options: Unpack[RunOptions]) -> list[str]:
        """The items that a command with `-z` prints, as `text` decodes them; none is empty."""
        return list(filter(None, self.output(*arguments, **options).decode(errors="surrogateescape").split("\0")))

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """The finished process, for callers that need the exit code."""
        self.check()
        repository = self.repository
        try:
            done = run_git(
                _add_options(arguments),
                self.folder,
                {**repository.environment(), **self.environment, **(environment or {})},
                without=(repository.top, repository.common.parent),
                stdin=stdin,
                timeout=timeout or self.timeout,
            )
            if done.returncode not in allowed:
                raise GitError(arguments, done.returncode, done.stderr.decode(errors="replace"), self.folder)
        except GitError as error:
            self.check()
            if error.exit_code == -1 and (pipes := _find_pipes(repository.top)):
                message = f"{error.stderr}; git is waiting for something that is not a file: {', '.join(pipes)}"
                raise GitError(arguments, -1, message, self.folder) from error
            raise
        return done


def _add_options(arguments: Sequence[str]) -> list[str]:
    """The arguments with what their command always gets."""
    position = 0
    while arguments[position] == "-c":
        position += 2
    return [*arguments[: position + 1], *_OPTIONS_BY_COMMAND.get(arguments[position], ()), *arguments[position + 1 :]]


def _find_pipes(top: Path) -> list[str]:
    """The first few pipes in a tree: git opens one that is called `.gitignore`, and waits for ever."""
    pipes = (
        os.path.relpath(file, top)
        for folder, _, names in os.walk(top)
        for name in names
        if stat.S_ISFIFO((file := Path(folder, name)).lstat().st_mode)
    )
    return [sanitise(name) for name in itertools.islice(pipes, 3)]


def version() -> str:
    """The output of `git --version`. Raises `Refusal` `no_git`."""
    return run_git(["--version"], Path("/"), {}).stdout.decode(errors="replace").strip()


def create(folder: Path, branch: str = "main") -> Git:
    """Make an empty repository in `folder`, which is there. Raises `GitError`."""
    arguments = ["init", "--quiet", f"--initial-branch={branch}", "--template="]
    done = run_git(arguments, folder, {"GIT_DIR": str(folder / ".git"), **operators_configuration()})
    if done.returncode:
        raise GitError(arguments, done.returncode, done.stderr.decode(errors="replace"), folder)
    return Git(folder)

"""Runs git, and reads repositories without running any of their code (SPEC 3.9, 11.1). No other package runs git.

`Git(folder).text("rev-parse", "HEAD")` gives the output of a command. It raises `GitError` for an exit code that is not
`allowed`. `environment` starts git with fixed variables and a configuration that names no program. `repository` finds
the repository of a folder by its files. `update_index` brings an index up to date with the files.

Each of the other modules reads one subject and returns frozen values:

| module | what it reads or finds |
|---|---|
| `history` | commits, tags, reflogs and stashes; what a merge of two commits would bring |
| `habits` | which files change together, and how the project is released |
| `state` | branches and the files of the working tree |
| `unfinished` | the merge, rebase or the like that is not finished |
| `patch` | your own work as one patch |
| `leftovers` | lines of your work that should not stay, such as debugging |
| `stale_mentions` | documentation with names that your work removed |
| `secrets` | what looks like a key or a password |
| `push_problems` | secrets and other problems in what is not pushed or not committed |
| `unwanted_files` | files that belong in no repository, by their names and sizes |
| `lost_commits` | commits that are on no branch |

`reader` reads the state of a repository and inspects it (`inspection`), and keeps both results until something changes.
`github` asks the server through `gh`.

The sensing of cards (SPEC 2.1) and the flows of cards (SPEC 3.9) use the same functions, so that a card and its result
agree. Names and paths are not changed, so sanitise them before they are shown.
It may import engine.model, background, clock, files, frozen, inference, installed, text and wording.
"""

from __future__ import annotations

import codecs
import logging
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypedDict, Unpack

from engine.frozen import frozen
from engine.git.environment import INSTALL_GIT, MIN_VERSION, GitError, Repository, read_configuration_variables, run_git
from engine.git.repository import find_repository, find_repository_root, read_submodule_paths
from engine.model import Refusal

__all__ = [
    "INSTALL_GIT",
    "LITERAL_PATHS",
    "MIN_VERSION",
    "TOOL_FOLDERS",
    "Git",
    "GitError",
    "Repository",
    "create_repository",
    "find_repository_root",
    "is_in_tool_folder",
    "join_nul",
    "join_paths",
    "printable_path",
    "read_git_version",
    "read_submodule_paths",
    "split_nul",
    "update_index",
]

log = logging.getLogger(__name__)


def split_nul(output: bytes) -> list[bytes]:
    """The items of a list in which each ends with NUL, as git prints it with `-z`."""
    return output.removesuffix(b"\0").split(b"\0") if output else []


def join_nul(items: Iterable[bytes]) -> bytes:
    """The items as a list in which each ends with NUL."""
    return b"".join(item + b"\0" for item in items)


def printable_path(path: str | bytes) -> str:
    """A path on one line, with escapes such as \\x1b and \\u202e for characters that are invisible or not UTF-8."""
    raw = os.fsencode(path) if isinstance(path, str) else path
    text = raw.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def join_paths(paths: Sequence[str]) -> str:
    """At most ten paths, separated by commas, and the number of the others."""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(printable_path(path) for path in paths[:10]) + more


TOOL_FOLDERS = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".venv", "node_modules")
)
"""Folders that tools fill. Their files are neither work nor activity of a person, even if git does not ignore them."""


def is_in_tool_folder(path: str) -> bool:
    """Whether `path` is in a folder that tools fill, such as `.venv` or `node_modules`."""
    return not TOOL_FOLDERS.isdisjoint(path.split("/"))


_NO_SUBMODULES = "--ignore-submodules=all"
"""An option and no setting, because .gitmodules would override a setting."""

_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")
"""Options with which git runs no program that the repository configures."""

_OPTIONS_BY_COMMAND: Mapping[str, tuple[str, ...]] = {
    "status": (_NO_SUBMODULES,),
    "diff": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-files": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-index": (_NO_SUBMODULES, *_NO_PROGRAMS),
    "diff-tree": _NO_PROGRAMS,
    "log": _NO_PROGRAMS,
    "show": _NO_PROGRAMS,
}
"""Options that these commands always get. With them they run no program, and do not look into nested repositories."""


LITERAL_PATHS: Mapping[str, str] = {"GIT_LITERAL_PATHSPECS": "1"}
"""The environment in which git takes every path as it stands, even one that begins with `:`."""


class RunOptions(TypedDict, total=False):
    """The options of `Git.run`, and of the methods that call it."""

    stdin: bytes | None
    environment: Mapping[str, str]
    """Variables that are added."""
    allowed: Sequence[int]
    """The exit codes that are no error, by default 0."""
    timeout: float
    """Seconds, by default those of the `Git`."""


@frozen
class Git:
    """git in one folder. It has no side effects, and runs no program that a repository names, see
    `environment`."""

    folder: Path
    timeout: float = 60.0
    """Seconds for one command."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to the fixed environment, for example GIT_INDEX_FILE."""
    pinned: Repository | None = None
    """The repository that is always used, even if `folder` has another one by now. None to find it before each
    command."""
    check: Callable[[], object] = lambda: None
    """Called before each command, and after a command that failed. It may raise an error, so that the git of a session
    ends with the session."""

    @property
    def repository(self) -> Repository:
        """The repository of `folder`. Raises `Refusal`: `no_folder`, `bare_repository`, `no_repository`."""
        repository = self.pinned or find_repository(self.folder)
        if repository is not None:
            return repository
        if not self.folder.is_dir():
            raise Refusal("no_folder", f"{self.folder} does not exist", "bring it back, or name an existing folder")
        if (self.folder / "HEAD").exists() and (self.folder / "objects").is_dir():
            message = f"{self.folder} is a bare repository without working files"
            raise Refusal("bare_repository", message, "clone it first")
        fix = "bring its .git folder back, and try again"
        raise Refusal("no_repository", f"{self.folder} is in no git repository any more", fix)

    def pin(self) -> Git:
        """The same git, bound to the repository that is there now. Raises as `repository`."""
        return replace(self, pinned=self.repository)

    def over(self, folder: Path, index: Path) -> Git:
        """The same repository with the files of `folder` and another index. The `.git` of `folder`, which may belong to
        a session, is never read."""
        variables = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
        return replace(self.pin(), folder=folder, environment={**self.environment, **variables})

    def output(self, *arguments: str, **options: Unpack[RunOptions]) -> bytes:
        """The standard output of `git ARGUMENTS`. Raises `GitError` if the exit code is not in `allowed`, and with exit
        code -1 if the command takes longer than `timeout` seconds."""
        return self.run(*arguments, **options).stdout

    def text(self, *arguments: str, **options: Unpack[RunOptions]) -> str:
        """The output as text without the last newline. Bytes that are no UTF-8 become surrogate escapes."""
        return self.output(*arguments, **options).decode(errors="surrogateescape").removesuffix("\n")

    def lines(self, *arguments: str, **options: Unpack[RunOptions]) -> list[str]:
        """The lines of the output, without empty ones."""
        return list(filter(None, self.text(*arguments, **options).split("\n")))

    def items(self, *arguments: str, **options: Unpack[RunOptions]) -> list[str]:
        """The items that a command with `-z` prints, without empty ones."""
        return list(filter(None, self.text(*arguments, **options).split("\0")))

    def run(self, *arguments: str, **options: Unpack[RunOptions]) -> subprocess.CompletedProcess[bytes]:
        """Run `git ARGUMENTS`. Returns the finished process, for callers that need its exit code. Raises as
        `output`."""
        self.check()
        repository = self.repository
        try:
            completed = run_git(
                _add_options(arguments),
                self.folder,
                {**repository.environment(), **self.environment, **options.get("environment", {})},
                excluded_folders=repository.own_folders,
                stdin=options.get("stdin"),
                timeout=options.get("timeout", self.timeout),
            )
            if completed.returncode not in options.get("allowed", (0,)):
                raise GitError(arguments, completed.returncode, completed.stderr.decode(errors="replace"), self.folder)
        except GitError:
            self.check()
            raise
        return completed


def _add_options(arguments: Sequence[str]) -> list[str]:
    """The arguments with the options that their command always gets."""
    position = 0
    while arguments[position] == "-c":
        position += 2
    return [*arguments[: position + 1], *_OPTIONS_BY_COMMAND.get(arguments[position], ()), *arguments[position + 1 :]]


def read_git_version() -> str:
    """The output of `git --version`. Raises `Refusal` `no_git`."""
    return run_git(["--version"], Path("/"), {}).stdout.decode(errors="replace").strip()


def create_repository(folder: Path) -> Git:
    """Make an empty repository with the branch `main` in the existing `folder`. Raises `GitError`."""
    arguments = ["init", "--quiet", "--initial-branch=main", "--template="]
    completed = run_git(arguments, folder, {"GIT_DIR": str(folder / ".git"), **read_configuration_variables()})
    if completed.returncode:
        raise GitError(arguments, completed.returncode, completed.stderr.decode(errors="replace"), folder)
    return Git(folder)


# -- Updating the index has the effect of `git add --all`. That command is not used, because it runs `git status` in
# submodules with their configuration, and fails if there are nested repositories.


def update_index(git: Git, *, skip_prefix: str = "", skip_paths: frozenset[bytes] = frozenset()) -> tuple[bytes, ...]:
    """Update the index of `git` to the present files. Returns the nested repositories, which are left out.

    Untracked files are skipped if their name begins with `skip_prefix` or their path is in `skip_paths`. The entry of a
    file that cannot be read stays unchanged. A file with an encoding that git does not know is added byte for byte.
    Raises `GitError`.
    """
    untracked = _clear_hidden_flags(git)
    status = split_nul(git.output("diff-files", "--name-status", "--no-renames", "-z"))
    changed = dict(zip(status[1::2], status[0::2], strict=True))
    deleted = [path for path, letter in changed.items() if letter == b"D"]
    if deleted:
        git.output("update-index", "--force-remove", "-z", "--stdin", stdin=join_nul(deleted))
        # A repository in place of a folder of tracked files is seen once these are gone from the index.
        untracked = split_nul(git.output("ls-files", "--others", "--exclude-standard", "-z"))
    paths = [path for path, letter in changed.items() if letter != b"D"]
    nested = []
    for path in untracked:
        is_skipped = skip_prefix and path.rpartition(b"/")[2].startswith(skip_prefix.encode())
        if path.endswith(b"/"):
            nested.append(path)
        elif path not in skip_paths and not is_skipped:
            paths.append(path)
    if paths:
        _add_paths(git, paths)
    return tuple(nested)


def _add_paths(git: Git, paths: list[bytes]) -> None:
    """Add files in one step. If that fails, leave out those that cannot be read, and add those of an unknown encoding
    byte for byte."""
    try:
        _run_update(git, paths)
    except GitError:
        readable = [path for path in paths if _can_read(git, path)]
        unknown = _find_unknown_encodings(git, readable)
        if readable == paths and not unknown:
            raise
        unread = sorted({*paths} - {*readable})
        log.warning("%s: %s could not be read and stay as they were, such as %r", git.folder, len(unread), unread[:3])
        _run_update(git, [path for path in readable if path not in unknown])
        _add_without_conversion(git, sorted(unknown))


def _run_update(git: Git, paths: list[bytes]) -> None:
    git.output("update-index", "--add", "--replace", "--remove", "-z", "--stdin", stdin=join_nul(paths))


def _clear_hidden_flags(git: Git) -> list[bytes]:
    """Remove the marks by which the operator made git ignore changes of files. Sparse files that are not on the disk
    keep theirs. Returns the untracked files, because the same command lists them."""
    untracked: list[bytes] = []
    hidden: list[bytes] = []
    sparse: list[bytes] = []
    for line in split_nul(git.output("ls-files", "-v", "--cached", "--others", "--exclude-standard", "-z")):
        tag, path = line[:1], line[2:]
        if tag == b"?":
            untracked.append(path)
        elif tag in (b"S", b"s"):
            if os.path.lexists(git.folder / os.fsdecode(path)):
                sparse.append(path)
                hidden.append(path)
        elif tag.islower():
            hidden.append(path)
    for flag, flagged in (("--no-skip-worktree", sparse), ("--no-assume-unchanged", hidden)):
        if flagged:
            git.output("update-index", "-z", flag, "--stdin", stdin=join_nul(flagged))
    return untracked


def _can_read(git: Git, path: bytes) -> bool:
    """Whether git can read a file, or records that it is gone."""
    place = git.folder / os.fsdecode(path)
    try:
        if stat.S_ISLNK(place.lstat().st_mode):
            return True
        os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except FileNotFoundError:
        return True  # deleted by now, which git records
    except OSError:
        return False
    return True


def _find_unknown_encodings(git: Git, paths: list[bytes]) -> set[bytes]:
    """Those of `paths` that have an unknown `working-tree-encoding`."""
    answer = split_nul(git.output("check-attr", "-z", "--stdin", "working-tree-encoding", stdin=join_nul(paths)))
    unknown = set()
    for path, value in zip(answer[0::3], answer[2::3], strict=True):
        name = value.decode(errors="replace")
        if name not in ("unspecified", "unset"):
            try:
                codecs.lookup(name)
            except LookupError:
                unknown.add(path)
    return unknown


def _add_without_conversion(git: Git, paths: list[bytes]) -> None:
    """Put files into the index as they are, without any conversion."""
    entries = []
    for path in paths:
        place = git.folder / os.fsdecode(path)
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            oid = git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=file.read())
            mode = b"100755" if os.fstat(descriptor).st_mode & 0o100 else b"100644"
        entries.append(mode + b" " + oid.encode() + b"\t" + path)
    git.output("update-index", "--add", "--replace", "-z", "--index-info", stdin=join_nul(entries))

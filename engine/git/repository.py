"""Finds the repository that a folder belongs to, or says why git does not accept it, and lists its submodules.

`Git` finds its repository here before each command. A workspace is the top folder of one.
"""

from __future__ import annotations

import os
import shlex
import unicodedata
from functools import lru_cache
from pathlib import Path

from engine.files import read_plain_or_nothing
from engine.git.environment import (
    GitError,
    Repository,
    find_operator_files,
    read_configuration_stamp,
    read_configuration_variables,
    run_git,
)
from engine.model import Refusal
from engine.text import sanitise

_trusted_folders: dict[Path, tuple[Repository, tuple[object, ...]]] = {}
"""The folders whose repository git accepted, with a stamp of the configuration. If that changes, git is asked again."""

MODULES_FILE = ".gitmodules"

MAX_MODULES_BYTES = 1_000_000
"""Maximum size of a list of submodules. A larger one counts as none."""

LOST_CODES = ("no_folder", "no_repository")
"""The codes of `find_workspace_refusal` for a workspace that is gone. With another one git does not accept it now."""


def find_repository(folder: Path) -> Repository | None:
    """The repository whose working tree contains `folder`, or None. It is found by its files, without running git."""
    folder = folder.absolute()
    for top in (folder, *folder.parents):
        git_dir = _find_git_dir(top)
        if git_dir is not None:
            common = os.fsdecode(read_plain_or_nothing(git_dir / "commondir", 65_536).rstrip(b"\r\n"))
            return Repository(top, git_dir, Path(os.path.realpath(git_dir / common)))
    return None


def _find_git_dir(top: Path) -> Path | None:
    """The git folder of `top`, which is `.git` or is named in the file `.git`. None if git would not accept it."""
    entry = top / ".git"
    if os.path.lexists(entry / "HEAD"):
        return Path(os.path.realpath(entry))
    text = read_plain_or_nothing(entry, 65_536)
    if not text.startswith(b"gitdir: "):
        return None
    return Path(os.path.realpath(top / os.fsdecode(text[len(b"gitdir: ") :].rstrip(b"\r\n"))))


def find_repository_root(folder: Path) -> Path:
    """The top of the working tree that contains `folder`.

    Raises `Refusal`: `no_folder`, `no_repository`, `bare_repository`, `unsafe_repository` (it belongs to someone else),
    `broken_repository` (git does not accept its `.git`), `unfit_path` (the path is not UTF-8, so it can be neither
    stored nor shown).
    """
    folder = folder.absolute()
    if not folder.is_dir():
        message = f"{sanitise(str(folder))} is not a folder"
        raise Refusal("no_folder", message, "name an existing folder with --workspace DIR")
    nearest = find_repository(folder)
    stamp = read_configuration_stamp(nearest, find_operator_files()) if nearest else ()
    if nearest is not None and _trusted_folders.get(folder) == (nearest, stamp):
        return nearest.top
    root = _require_utf8(_ask_git_for_root(folder, nearest))
    if nearest is not None and root == nearest.top:
        _trusted_folders[folder] = nearest, stamp
    return root


def _ask_git_for_root(folder: Path, nearest: Repository | None) -> Path:
    """The top of the working tree that git itself finds, because it knows which owners are trusted. `nearest` is the
    repository that was found by its files. Raises `Refusal`."""
    if nearest is not None and not nearest.git_dir.exists():
        raise Refusal(
            "broken_repository",
            f"{sanitise(str(nearest.top))}/.git names {sanitise(str(nearest.git_dir))}, which does not exist",
            "if that repository was moved, run `git worktree repair` in it; otherwise clone it again",
        )
    arguments = ["rev-parse", "--is-bare-repository", "--show-toplevel"]  # this runs no program
    excluded = nearest.own_folders if nearest else ()
    completed = run_git(arguments, folder, read_configuration_variables(), excluded_folders=excluded, timeout=10)
    bare, _, top = completed.stdout.decode(errors="surrogateescape").partition("\n")
    shown_folder = sanitise(str(folder))
    if bare == "true":
        raise Refusal("bare_repository", f"{shown_folder} is a bare repository without working files", "clone it first")
    if completed.returncode != 0 or not top:
        raise _explain_refusal(folder, nearest, completed.stderr.decode(errors="replace"))
    root = Path(top.removesuffix("\n"))
    found_repository = find_repository(root)
    if found_repository is None or os.path.realpath(found_repository.top) != os.path.realpath(root):
        raise Refusal(
            "no_repository",
            f"the repository of {shown_folder} has its files elsewhere, in {sanitise(str(root))}",
            "unset core.worktree in its configuration",
        )
    return root


def find_top_folder(folder: str) -> str:
    """The workspace that a folder belongs to, or the folder itself if it is in no repository."""
    try:
        return str(find_repository_root(Path(folder)))
    except Refusal:
        return folder


def find_workspace_refusal(workspace: str) -> Refusal | None:
    """Why a workspace cannot be used as the top of a repository; None if it can."""
    try:
        root = find_repository_root(Path(workspace))
    except Refusal as refusal:
        return refusal
    if os.path.realpath(root) == os.path.realpath(workspace):
        return None
    return Refusal("no_repository", f"{sanitise(workspace)} is no repository of its own any more")


def _explain_refusal(folder: Path, nearest: Repository | None, error_text: str) -> Refusal:
    """The refusal that says why git accepted no repository."""
    shown = sanitise(str(folder))
    if "dubious ownership" in error_text:
        return Refusal(
            "unsafe_repository",
            f"{shown} belongs to another user, so git does not read it",
            f"git config --global --add safe.directory {shlex.quote(str(folder))}",
        )
    if "must be run in a work tree" in error_text:
        return Refusal(
            "no_repository",
            f"{shown} is inside a .git folder",
            "go to the folder above .git, or name it with --workspace DIR",
        )
    if nearest is not None:
        complaint = sanitise(error_text).strip().partition("\n")[0]
        return Refusal(
            "broken_repository",
            f"git does not accept the repository in {sanitise(str(nearest.top))}: {complaint}",
            "see what `git status` says there; a damaged HEAD or configuration is in its .git folder",
        )
    return Refusal(
        "no_repository",
        f"{shown} is not in a git repository",
        "run `git init` there, or name another with --workspace DIR",
    )


def _require_utf8(path: Path) -> Path:
    """Return `path`. Raises `Refusal` `unfit_path` if it is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            "unfit_path",
            f"{sanitise(str(path))}: the name of the folder is not UTF-8",
            "rename the folder, or clone the repository to another",
        ) from error
    return path


def read_submodule_paths(folder: Path) -> tuple[str, ...]:
    """The paths that the tree in `folder` lists as submodules; () if git cannot read the list."""
    text = read_plain_or_nothing(folder / MODULES_FILE, MAX_MODULES_BYTES, follow=False)
    return _parse_modules(text) if text else ()


@lru_cache(maxsize=64)
def _parse_modules(text: bytes) -> tuple[str, ...]:
    """The paths in a list of submodules."""
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--get-regexp", r"^submodule\..*\.path$"]
    try:
        completed = run_git(arguments, Path("/"), {"GIT_DIR": os.devnull}, stdin=text, timeout=10)
    except GitError:
        return ()
    # If the list has an error, this is the part before it.
    entries = completed.stdout.decode(errors="surrogateescape").split("\0")
    return tuple(dict.fromkeys(path for entry in entries if (path := entry.partition("\n")[2])))


def is_git_name(name: str) -> bool:
    """Whether some file system takes this name for `.git`."""
    # HFS+ ignores invisible characters. NTFS ignores dots and spaces at the end, and everything after a colon.
    letters = unicodedata.normalize("NFKC", name)
    folded = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Cf", "Cc"))
    return folded.split(":")[0].rstrip(". ").casefold() in (".git", "git~1")

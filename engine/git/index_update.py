"""Brings an index up to date with files that anybody may have written, as `git add --all` would.

Snapshots of a workspace and flows use it. `git add` itself runs `git status` in submodules (with their configuration)
and stumbles over nested repositories.
"""

from __future__ import annotations

import codecs
import logging
import os
import stat

from engine.git.command import Git
from engine.git.nul_lists import join_nul, split_nul
from engine.git.process import GitError

log = logging.getLogger(__name__)


def update_index(git: Git, *, skip_prefix: str = "", skip_paths: frozenset[bytes] = frozenset()) -> tuple[bytes, ...]:
    """Bring the index that `git` names up to date with the files.

    Untracked files whose name begins with `skip_prefix`, or that are in `skip_paths`, are passed over. A file that
    cannot be read stays as it was; one whose encoding git does not know is added byte for byte. Returns the nested
    repositories, which are left out. Raises `GitError`.
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
    """Add files in one step; where that fails, leave out what cannot be read and add unknown encodings as bytes."""
    try:
        _run_update(git, paths)
    except GitError:
        readable = [path for path in paths if _can_read(git, path)]
        unknown = _unknown_encodings(git, readable)
        if readable == paths and not unknown:
            raise
        unread = sorted({*paths} - {*readable})
        log.warning("%s: %s could not be read and stay as they were, such as %r", git.folder, len(unread), unread[:3])
        _run_update(git, [path for path in readable if path not in unknown])
        _add_without_conversion(git, sorted(unknown))


def _run_update(git: Git, paths: list[bytes]) -> None:
    git.output("update-index", "--add", "--replace", "--remove", "-z", "--stdin", stdin=join_nul(paths))


def _clear_hidden_flags(git: Git) -> list[bytes]:
    """Have git check files that the operator marked as unchanged; absent sparse files stay as they are.
    Returns the untracked files, which the same listing names."""
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


def _unknown_encodings(git: Git, paths: list[bytes]) -> set[bytes]:
    """The `paths` whose `working-tree-encoding` is none that we know."""
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

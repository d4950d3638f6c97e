"""An index brought up to date with files that anybody may have written."""

from __future__ import annotations

import codecs
import logging
import os
import stat

from engine.git.command import Git
from engine.git.process import GitError

log = logging.getLogger(__name__)


def split(output: bytes) -> list[bytes]:
    """The items of NUL-terminated output."""
    return output.removesuffix(b"\0").split(b"\0") if output else []


def joined(items: list[bytes]) -> bytes:
    """Items as NUL-terminated input."""
    return b"".join(item + b"\0" for item in items)


def follow_files(git: Git, *, leave: str = "", without: frozenset[bytes] = frozenset()) -> tuple[bytes, ...]:
    """Bring the index that `git` names up to date with the files, as `git add --all` would, but for what that does
    besides: it runs `git status` in submodules (with their configuration) and stumbles over nested repositories.

    Untracked files whose name begins with `leave`, or that are in `without`, are passed over. A file that cannot be
    read stays as it was; one whose encoding git does not know is taken byte for byte. Returns the nested repositories,
    which are left out. Raises `GitError`.
    """
    others = _uncover(git)
    changed = split(git.output("diff-files", "--name-status", "--no-renames", "-z"))
    status = dict(zip(changed[1::2], changed[0::2], strict=True))
    gone = [path for path, letter in status.items() if letter == b"D"]
    if gone:
        git.output("update-index", "--force-remove", "-z", "--stdin", stdin=joined(gone))
        # A repository in place of a folder of tracked files is seen once these are gone from the index.
        others = split(git.output("ls-files", "--others", "--exclude-standard", "-z"))
    prefix = leave.encode()
    nested = tuple(path for path in others if path.endswith(b"/"))
    fresh = [
        path
        for path in others
        if not path.endswith(b"/")
        and path not in without
        and not (prefix and path.rpartition(b"/")[2].startswith(prefix))
    ]
    present = [path for path, letter in status.items() if letter != b"D"] + fresh
    if not present:
        return nested
    try:
        _update(git, present)
    except GitError:
        readable = [path for path in present if _readable(git, path)]
        unknown = _unknown_encodings(git, readable)
        if readable == present and not unknown:
            raise
        left = sorted({*present} - {*readable})
        log.warning("%s: %s could not be read and stay as they were, such as %r", git.folder, len(left), left[:3])
        _update(git, [path for path in readable if path not in unknown])
        _take_bytes(git, sorted(unknown))
    return nested


def _update(git: Git, paths: list[bytes]) -> None:
    git.output("update-index", "--add", "--replace", "--remove", "-z", "--stdin", stdin=joined(paths))


def _uncover(git: Git) -> list[bytes]:
    """Have git check files that the operator marked as unchanged; absent sparse files stay as they are.
    Returns what it does not track, asked in the same breath."""
    others: list[bytes] = []
    hidden: list[bytes] = []
    sparse: list[bytes] = []
    for line in split(git.output("ls-files", "-v", "--cached", "--others", "--exclude-standard", "-z")):
        tag, path = line[:1], line[2:]
        if tag == b"?":
            others.append(path)
        elif tag in (b"S", b"s"):
            if os.path.lexists(git.folder / os.fsdecode(path)):
                sparse.append(path)
                hidden.append(path)
        elif tag.islower():
            hidden.append(path)
    if sparse:
        git.output("update-index", "-z", "--no-skip-worktree", "--stdin", stdin=joined(sparse))
    if hidden:
        git.output("update-index", "-z", "--no-assume-unchanged", "--stdin", stdin=joined(hidden))
    return others


def _readable(git: Git, path: bytes) -> bool:
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
    """Those of `paths` whose `working-tree-encoding` is none that we know."""
    answer = split(git.output("check-attr", "-z", "--stdin", "working-tree-encoding", stdin=joined(paths)))
    unknown = set()
    for path, value in zip(answer[0::3], answer[2::3], strict=True):
        name = value.decode(errors="replace")
        if name not in ("unspecified", "unset"):
            try:
                codecs.lookup(name)
            except LookupError:
                unknown.add(path)
    return unknown


def _take_bytes(git: Git, paths: list[bytes]) -> None:
    """Put files into the index as they are, without any conversion."""
    lines = []
    for path in paths:
        place = git.folder / os.fsdecode(path)
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            oid = git.text("hash-object", "-w", "--no-filters", "--stdin", stdin=file.read())
            mode = b"100755" if os.fstat(descriptor).st_mode & 0o100 else b"100644"
        lines.append(mode + b" " + oid.encode() + b"\t" + path)
    if lines:
        git.output("update-index", "--add", "--replace", "-z", "--index-info", stdin=joined(lines))

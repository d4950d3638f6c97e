"""Stores the working tree as a git tree, without touching the operator's index, HEAD, stash or files (SPEC 3.9).

git's plumbing updates a copy of the real index, whose stat cache makes the comparison fast. Uncommitted and untracked
files are included, ignored ones are not; submodules keep their commit; nested repositories that are no submodules are
left out.

No program that a configuration names is run (`engine.git`): an unchanged file with a filter keeps the blob of the index
(for git-lfs its pointer), merges are git's own text merge. Line endings, `ident` and encodings are converted by git
itself. A changed file with a configured filter cannot be landed or branched (`merging.py`), because its bytes are
unknown.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.git import MIN_VERSION, Git
from engine.git import version as git_version
from engine.git.command import update_index
from engine.model import Refusal

REF_ROOT = "refs/clawpy"
"""The refs that keep our objects in a repository; they point to trees, which `git log --all` does not show."""

DURABLE = ("-c", "core.fsync=loose-object,reference", "-c", "core.fsyncMethod=fsync")
"""Options of git for objects that must survive a power cut: old contents are on disk before any file changes."""

_IDENTITY = {
    "GIT_AUTHOR_NAME": "Clawpy Console",
    "GIT_AUTHOR_EMAIL": "clawpy@localhost",
    "GIT_AUTHOR_DATE": "@946684800 +0000",
    "GIT_COMMITTER_NAME": "Clawpy Console",
    "GIT_COMMITTER_EMAIL": "clawpy@localhost",
    "GIT_COMMITTER_DATE": "@946684800 +0000",
}
"""A fixed name and time, so that synthetic commits of the same tree are the same."""


@frozen
class Snapshot:
    """A working tree at one instant."""

    head: str
    """The commit, "" before the first."""
    tree: str
    clean: bool
    """The tree is that of `head`."""
    nested: tuple[bytes, ...] = field(default=(), compare=False)
    """Nested repositories that are no submodules, which are left out."""


def take_snapshot(
    git: Git,
    *,
    folder: Path | None = None,
    index: Path | None = None,
    base: str = "",
    without: frozenset[bytes] = frozenset(),
) -> Snapshot:
    """Store the files of `folder` (default: the repository's own) as a tree in the repository.

    `index` is a stat cache to start from (default: the real index). With the tree `base` exactly its files count as
    tracked, whatever the session did to its index. Untracked files in `without` are left out. A file that cannot be
    read stays as in the index.
    """
    head, committed = _head_of(git)
    with scratch_index(index or git.repository.git_dir / "index") as scratch:
        scanned = git.over(folder or git.folder, scratch)
        if base:
            scanned.output("read-tree", "--reset", base)
        nested = update_index(scanned, skip_prefix=TEMPORARY_PREFIX, skip_paths=without)
        tree = scanned.text("write-tree", "--missing-ok")
    return Snapshot(head, tree, tree == (committed or empty_tree(git)), nested)


def _head_of(git: Git) -> tuple[str, str]:
    """The checked-out commit and its tree, both "" before the first commit."""
    queries = b"HEAD^{commit}\nHEAD^{tree}\n"
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin=queries).splitlines()
    head, tree = ("" if line.endswith(" missing") else line for line in answer)
    return head, tree


@contextmanager
def scratch_index(original: Path | None = None) -> Iterator[Path]:
    """A temporary copy of an index, or the path for a new one. It has the time of the original, with which git compares
    file times to find stale entries."""
    with tempfile.TemporaryDirectory(prefix="clawpy-index-") as folder:
        copy = Path(folder) / "index"
        if original is not None and original.exists():
            with original.open("rb") as source:
                stat = os.fstat(source.fileno())
                copy.write_bytes(source.read())
            os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        yield copy


def empty_tree(git: Git) -> str:
    """The id of the empty tree, in the repository's own kind of hash."""
    return git.text("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")


def commit_of(git: Git, tree: str, *parents: str, message: str = "Snapshot of the working tree") -> str:
    """A commit of a tree without a ref, for `merge-tree` and `worktree add`, which need commits."""
    options = [word for parent in parents for word in ("-p", parent)]
    return git.text("commit-tree", tree, *options, "-m", message, environment=_IDENTITY)


def keep_object(git: Git, session_id: str, name: str, oid: str) -> None:
    """Keep git from collecting `oid`, by the ref refs/clawpy/SESSION/NAME."""
    git.output("update-ref", f"{REF_ROOT}/{validate_id(session_id)}/{name}", oid)


def release_objects(git: Git, session_id: str) -> None:
    """Delete every ref of a session; git collects its objects later."""
    prefix = f"{REF_ROOT}/{validate_id(session_id)}/"
    refs = git.text("for-each-ref", "--format=%(refname)", prefix).split("\n")
    orders = "".join(f"delete {ref}\n" for ref in refs if ref)
    if orders:
        git.output("update-ref", "--stdin", stdin=orders.encode())


def validate_id(session_id: str) -> str:
    """`session_id`, if it is safe in a path and a ref. Raises ValueError when not."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,80}", session_id):
        raise ValueError(f"{session_id!r} is not a session id")
    return session_id


def printable_path(path: str | bytes) -> str:
    """A path on one line, with escapes such as \\x1b and \\u202e for characters that are invisible or not UTF-8."""
    raw = os.fsencode(path) if isinstance(path, str) else path
    text = raw.decode(errors="backslashreplace")
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def join_paths(paths: Sequence[str]) -> str:
    """At most ten paths, separated by commas, and the number of the others."""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(printable_path(path) for path in paths[:10]) + more


def missing_objects(git: Git, *oids: str) -> list[str]:
    """The `oids` that the repository no longer has."""
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in oids).encode())
    return [line.split()[0] for line in answer.splitlines() if line.endswith(" missing")]


def require_merge_tree() -> None:
    """Raises `Refusal` `old_git` when git cannot merge without a working tree."""
    version = git_version()
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < MIN_VERSION:
        raise Refusal("old_git", f"{version} cannot merge without a working tree", "install git 2.38 or newer")

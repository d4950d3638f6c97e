"""Stores working trees as git trees, and keeps them in the repository, for worktrees and landings (SPEC 3.9).

A snapshot is made by git's plumbing in a copy of the real index, whose stat cache makes that fast. It has uncommitted
and untracked files, but no ignored ones. Submodules keep their commit; other nested repositories are left out. The
operator's index, HEAD, stash and files stay as they are.

Neither hooks nor programs that a configuration names are run (`engine.git`). An unchanged file with a filter keeps the
blob of the index, which for git-lfs is its pointer. git itself converts line endings, `ident` and encodings.
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
from engine.git import Git
from engine.git.command import update_index

REF_ROOT = "refs/clawpy"
"""The refs that keep our objects in a repository; they point to trees, which `git log --all` does not show."""

DURABLE = ("-c", "core.fsync=loose-object,reference", "-c", "core.fsyncMethod=fsync")
"""Options of git for objects that must survive a power cut: old contents are on disk before any file changes."""

OUR_NAME, OUR_EMAIL = "Clawpy Console", "clawpy@localhost"
"""The author of commits that have no other."""


def make_identity_variables(name: str, email: str, date: str) -> dict[str, str]:
    """The environment variables that make somebody the author and the committer of a commit."""
    values = {"NAME": name, "EMAIL": email, "DATE": date}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in values.items()}


_FIXED_IDENTITY = make_identity_variables(OUR_NAME, OUR_EMAIL, "@946684800 +0000")
"""The identity of synthetic commits. With its fixed date, commits of the same tree are the same."""


@frozen
class Snapshot:
    """A working tree at one instant."""

    head: str
    """The commit, "" before the first."""
    tree: str
    clean: bool
    """The tree is the same as that of `head`."""
    nested: tuple[bytes, ...] = field(default=(), compare=False)
    """Nested repositories that are no submodules. They are left out of the tree."""


def take_snapshot(
    git: Git,
    *,
    folder: Path | None = None,
    index: Path | None = None,
    base: str = "",
    without: frozenset[bytes] = frozenset(),
) -> Snapshot:
    """Store the files of `folder` (by default the repository's own) as a tree in the repository.

    A file that cannot be read stays as it is in the index.

    Args:
        index: the index to start from, for its stat cache; by default the real one.
        base: a tree whose files count as tracked, and no others, whatever a session did to its index.
        without: untracked files to leave out.
    """
    head, committed = _head_of(git)
    with scratch_index(index or git.repository.git_dir / "index") as scratch:
        scanned = git.over(folder or git.folder, scratch)
        if base:
            scanned.output("read-tree", "--reset", base)
        nested = update_index(scanned, skip_prefix=TEMPORARY_PREFIX, skip_paths=without)
        tree = scanned.text("write-tree", "--missing-ok")
    return Snapshot(head, tree, tree == (committed or store_empty_tree(git)), nested)


def _head_of(git: Git) -> tuple[str, str]:
    """The checked-out commit and its tree, both "" before the first commit."""
    queries = b"HEAD^{commit}\nHEAD^{tree}\n"
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin=queries).splitlines()
    head, tree = ("" if line.endswith(" missing") else line for line in answer)
    return head, tree


@contextmanager
def scratch_index(original: Path | None = None) -> Iterator[Path]:
    """A temporary copy of an index, or the path for a new one. The copy has the time of the original, because git
    compares file times with it to find stale entries."""
    with tempfile.TemporaryDirectory(prefix="clawpy-index-") as folder:
        copy = Path(folder) / "index"
        if original is not None and original.exists():
            with original.open("rb") as source:
                stat = os.fstat(source.fileno())
                copy.write_bytes(source.read())
            os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        yield copy


def store_empty_tree(git: Git) -> str:
    """Store the empty tree; returns its id, in the repository's own kind of hash."""
    return git.text("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")


def make_synthetic_commit(git: Git, tree: str, *parents: str, message: str = "Snapshot of the working tree") -> str:
    """Commit a tree without a ref, for `merge-tree` and `worktree add`, which need commits. Returns the commit."""
    options = [word for parent in parents for word in ("-p", parent)]
    return git.text("commit-tree", tree, *options, "-m", message, environment=_FIXED_IDENTITY)


def keep_object(git: Git, session_id: str, name: str, oid: str) -> None:
    """Keep git from collecting the object `oid`, by the ref refs/clawpy/SESSION/NAME."""
    git.output("update-ref", f"{REF_ROOT}/{validate_id(session_id)}/{name}", oid)


def release_objects(git: Git, session_id: str) -> None:
    """Delete every ref of a session. git collects its objects later."""
    prefix = f"{REF_ROOT}/{validate_id(session_id)}/"
    refs = git.text("for-each-ref", "--format=%(refname)", prefix).split("\n")
    orders = "".join(f"delete {ref}\n" for ref in refs if ref)
    if orders:
        git.output("update-ref", "--stdin", stdin=orders.encode())


def validate_id(session_id: str) -> str:
    """Return `session_id` if it is safe in a path and in a ref. Raises ValueError if not."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,80}", session_id):
        raise ValueError(f"{session_id!r} is not a session id")
    return session_id


def printable_path(path: str | bytes) -> str:
    """A path on one line, with escapes such as \\x1b and \\u202e for characters that are invisible or not UTF-8."""
    raw = os.fsencode(path) if isinstance(path, str) else path
    text = raw.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def join_paths(paths: Sequence[str]) -> str:
    """At most ten paths, separated by commas, and the number of the others."""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(printable_path(path) for path in paths[:10]) + more


def find_missing_objects(git: Git, *oids: str) -> list[str]:
    """The `oids` that the repository no longer has."""
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in oids).encode())
    return [line.split()[0] for line in answer.splitlines() if line.endswith(" missing")]

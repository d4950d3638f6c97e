"""The present working tree as a git tree, without touching the operator's index, HEAD, stash or files (SPEC 3.9).

A copy of the real index serves as scratch: its stat cache makes the comparison fast, and git's own plumbing then
brings it up to date with the files. Uncommitted and untracked files are included, ignored ones are not; submodules
keep their commit; repositories nested without being submodules belong to somebody else and are left out.

No program that a configuration names is run (`engine.git`): a filtered file that was not changed keeps the blob of the
index (for git-lfs its pointer), merges are git's own text merge. Line endings, `ident` and encodings are git's own work
and are done. Landing or branching a file whose filter is configured is refused (`merging.py`), for its bytes could not
be told.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from engine.frozen import frozen
from engine.git import MIN_VERSION, Git
from engine.git import version as git_version
from engine.git.tree import follow_files
from engine.model import Refusal
from engine.storage.files import TEMPORARY_PREFIX

REF_ROOT = "refs/clawpy"
"""Everything we keep alive in a repository hangs here, as trees: `git log --all` does not show it."""

_IDENTITY = {
    "GIT_AUTHOR_NAME": "Clawpy Console",
    "GIT_AUTHOR_EMAIL": "clawpy@localhost",
    "GIT_AUTHOR_DATE": "@946684800 +0000",
    "GIT_COMMITTER_NAME": "Clawpy Console",
    "GIT_COMMITTER_EMAIL": "clawpy@localhost",
    "GIT_COMMITTER_DATE": "@946684800 +0000",
}
"""Synthetic commits are the same for the same trees: fixed name, fixed instant."""


@frozen
class Snapshot:
    """A working tree at one instant. `head` is the commit, "" before the first; `clean`: the tree is that of `head`.
    `nested`: folders that are repositories of their own without being submodules, and are left out."""

    head: str
    tree: str
    clean: bool
    nested: tuple[bytes, ...] = field(default=(), compare=False)


@frozen
class PlainGit:
    """git bound to one repository; `filters` are the names of those that a configuration gives programs to."""

    git: Git
    folder: Path
    git_dir: Path
    filters: frozenset[str]

    def work_tree(self, folder: Path, index: Path) -> Git:
        """The same repository over other files and another index; see `Git.over`."""
        return self.git.over(folder, index)


def plain_git(place: Path | Git) -> PlainGit:
    """Open the repository of which `place` is the top. Raises `Refusal` when it is none."""
    git = (place if isinstance(place, Git) else Git(place)).pin()
    return PlainGit(git, git.folder, git.repository.git_dir, git.repository.filters)


def take_snapshot(
    plain: PlainGit,
    *,
    folder: Path | None = None,
    index: Path | None = None,
    base: str = "",
    without: frozenset[bytes] = frozenset(),
) -> Snapshot:
    """The files of `folder` (default: the repository's own) as a tree in the repository's object store.

    `index` is a stat cache to start from (default: the real index). With `base`, a tree, exactly its files count as
    tracked, whatever the session did to its index. Untracked files in `without` are passed over. A file that cannot be
    read stays as the index has it.
    """
    head, committed = _head_of(plain.git)
    with scratch_index(index or plain.git_dir / "index") as scratch:
        git = plain.work_tree(folder or plain.folder, scratch)
        if base:
            git.output("read-tree", "--reset", base)
        nested = follow_files(git, leave=TEMPORARY_PREFIX, without=without)
        tree = git.text("write-tree", "--missing-ok")
    return Snapshot(head, tree, tree == (committed or empty_tree(plain.git)), nested)


def _head_of(git: Git) -> tuple[str, str]:
    """The commit that is checked out and its tree, each "" before the first."""
    queries = b"HEAD^{commit}\nHEAD^{tree}\n"
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin=queries).splitlines()
    head, tree = ("" if line.endswith(" missing") else line for line in answer)
    return head, tree


@contextmanager
def scratch_index(original: Path | None = None) -> Iterator[Path]:
    """A private copy of an index (or none yet), gone afterwards.

    The copy keeps the time of the original: git compares file times with it to know which entries may be stale.
    """
    with tempfile.TemporaryDirectory(prefix="clawpy-index-") as folder:
        copy = Path(folder) / "index"
        if original is not None and original.exists():
            with original.open("rb") as source:
                stat = os.fstat(source.fileno())
                copy.write_bytes(source.read())
            os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        yield copy


def empty_tree(git: Git) -> str:
    """The id of the tree without files, in this repository's own kind of hash."""
    return git.text("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")


def commit_of(git: Git, tree: str, *parents: str, message: str = "Snapshot of the working tree") -> str:
    """A commit that no ref shows: the shape in which `merge-tree` and `worktree add` take a tree."""
    options = [word for parent in parents for word in ("-p", parent)]
    return git.text("commit-tree", tree, *options, "-m", message, environment=_IDENTITY)


def keep_object(git: Git, session_id: str, name: str, oid: str) -> None:
    """Keep `oid` from being collected, under refs/clawpy/SESSION/NAME."""
    git.output("update-ref", f"{REF_ROOT}/{validate_id(session_id)}/{name}", oid)


def release_objects(git: Git, session_id: str) -> None:
    """Drop every ref of a session; git collects its objects in its own time."""
    prefix = f"{REF_ROOT}/{validate_id(session_id)}/"
    refs = git.text("for-each-ref", "--format=%(refname)", prefix).split("\n")
    orders = "".join(f"delete {ref}\n" for ref in refs if ref)
    if orders:
        git.output("update-ref", "--stdin", stdin=orders.encode())


def validate_id(session_id: str) -> str:
    """`session_id`, once it is known to be harmless in a path and a ref. Raises ValueError."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,80}", session_id):
        raise ValueError(f"{session_id!r} is not a session id")
    return session_id


def printable_path(path: str | bytes) -> str:
    """A path as it may be shown: one line, what cannot be seen or is not UTF-8 as an escape such as \\x1b, \\u202e."""
    raw = os.fsencode(path) if isinstance(path, str) else path
    text = raw.decode(errors="backslashreplace")
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else _escape(character) for character in text)
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def join_paths(paths: Sequence[str]) -> str:
    """At most ten names in words."""
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(printable_path(path) for path in paths[:10]) + more


def missing_objects(git: Git, *oids: str) -> list[str]:
    """Those of `oids` that the repository no longer has."""
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in oids).encode())
    return [line.split()[0] for line in answer.splitlines() if line.endswith(" missing")]


def check_git_version(plain: PlainGit) -> Refusal | None:
    """Why this repository cannot be snapshot at all, or None (a git too old to merge without a working tree)."""
    version = git_version()
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < MIN_VERSION:
        return Refusal("old_git", f"{version} cannot merge without a working tree", "install git 2.38 or newer")
    return None

"""Stores working trees as git trees, and compares and merges trees, for worktrees and landings (SPEC 3.9).

A snapshot is made by git's plumbing in a copy of the real index, whose stat cache makes that fast. It has uncommitted
and untracked files, but no ignored ones. Submodules keep their commit; other nested repositories are left out. The
operator's index, HEAD, stash and files stay as they are.

Neither hooks nor programs that a configuration names are run (`engine.git`). An unchanged file with a filter keeps the
blob of the index, which for git-lfs is its pointer. git itself converts line endings, `ident` and encodings.

Differences come from `git diff-tree`. Merges are git's own text merge, by `git merge-tree`, without a merge driver.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.git import INSTALL_GIT, MIN_VERSION, Git, printable_path, read_git_version, split_nul, update_index
from engine.git.environment import get_temporary_folder
from engine.model import Refusal

REF_ROOT = "refs/clawpy"
"""The refs that keep our objects in a repository; they point to trees, which `git log --all` does not show."""

DURABLE_OPTIONS = ("-c", "core.fsync=loose-object,reference", "-c", "core.fsyncMethod=fsync")
"""Options of git for objects that must survive a power cut: old contents are on disk before any file changes."""

OUR_NAME = "Clawpy Console"
OUR_EMAIL = "clawpy@localhost"
"""The author of commits that have no other."""

SUBMODULE_MODE = "160000"
LINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
ABSENT_MODE = "000000"
"""git's modes of a submodule, a link, an executable file, and a path that a tree does not have."""

MAX_TEXT_SIZE = "1m"
"""Files above this size are shown as binary."""

_DIFF_COMMAND = ("diff-tree", "-r", "--full-index")
"""The command that compares two trees."""

_REVIEW_COMMAND = ("-c", f"core.bigFileThreshold={MAX_TEXT_SIZE}", *_DIFF_COMMAND, "--find-renames")
"""The command that compares two trees for a reviewer."""

_STATUS_BY_LETTER = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}
"""The status of a change by git's letter."""


def make_identity_variables(name: str, email: str, date: str) -> dict[str, str]:
    """The environment variables that make somebody the author and the committer of a commit."""
    values = {"NAME": name, "EMAIL": email, "DATE": date}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in values.items()}


# -- snapshots

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
    skipped: frozenset[bytes] = frozenset(),
) -> Snapshot:
    """Store the files of `folder` (by default the repository's own) as a tree in the repository.

    A file that cannot be read stays as it is in the index.

    Args:
        index: the index to start from, for its stat cache; by default the real one.
        base: a tree whose files count as tracked, and no others, whatever a session did to its index.
        skipped: untracked files to leave out.
    """
    head, committed = _read_head(git)
    with scratch_index(index or git.repository.git_dir / "index") as scratch:
        scanned = git.over(folder or git.folder, scratch)
        if base:
            scanned.output("read-tree", "--reset", base)
        nested = update_index(scanned, skip_prefix=TEMPORARY_PREFIX, skip_paths=skipped)
        tree = scanned.text("write-tree", "--missing-ok")
    return Snapshot(head, tree, tree == (committed or store_empty_tree(git)), nested)


def find_submodules(git: Git, tree: str) -> list[bytes]:
    """The paths of the submodules in a tree."""
    entries = split_nul(git.output("ls-tree", "-r", "-z", tree))
    return [entry.partition(b"\t")[2] for entry in entries if entry.startswith(SUBMODULE_MODE.encode())]


def _read_head(git: Git) -> tuple[str, str]:
    """The checked-out commit and its tree, both "" before the first commit."""
    queries = b"HEAD^{commit}\nHEAD^{tree}\n"
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin=queries).splitlines()
    head, tree = ("" if line.endswith(" missing") else line for line in answer)
    return head, tree


@contextmanager
def scratch_index(original: Path | None = None) -> Iterator[Path]:
    """A temporary copy of an index, or the path for a new one. The copy has the time of the original, because git
    compares file times with it to find stale entries."""
    with tempfile.TemporaryDirectory(prefix="index-", dir=get_temporary_folder()) as folder:
        copy = Path(folder) / "index"
        if original is not None and original.exists():
            with original.open("rb") as source:
                stat = os.fstat(source.fileno())
                copy.write_bytes(source.read())
            os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        yield copy


# -- objects


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


def create_branch(git: Git, name: str, commit: str) -> None:
    """Make the branch. Raises `GitError`, also when the branch exists by now."""
    git.output("update-ref", "-m", "clawpy: branch", f"refs/heads/{name}", commit, "0" * len(commit))


def find_branch_commit(git: Git, name: str) -> str:
    """The commit of a branch; "" when there is no such branch."""
    return git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1))


def find_missing_objects(git: Git, *oids: str) -> list[str]:
    """The `oids` that the repository no longer has."""
    answer = git.text("cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in oids).encode())
    return [line.split()[0] for line in answer.splitlines() if line.endswith(" missing")]


# -- differences


@frozen
class TreeChange:
    """One path in which two trees differ. Modes are git's; "000000" means that the path is absent."""

    path: bytes
    old_mode: str
    new_mode: str
    old_oid: str
    new_oid: str
    status: str
    old_path: bytes
    """For a rename, the path before it, to which the old mode and the old content belong."""

    @property
    def is_added(self) -> bool:
        """Whether the path is only in the new tree."""
        return self.old_mode == ABSENT_MODE

    @property
    def is_removed(self) -> bool:
        """Whether the path is only in the old tree."""
        return self.new_mode == ABSENT_MODE

    @property
    def paths(self) -> set[bytes]:
        """The paths that change: two for a rename, else one."""
        return {self.path, self.old_path or self.path}

    @property
    def patch_count(self) -> int:
        """The number of its patches in a diff: two where a file became a link or a link a file, else one."""
        return 2 if ABSENT_MODE not in (self.old_mode, self.new_mode) and self.old_mode[:2] != self.new_mode[:2] else 1


def diff_trees(git: Git, old: str, new: str, *, renames: bool = False) -> list[TreeChange]:
    """Every path in which the tree `new` differs from `old`. Without `renames`, a rename counts as a deletion and an
    addition."""
    command = _REVIEW_COMMAND if renames else (*_DIFF_COMMAND, "--no-renames")
    return _parse_raw(git.output(*command, "--raw", "-z", old, new))


def _parse_raw(output: bytes) -> list[TreeChange]:
    """The changes in the output of `git diff-tree --raw -z`."""
    items = iter(split_nul(output))
    changes = []
    for header in items:
        old_mode, new_mode, old_oid, new_oid, letter = header.decode().removeprefix(":").split()
        old_path = next(items) if letter[0] == "R" else b""
        is_mode = letter == "M" and old_oid == new_oid
        status = "mode" if is_mode else _STATUS_BY_LETTER[letter[0]]
        changes.append(TreeChange(next(items), old_mode, new_mode, old_oid, new_oid, status, old_path))
    return changes


def read_patches(git: Git, base: str, result: str) -> list[tuple[TreeChange, bytes]]:
    """The files that differ, with renames, each with its patch."""
    output = git.output(*_REVIEW_COMMAND, "--raw", "-p", "--submodule=short", "-z", base, result, timeout=120)
    raw, _, patch = output.partition(b"\0\0")
    # The lines of a hunk begin with " ", "+", "-", "\" or "@", so that only a header can begin with "diff --git". The
    # patches are in the order of the raw list.
    patches = iter(re.split(rb"(?m)^(?=diff --git )", patch)[1:])
    return [(file, b"".join(itertools.islice(patches, file.patch_count))) for file in _parse_raw(raw)]


def count_changed_lines(git: Git, base: str, result: str) -> dict[bytes, tuple[int | None, int | None]]:
    """The numbers of added and of removed lines by path; None for binary files."""
    items = iter(split_nul(git.output(*_REVIEW_COMMAND, "--numstat", "-z", base, result)))
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    for item in items:
        added, removed, path = item.split(b"\t", 2)
        if not path:  # a rename: the old and the new path follow
            next(items)
            path = next(items)
        counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts


def make_patch(git: Git, base: str, result: str) -> str:
    """The patch from one tree to another, for `git apply`. It is "" when git no longer has one of the trees, or when
    the patch is not UTF-8."""
    if find_missing_objects(git, base, result):
        return ""
    try:
        return git.output(*_DIFF_COMMAND, "--find-renames", "-p", "--binary", base, result, timeout=120).decode()
    except UnicodeDecodeError:
        return ""


# -- merging


def require_merge_tree() -> None:
    """Raise `Refusal` `old_git` when git cannot merge without a working tree."""
    version = read_git_version()
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < MIN_VERSION:
        raise Refusal("old_git", f"{version} cannot merge without a working tree", INSTALL_GIT)


@frozen
class MergeResult:
    """The result of a merge."""

    tree: str
    """Valid only without conflicts."""
    conflicts: tuple[str, ...]
    """Printable paths."""


def merge_three_way(git: Git, *, base: str, ours: str, theirs: str) -> MergeResult:
    """Merge the trees `ours` and `theirs`, which both come from the tree `base`."""
    base_commit = make_synthetic_commit(git, base, message="base")
    our_commit = make_synthetic_commit(git, ours, base_commit, message="ours")
    their_commit = make_synthetic_commit(git, theirs, base_commit, message="theirs")
    options = ("--write-tree", "--name-only", "--no-messages", "-z")
    merged = git.run("merge-tree", *options, our_commit, their_commit, allowed=(0, 1))
    tree, *names = split_nul(merged.stdout)
    if merged.returncode == 0:
        return MergeResult(tree.decode(), ())
    conflicts = dict.fromkeys(names) or [b"(git names no file)"]  # never take an unclean merge for a clean one
    return MergeResult(tree.decode(), tuple(map(printable_path, conflicts)))

"""Stores working trees as git trees, compares them and merges them, for worktrees and landings (SPEC 3.9).

A snapshot is made by git's plumbing in a copy of the real index, whose stat cache makes that fast. It has uncommitted
and untracked files, but no ignored ones. Submodules keep their commit; other nested repositories are left out. The
operator's index, HEAD, stash and files stay as they are.

Neither hooks nor programs that a configuration names are run (`engine.git`). An unchanged file with a filter keeps the
blob of the index, which for git-lfs is its pointer. git itself converts line endings, `ident` and encodings.

Differences come from `git diff-tree`. A changed file with a configured filter is never landed, because the filter
program does not run, so that the bytes of the file are unknown. Merges are git's own text merge, by `git merge-tree`,
without a merge driver. For `clawpy branch` a difference becomes a commit on a new branch.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from io import BytesIO
from pathlib import Path

from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.git import MIN_VERSION, Git, read_git_version
from engine.git.command import join_nul, split_nul, update_index
from engine.git.environment import get_temporary_folder
from engine.git.state import make_session_branch_name
from engine.model import Refusal

REF_ROOT = "refs/clawpy"
"""The refs that keep our objects in a repository; they point to trees, which `git log --all` does not show."""

DURABLE = ("-c", "core.fsync=loose-object,reference", "-c", "core.fsyncMethod=fsync")
"""Options of git for objects that must survive a power cut: old contents are on disk before any file changes."""

OUR_NAME, OUR_EMAIL = "Clawpy Console", "clawpy@localhost"
"""The author of commits that have no other."""

GITLINK, LINK, EXECUTABLE, ABSENT = "160000", "120000", "100755", "000000"
"""git's modes of a submodule, a link, an executable file, and a path that a tree does not have."""

MAX_TEXT_SIZE = "1m"
"""Files above this size are shown as binary."""

_DIFF = ("diff-tree", "-r", "--full-index")
"""The command that compares two trees."""

_SHOWN = ("-c", f"core.bigFileThreshold={MAX_TEXT_SIZE}", *_DIFF, "--find-renames")
"""The command that compares two trees for a reviewer."""

_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}
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
    without: frozenset[bytes] = frozenset(),
) -> Snapshot:
    """Store the files of `folder` (by default the repository's own) as a tree in the repository.

    A file that cannot be read stays as it is in the index.

    Args:
        index: the index to start from, for its stat cache; by default the real one.
        base: a tree whose files count as tracked, and no others, whatever a session did to its index.
        without: untracked files to leave out.
    """
    head, committed = _read_head(git)
    with scratch_index(index or git.repository.git_dir / "index") as scratch:
        scanned = git.over(folder or git.folder, scratch)
        if base:
            scanned.output("read-tree", "--reset", base)
        nested = update_index(scanned, skip_prefix=TEMPORARY_PREFIX, skip_paths=without)
        tree = scanned.text("write-tree", "--missing-ok")
    return Snapshot(head, tree, tree == (committed or store_empty_tree(git)), nested)


def find_submodules(git: Git, tree: str) -> list[bytes]:
    """The paths of the submodules in a tree."""
    entries = split_nul(git.output("ls-tree", "-r", "-z", tree))
    return [entry.partition(b"\t")[2] for entry in entries if entry.startswith(GITLINK.encode())]


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
        return self.old_mode == ABSENT

    @property
    def is_removed(self) -> bool:
        """Whether the path is only in the old tree."""
        return self.new_mode == ABSENT

    @property
    def paths(self) -> set[bytes]:
        """The paths that change: two for a rename, else one."""
        return {self.path, self.old_path or self.path}

    @property
    def patch_count(self) -> int:
        """The number of its patches in a diff: two where a file became a link or a link a file, else one."""
        return 2 if ABSENT not in (self.old_mode, self.new_mode) and self.old_mode[:2] != self.new_mode[:2] else 1


def diff_trees(git: Git, old: str, new: str) -> list[TreeChange]:
    """Every path in which the tree `new` differs from `old`. A rename counts as a deletion and an addition."""
    return _parse_raw(git.output(*_DIFF, "--raw", "--no-renames", "-z", old, new))


def find_changed_files(git: Git, base: str, result: str) -> list[TreeChange]:
    """The files that differ, with renames, in git's order."""
    return _parse_raw(git.output(*_SHOWN, "--raw", "-z", base, result))


def _parse_raw(output: bytes) -> list[TreeChange]:
    """The changes in the output of `git diff-tree --raw -z`."""
    items = iter(split_nul(output))
    changes = []
    for header in items:
        old_mode, new_mode, old_oid, new_oid, letter = header.decode().removeprefix(":").split()
        old_path = next(items) if letter[0] == "R" else b""
        is_mode = letter == "M" and old_oid == new_oid
        status = "mode" if is_mode else _STATUS[letter[0]]
        changes.append(TreeChange(next(items), old_mode, new_mode, old_oid, new_oid, status, old_path))
    return changes


def read_patches(git: Git, base: str, result: str) -> list[tuple[TreeChange, bytes]]:
    """The files that differ, with renames, each with its patch."""
    output = git.output(*_SHOWN, "--raw", "-p", "--submodule=short", "-z", base, result, timeout=120)
    raw, _, patch = output.partition(b"\0\0")
    # The lines of a hunk begin with " ", "+", "-", "\" or "@", so that only a header can begin with "diff --git". The
    # patches are in the order of the raw list.
    patches = iter(re.split(rb"(?m)^(?=diff --git )", patch)[1:])
    return [(file, b"".join(itertools.islice(patches, file.patch_count))) for file in _parse_raw(raw)]


def count_changed_lines(git: Git, base: str, result: str) -> dict[bytes, tuple[int | None, int | None]]:
    """The numbers of added and of removed lines by path; None for binary files."""
    items = iter(split_nul(git.output(*_SHOWN, "--numstat", "-z", base, result)))
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
        return git.output(*_DIFF, "--find-renames", "-p", "--binary", base, result, timeout=120).decode()
    except UnicodeDecodeError:
        return ""


def find_unsupported(git: Git, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """The paths that are never landed among `changes`, which lead to `tree`, each with the reason. They are submodules,
    names that lead out of the folder or into git's own, links that lead out, and files with a configured filter."""
    reasons = {change.path: reason for change in changes if (reason := _explain_refusal(change))}
    links = [change for change in changes if change.path not in reasons and change.new_mode == LINK]
    for path, target in _find_links_leading_out(git, tree, links):
        reasons[path] = f"a link that points outside the project, to {printable_path(target)}"
    if git.repository.filters:
        remaining_paths = [change.path for change in changes if change.path not in reasons]
        for path, name in _find_files_with_filter(git, tree, remaining_paths):
            reasons[path] = f"uses the filter program {name.decode(errors='replace')!r}, which is not run"
    return reasons


def _explain_refusal(change: TreeChange) -> str:
    """Why a path is never landed, whatever is there; "" if it may be."""
    names = os.fsdecode(change.path).split("/")
    if any(name in ("", ".", "..") for name in names):
        return "its path leads outside the project"
    if any(is_git_name(name) for name in names):
        return "on some machines its name means git's own folder, whose contents are executed"
    if GITLINK in (change.old_mode, change.new_mode):
        return "a submodule; update it with git itself"
    return ""


def is_git_name(name: str) -> bool:
    """Whether some file system takes this name for `.git`."""
    # HFS+ ignores invisible characters. NTFS ignores dots and spaces at the end, and everything after a colon.
    letters = unicodedata.normalize("NFKC", name)
    folded = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Cf", "Cc"))
    return folded.split(":")[0].rstrip(". ").casefold() in (".git", "git~1")


def _find_files_with_filter(git: Git, tree: str, paths: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Those of `paths` that have a configured filter by the attributes of `tree`, each with the filter's name."""
    with scratch_index() as index:
        staged = git.over(git.folder, index)
        staged.output("read-tree", tree)
        answer = split_nul(staged.output("check-attr", "--cached", "-z", "--stdin", "filter", stdin=join_nul(paths)))
    for path, name in zip(answer[0::3], answer[2::3], strict=True):
        if name.decode(errors="surrogateescape") in git.repository.filters:
            yield path, name


def _find_links_leading_out(git: Git, tree: str, links: Sequence[TreeChange]) -> Iterator[tuple[bytes, bytes]]:
    """The links that lead out of the tree, by themselves or through other links, each with the place where it ends."""
    if not links:
        return
    queries = b"".join(b"%s:%s\0" % (tree.encode(), link.path) for link in links)
    answer = BytesIO(git.output("cat-file", "--batch-check", "--follow-symlinks", "-z", stdin=queries))
    for link in links:
        fields = answer.readline().split()
        # A link out of the tree is "symlink 11\n/etc/passwd". One that leads nowhere in the tree is "dangling
        # 45\nTREE:path", "loop" or "notdir".
        target_outside = b""
        if fields[0] in (b"symlink", b"dangling", b"loop", b"notdir"):
            target_outside = answer.read(int(fields[1]) + 1)[:-1]
        target = git.output("cat-file", "blob", link.new_oid)
        if fields[0] == b"symlink":
            yield link.path, target_outside
        elif leads_out(link.path, target):
            yield link.path, target  # git stopped at a name that is not in the tree, before the path led out of it


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether the target of a link at this path is absolute, or has more `..` than folders to leave."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return end.split(b"/")[0] in (b"", b"..")


# -- merging and branches


def require_merge_tree() -> None:
    """Raise `Refusal` `old_git` when git cannot merge without a working tree."""
    version = read_git_version()
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < MIN_VERSION:
        raise Refusal("old_git", f"{version} cannot merge without a working tree", "install git 2.38 or newer")


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


def commit_diff(git: Git, *, base: str, result: str, message: str, at: datetime) -> str:
    """Commit exactly the changes from tree `base` to tree `result` onto HEAD. The new commit has no ref yet.

    The author is git's user, else a fallback. Raises `Refusal`: `conflict` (the changes build on uncommitted work that
    HEAD does not have), `nothing_to_commit`.
    """
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    onto = git.text("rev-parse", f"{head}^{{tree}}") if head else store_empty_tree(git)
    merge = merge_three_way(git, base=base, ours=onto, theirs=result)
    if merge.conflicts:
        raise Refusal(
            "conflict",
            f"no branch was made: it builds on changes that HEAD does not have: {join_paths(merge.conflicts)}",
            "commit your own changes of these files and try again, or land it instead",
        )
    if merge.tree == onto:
        message = "no branch was made: with these changes, the files are as HEAD has them"
        raise Refusal("nothing_to_commit", message, "land them if your files differ from HEAD there, else discard them")
    name = git.text("config", "user.name", allowed=(0, 1)) or OUR_NAME
    email = git.text("config", "user.email", allowed=(0, 1)) or OUR_EMAIL
    parents = ("-p", head) if head else ()
    return git.text(
        "commit-tree",
        merge.tree,
        *parents,
        stdin=message.encode(),
        environment=make_identity_variables(name, email, at.isoformat()),
    )


def find_free_branch_name(git: Git, title: str, session_id: str) -> str:
    """A branch name from the words of `title`. If it is taken, the first free suffix (-2, -3, …) is added."""
    first = make_session_branch_name(title, validate_id(session_id), below=not find_branch_commit(git, "clawpy"))
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    # A name is taken by a branch, and by branches below it.
    return next(name for name in names if not git.text("for-each-ref", "--count=1", f"refs/heads/{name}"))


def create_branch(git: Git, name: str, commit: str) -> None:
    """Make the branch. Raises `GitError`, also when the branch exists by now."""
    git.output("update-ref", "-m", "clawpy: branch", f"refs/heads/{name}", commit, "0" * len(commit))


def find_branch_commit(git: Git, name: str) -> str:
    """The commit of a branch; "" when there is no such branch."""
    return git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1))

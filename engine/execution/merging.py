"""Trees merged without a working tree: git's own `merge-tree` decides what is clean (SPEC 3.9); and a session's
diff as a commit on a branch of its own, without index, HEAD or hooks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO

from engine.execution import snapshots
from engine.execution.snapshots import PlainGit, commit_of, scratch_index, shown
from engine.execution.tools.jail import is_git
from engine.frozen import frozen
from engine.git import Git, GitError, session_branch
from engine.git.tree import split
from engine.model import Refusal

GITLINK = "160000"
LINK = "120000"
ABSENT = "000000"


@frozen
class Merge:
    """What git makes of two sides of one base. `tree` is meaningful only when `conflicts` is empty."""

    tree: str
    conflicts: tuple[bytes, ...]


@frozen
class TreeChange:
    """One path in which two trees differ. Modes are git's, "000000" where the path is absent."""

    path: bytes
    old_mode: str
    new_mode: str
    old_oid: str
    new_oid: str

    @property
    def appears(self) -> bool:
        return self.old_mode == ABSENT

    @property
    def goes(self) -> bool:
        return self.new_mode == ABSENT


def three_way(git: Git, *, base: str, ours: str, theirs: str) -> Merge:
    """Merge the trees `ours` and `theirs`, which both come from the tree `base`."""
    base_commit = commit_of(git, base, message="base")
    our_commit = commit_of(git, ours, base_commit, message="ours")
    their_commit = commit_of(git, theirs, base_commit, message="theirs")
    merged = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", our_commit, their_commit, allowed=(0, 1)
    )
    tree, *conflicts = split(merged.stdout)
    if merged.returncode and not conflicts:
        conflicts = [b"(git names no file)"]  # never take an unclean merge for a clean one
    return Merge(tree.decode(), tuple(dict.fromkeys(conflicts)) if merged.returncode else ())


def differences(git: Git, old: str, new: str) -> list[TreeChange]:
    """Every path in which the tree `new` differs from `old`, a rename being a deletion and an addition."""
    changes = []
    items = split(git.output("diff-tree", "-r", "--raw", "--no-renames", "--full-index", "-z", old, new))
    for header, path in zip(items[0::2], items[1::2], strict=True):
        old_mode, new_mode, old_oid, new_oid, _ = header.decode().removeprefix(":").split()
        changes.append(TreeChange(path, old_mode, new_mode, old_oid, new_oid))
    return changes


def unsupported(plain: PlainGit, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """Paths among `changes` that we do not write, with the reason: those of `refused`, and files of a configured
    filter."""
    reasons = refused(plain.git, tree, changes)
    if plain.filters:
        with scratch_index() as index:
            git = plain.work_tree(plain.folder, index)
            git.output("read-tree", tree)
            paths = b"".join(change.path + b"\0" for change in changes if change.path not in reasons)
            answer = split(git.output("check-attr", "--cached", "-z", "--stdin", "filter", stdin=paths))
        for path, value in zip(answer[0::3], answer[2::3], strict=True):
            if value.decode(errors="surrogateescape") in plain.filters:
                reasons[path] = f"uses the filter program {value.decode(errors='replace')!r}, which is not run"
    return reasons


def refused(git: Git, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """Paths among `changes`, which lead to `tree`, that are never landed, with the reason: submodules, names that lead
    out of the folder or into git's own, links that lead out."""
    reasons = {}
    links = []
    for change in changes:
        names = os.fsdecode(change.path).split("/")
        if any(name in ("", ".", "..") for name in names):
            reasons[change.path] = "its path leads outside the project"
        elif any(is_git(name) for name in names):
            reasons[change.path] = "on some machines its name means git's own folder, whose contents are executed"
        elif GITLINK in (change.old_mode, change.new_mode):
            reasons[change.path] = "a submodule; update it with git itself"
        elif change.new_mode == LINK:
            links.append(change)
    return reasons | {
        path: f"a link that points outside the project, to {shown(to)}"
        for path, to in _links_leading_out(git, tree, links)
    }


def _links_leading_out(git: Git, tree: str, links: Sequence[TreeChange]) -> Iterator[tuple[bytes, bytes]]:
    """(path, where it ends) of links that lead out of the tree, by themselves or through other links in it."""
    if not links:
        return
    queries = b"".join(b"%s:%s\0" % (tree.encode(), link.path) for link in links)
    answer = BytesIO(git.output("cat-file", "--batch-check", "--follow-symlinks", "-z", stdin=queries))
    for link in links:
        fields = answer.readline().split()
        # "symlink 11\n/etc/passwd": out of the tree; "dangling 45\nTREE:path", "loop", "notdir": nowhere in the tree
        target_outside = (
            answer.read(int(fields[1]) + 1)[:-1] if fields[0] in (b"symlink", b"dangling", b"loop", b"notdir") else b""
        )
        target = git.output("cat-file", "blob", link.new_oid)
        if fields[0] == b"symlink":
            yield link.path, target_outside
        elif target.startswith(b"/") or _climbs_out(link.path, target):
            yield link.path, target  # a name on its way is not in the tree: git gave up before it came out


def _climbs_out(path: bytes, target: bytes) -> bool:
    """Whether the words of a link's target have more `..` than folders to leave."""
    depth = path.count(b"/")
    for name in target.split(b"/"):
        depth += -1 if name == b".." else 0 if name in (b"", b".") else 1
        if depth < 0:
            return True
    return False


def commit_diff(plain: PlainGit, *, base: str, result: str, message: str, at: datetime) -> str:
    """A commit of exactly the changes from tree `base` to tree `result`, onto HEAD; no ref points to it yet.

    The author is who git says the operator is, else a fallback. Raises `Refusal`: `conflict` when the changes build
    on uncommitted work that HEAD lacks, `nothing_to_commit`, `unsupported_files`.
    """
    git = plain.git
    if filtered := unsupported(plain, result, differences(git, base, result)):
        names = ", ".join(f"{shown(path)}: {reason}" for path, reason in filtered.items())
        raise Refusal("unsupported_files", f"these are not committed: {names}", "copy them by hand")
    head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", allowed=(0, 1))
    onto = git.text("rev-parse", f"{head}^{{tree}}") if head else snapshots.empty_tree(git)
    merge = three_way(git, base=base, ours=onto, theirs=result)
    if merge.conflicts:
        names = ", ".join(shown(path) for path in merge.conflicts)
        raise Refusal(
            "conflict",
            f"it builds on changes that HEAD does not have: {names}",
            "commit your own work first, or land it instead",
        )
    if merge.tree == onto:
        raise Refusal("nothing_to_commit", "HEAD has all of it already", "discard it")
    parents = ("-p", head) if head else ()
    return git.text("commit-tree", merge.tree, *parents, stdin=message.encode(), environment=_identity(git, at))


def _identity(git: Git, at: datetime) -> dict[str, str]:
    identity = {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat()}
    for key, fallback in (("name", "Clawpy Console"), ("email", "clawpy@localhost")):
        value = git.text("config", f"user.{key}", allowed=(0, 1)) or fallback
        identity |= {f"GIT_{role}_{key.upper()}": value for role in ("AUTHOR", "COMMITTER")}
    return identity


def free_name(git: Git, title: str, session_id: str) -> str:
    """A name that no branch has, made of the words of `title`; with the first suffix -2, -3, … that is free."""
    name = first = session_branch(title, snapshots.checked_id(session_id), below=not _exists(git, "clawpy"))
    number = 1
    while git.text("for-each-ref", "--count=1", f"refs/heads/{name}"):  # it, or branches below it
        number += 1
        name = f"{first}-{number}"
    return name


def create(git: Git, name: str, commit: str) -> None:
    """Make the branch, unless it came into being meanwhile. Raises `GitError`."""
    git.output("update-ref", "-m", "clawpy: branch", f"refs/heads/{name}", commit, "0" * len(commit))


def points_to(git: Git, name: str, commit: str) -> bool:
    """True when the branch is there and at `commit`."""
    try:
        return git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1)) == commit
    except GitError as error:
        raise Refusal("git_failed", f"cannot read the branches of {git.folder}: {error.stderr}") from error


def _exists(git: Git, name: str) -> bool:
    return bool(git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{name}", allowed=(0, 1)))

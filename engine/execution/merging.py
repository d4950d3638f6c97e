"""Merges trees without a working tree, by git's own `merge-tree`, and finds changed paths that are never landed (SPEC
3.9)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO

from engine.execution.snapshots import commit_of, printable_path, scratch_index
from engine.execution.tools.folder_jail import is_git_name
from engine.execution.tree_diff import GITLINK, LINK, TreeChange
from engine.frozen import frozen
from engine.git import Git
from engine.git.nul_lists import split_nul


@frozen
class MergeResult:
    """The result of a merge."""

    tree: str
    """Valid only without conflicts."""
    conflicts: tuple[bytes, ...]


def merge_three_way(git: Git, *, base: str, ours: str, theirs: str) -> MergeResult:
    """Merge the trees `ours` and `theirs`, which both come from the tree `base`."""
    base_commit = commit_of(git, base, message="base")
    our_commit = commit_of(git, ours, base_commit, message="ours")
    their_commit = commit_of(git, theirs, base_commit, message="theirs")
    merged = git.run(
        "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", our_commit, their_commit, allowed=(0, 1)
    )
    tree, *conflicts = split_nul(merged.stdout)
    if merged.returncode and not conflicts:
        conflicts = [b"(git names no file)"]  # never take an unclean merge for a clean one
    return MergeResult(tree.decode(), tuple(dict.fromkeys(conflicts)) if merged.returncode else ())


def find_unsupported(git: Git, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """The paths among `changes` that cannot be landed, with the reason: those of `find_refused`, and files with a
    configured filter."""
    reasons = find_refused(git, tree, changes)
    if filters := git.repository.filters:
        with scratch_index() as index:
            staged = git.over(git.folder, index)
            staged.output("read-tree", tree)
            paths = b"".join(change.path + b"\0" for change in changes if change.path not in reasons)
            answer = split_nul(staged.output("check-attr", "--cached", "-z", "--stdin", "filter", stdin=paths))
        for path, value in zip(answer[0::3], answer[2::3], strict=True):
            if value.decode(errors="surrogateescape") in filters:
                reasons[path] = f"uses the filter program {value.decode(errors='replace')!r}, which is not run"
    return reasons


def find_refused(git: Git, tree: str, changes: Sequence[TreeChange]) -> dict[bytes, str]:
    """The paths among `changes`, which lead to `tree`, that are never landed, with the reason: submodules, names that
    lead outside the folder or into git's own, links that lead outside."""
    reasons = {}
    links = []
    for change in changes:
        names = os.fsdecode(change.path).split("/")
        if any(name in ("", ".", "..") for name in names):
            reasons[change.path] = "its path leads outside the project"
        elif any(is_git_name(name) for name in names):
            reasons[change.path] = "on some machines its name means git's own folder, whose contents are executed"
        elif GITLINK in (change.old_mode, change.new_mode):
            reasons[change.path] = "a submodule; update it with git itself"
        elif change.new_mode == LINK:
            links.append(change)
    return reasons | {
        path: f"a link that points outside the project, to {printable_path(to)}"
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
        target_outside = b""
        if fields[0] in (b"symlink", b"dangling", b"loop", b"notdir"):
            target_outside = answer.read(int(fields[1]) + 1)[:-1]
        target = git.output("cat-file", "blob", link.new_oid)
        if fields[0] == b"symlink":
            yield link.path, target_outside
        elif target.startswith(b"/") or _climbs_out(link.path, target):
            yield link.path, target  # git stopped at a name that is not in the tree, before the path left it


def _climbs_out(path: bytes, target: bytes) -> bool:
    """Whether a link's target has more `..` than folders to leave."""
    depth = path.count(b"/")
    for name in target.split(b"/"):
        if name == b"..":
            depth -= 1
        elif name not in (b"", b"."):
            depth += 1
        if depth < 0:
            return True
    return False

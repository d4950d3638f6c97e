"""Three-way merges of trees, without a working tree: git's own `merge-tree` decides what is clean (SPEC 3.9)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.execution.snapshots import PlainGit, commit_of, scratch_index
from engine.git import Git
from engine.git.tree import split

GITLINK = "160000"
ABSENT = "000000"


@dataclass(frozen=True, slots=True)
class Merge:
    """What git makes of two sides of one base. `tree` is meaningful only when `conflicts` is empty."""

    tree: str
    conflicts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
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
    root = commit_of(git, base, message="base")
    left = commit_of(git, ours, root, message="ours")
    right = commit_of(git, theirs, root, message="theirs")
    done = git.run("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", left, right, allowed=(0, 1))
    tree, *conflicts = split(done.stdout)
    if done.returncode and not conflicts:
        conflicts = [b"(git names no file)"]  # never take an unclean merge for a clean one
    return Merge(tree.decode(), tuple(dict.fromkeys(conflicts)) if done.returncode else ())


def differences(git: Git, old: str, new: str) -> list[TreeChange]:
    """Every path in which the tree `new` differs from `old`, a rename being a deletion and an addition."""
    changes = []
    items = split(git.output("diff-tree", "-r", "--raw", "--no-renames", "--full-index", "-z", old, new))
    for header, path in zip(items[0::2], items[1::2], strict=True):
        old_mode, new_mode, old_oid, new_oid, _ = header.decode().removeprefix(":").split()
        changes.append(TreeChange(path, old_mode, new_mode, old_oid, new_oid))
    return changes


def unsupported(plain: PlainGit, tree: str, changes: list[TreeChange]) -> dict[bytes, str]:
    """Paths among `changes` that we do not write, with the reason: submodules, and files of a configured filter."""
    reasons = {
        change.path: "a submodule; move it with git itself"
        for change in changes
        if GITLINK in (change.old_mode, change.new_mode)
    }
    if plain.filters:
        with scratch_index() as index:
            git = plain.work_tree(plain.folder, index)
            git.output("read-tree", tree)
            paths = b"".join(change.path + b"\0" for change in changes)
            answer = split(git.output("check-attr", "--cached", "-z", "--stdin", "filter", stdin=paths))
        for path, value in zip(answer[0::3], answer[2::3], strict=True):
            if value.decode(errors="surrogateescape") in plain.filters:
                reasons[path] = f"goes through the filter program {value.decode(errors='replace')!r}, which is not run"
    return reasons

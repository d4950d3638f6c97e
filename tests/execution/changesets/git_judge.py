"""What git itself makes of a change set in the operator's files, as a judge that is independent of the engine.

Trees are made by `git add -A` on a scratch index, the merge by `git merge-tree`, and "nothing untracked stands in the
way" is known by `git checkout --no-overwrite-ignore` in a copy of the whole repository.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.execution.changesets.landing_world import FileStates, LandingWorld, read_file_states


def run_git(
    root: Path, *arguments: str, index: Path | None = None, work_tree: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[bytes]:
    """Run git. It must succeed, unless `check` is false."""
    environment = dict(os.environ)
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    if work_tree is not None:
        environment |= {"GIT_WORK_TREE": str(work_tree), "GIT_DIR": str(root / ".git")}
    return subprocess.run(["git", *arguments], cwd=work_tree or root, env=environment, capture_output=True, check=check)


def write_tree(root: Path, *, files: Path | None = None, start: str = "") -> str:
    """The files of a folder as a tree, the plain way: `git add -A` on a scratch index."""
    index = root.parent / "judge-index"
    index.unlink(missing_ok=True)
    if start:
        run_git(root, "read-tree", start, index=index)
    else:
        shutil.copy2(root / ".git/index", index)
    run_git(root, "add", "-A", index=index, work_tree=files or root)
    return run_git(root, "write-tree", index=index).stdout.decode().strip()


def commit(root: Path, tree: str, *parents: str) -> str:
    """Commit a tree on these parents; the id of the commit."""
    options = [word for parent in parents for word in ("-p", parent)]
    return run_git(root, "commit-tree", tree, "-m", "x", *options).stdout.decode().strip()


class Merge(NamedTuple):
    """What git makes of a change set in the operator's files."""

    files: FileStates | None
    """The files as git would leave them; None if it refuses."""
    touched: set[str]
    """The paths that git would write or delete."""


def merge_by_git(world: LandingWorld, base: str, result: str, present: str) -> Merge:
    """Merge two trees, the session's result and the present files, which both began as `base`."""
    root = world.root
    root_commit = commit(root, base)
    our_commit, their_commit = commit(root, present, root_commit), commit(root, result, root_commit)
    merge = run_git(root, "merge-tree", "--write-tree", "--no-messages", our_commit, their_commit, check=False)
    assert merge.returncode in (0, 1), merge.stderr
    if merge.returncode == 1:  # it conflicts
        return Merge(None, set())
    merged = merge.stdout.decode().split()[0]
    touched = run_git(root, "diff-tree", "-r", "--no-renames", "--name-only", "-z", present, merged).stdout.split(b"\0")
    merge_commit = commit(root, merged, our_commit)
    copy = root.parent / "copy"
    shutil.copytree(root, copy, symlinks=True)
    run_git(copy, "update-ref", "--no-deref", "HEAD", our_commit)
    run_git(copy, "read-tree", "--reset", our_commit)
    run_git(copy, "update-index", "-q", "--refresh", check=False)  # fails where a file differs
    checkout = run_git(copy, "checkout", "-q", "--no-overwrite-ignore", "--detach", merge_commit, check=False)
    files = read_file_states(copy)
    shutil.rmtree(copy)
    return Merge(None if checkout.returncode else files, {os.fsdecode(path) for path in touched if path})


def has_link_leading_out(root: Path, base: str, result: str) -> bool:
    """Whether the session made a link that leads out of the project: at the top, one that goes up."""
    changed = run_git(root, "diff-tree", "-r", "--no-renames", "--diff-filter=AMT", "-z", base, result).stdout.split(
        b"\0"
    )
    for entry, path in zip(changed[::2], changed[1::2], strict=False):
        _, mode, _, blob, _ = entry.split()
        is_link_at_top = mode == b"120000" and b"/" not in path
        if is_link_at_top and run_git(root, "cat-file", "blob", blob.decode()).stdout.startswith(b"../"):
            return True
    return False

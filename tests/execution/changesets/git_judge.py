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


def run_git(root: Path, *arguments: str, index: Path | None = None, work_tree: Path | None = None) -> tuple[int, bytes]:
    """Run git; its exit code and output."""
    environment = dict(os.environ)
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    if work_tree is not None:
        environment |= {"GIT_WORK_TREE": str(work_tree), "GIT_DIR": str(root / ".git")}
    completed = subprocess.run(
        ["git", *arguments], cwd=work_tree or root, env=environment, capture_output=True, check=False
    )
    return completed.returncode, completed.stdout


def write_tree(root: Path, *, files: Path | None = None, start: str = "") -> str:
    """The files of a folder as a tree, the plain way: `git add -A` on a scratch index."""
    index = root.parent / "judge-index"
    index.unlink(missing_ok=True)
    if start:
        run_git(root, "read-tree", start, index=index)
    else:
        shutil.copy2(root / ".git/index", index)
    code, _ = run_git(root, "add", "-A", index=index, work_tree=files or root)
    assert code == 0
    return run_git(root, "write-tree", index=index)[1].decode().strip()


def commit(root: Path, tree: str, *parents: str) -> str:
    """Commit a tree on these parents; the id of the commit."""
    options = [word for parent in parents for word in ("-p", parent)]
    return run_git(root, "commit-tree", tree, "-m", "x", *options)[1].decode().strip()


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
    code, out = run_git(root, "merge-tree", "--write-tree", "--no-messages", our_commit, their_commit)
    if code != 0:
        return Merge(None, set())
    merged = out.decode().split()[0]
    touched = run_git(root, "diff-tree", "-r", "--no-renames", "--name-only", "-z", present, merged)[1].split(b"\0")
    goal = commit(root, merged, our_commit)
    copy = root.parent / "copy"
    shutil.copytree(root, copy, symlinks=True)
    run_git(copy, "update-ref", "--no-deref", "HEAD", our_commit)
    run_git(copy, "read-tree", "--reset", our_commit)
    run_git(copy, "update-index", "-q", "--refresh")
    code, _ = run_git(copy, "checkout", "-q", "--no-overwrite-ignore", "--detach", goal)
    files = read_file_states(copy)
    shutil.rmtree(copy)
    return Merge(None if code else files, {os.fsdecode(path) for path in touched if path})


def has_link_leading_out(root: Path, base: str, result: str) -> bool:
    """Whether the session made a link that leads out of the project: at the top, one that goes up."""
    changed = run_git(root, "diff-tree", "-r", "--no-renames", "--diff-filter=AMT", "-z", base, result)[1].split(b"\0")
    for entry, path in zip(changed[::2], changed[1::2], strict=False):
        _, mode, _, blob, _ = entry.split()
        is_link_at_top = mode == b"120000" and b"/" not in path
        if is_link_at_top and run_git(root, "cat-file", "blob", blob.decode())[1].startswith(b"../"):
            return True
    return False

"""Random scenarios of a change set and later edits: the landing must be what git would do, and the undo its reverse
(SPEC 3.9)."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from engine.model import ChangeSet, ChangeState, Refusal
from tests.execution.changesets.landing_world import FileState, FileStates, LandingWorld, read_file_states
from tests.execution.changesets.random_edits import LATER_EDITS, LINES, OPERATOR_EDITS, SESSION_EDITS, Edit


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


@dataclass
class Scenario:
    """A repository in a state, a session's edits, and what the operator did before, meanwhile and after."""

    earlier: list[Edit]
    session: list[Edit]
    meanwhile: list[Edit]
    after: list[Edit]


SCENARIOS = st.builds(
    Scenario,
    st.lists(OPERATOR_EDITS, max_size=3),
    SESSION_EDITS,
    st.lists(OPERATOR_EDITS, min_size=1, max_size=4),
    LATER_EDITS,
)


def apply_edits(world: LandingWorld, edits: list[Edit]):
    """Make the edits of the operator, with what the operator tells git."""
    for edit in edits:
        edit.apply(world.root)
        if edit.record:
            run_git(world.root, "add", "-A")
        if edit.record == "commit":
            run_git(world.root, "commit", "-q", "--allow-empty", "-m", "more")


def check_scenario(scenario: Scenario, folder: Path) -> str:
    """Land, edit, undo. Returns the outcome; AssertionError when git would have done anything else."""
    world = LandingWorld(folder)
    try:
        return _play_scenario(scenario, world)
    finally:
        world.close()


def _play_scenario(scenario: Scenario, world: LandingWorld) -> str:
    root = world.root
    text = "\n".join(LINES) + "\n"
    world.repository.commit("one", {"a.txt": text, "b.txt": text[:200], "d/c.txt": text[100:], "x/y/z.txt": text * 2})
    apply_edits(world, scenario.earlier)
    base = write_tree(root)
    results = []

    def work(inside: Path):
        for edit in scenario.session:
            edit.apply(inside)
        results.append(write_tree(root, files=inside, start=base))

    change_set = world.run_session(work)
    [result] = results
    if change_set is None:
        assert result == base
        return "nothing changed"
    apply_edits(world, scenario.meanwhile)
    before = world.files
    merge = merge_by_git(world, base, result, write_tree(root))
    if not land_as_git_would(world, change_set, merge, leads_out=has_link_leading_out(root, base, result)):
        return "refused"
    return "undone" if undo_exactly(world, change_set, scenario.after, before, merge.touched) else "undo refused"


def land_as_git_would(world: LandingWorld, change_set: ChangeSet, merge: Merge, *, leads_out: bool) -> bool:
    """Land. Returns False if that was refused, as it must be where git refuses and where a link leads out."""
    before, git_before = world.files, world.git_state
    preview = world.changes.preview_land(change_set.id)
    refusal = find_refusal(lambda: world.changes.land(change_set.id))
    assert world.git_state == git_before
    if refusal is not None:
        assert world.files == before
        assert refusal.code == "conflict" or (leads_out and refusal.code == "unsupported_files"), refusal
        if not leads_out:
            assert merge.files is None, f"git lands this, we refuse: {refusal}"
            assert not preview.clean
        return False
    assert not leads_out, "a link that leads out was landed"
    assert merge.files is not None, "git refuses this, we land it"
    assert preview.clean
    landed = world.files
    assert {path: reduce_to_git(entry) for path, entry in landed.items()} == {
        path: reduce_to_git(entry) for path, entry in merge.files.items()
    }
    for path, entry in before.items():
        if path not in merge.touched and entry[0] != "folder":
            assert landed[path] == entry, f"{path} was not ours to touch"
    return True


def undo_exactly(
    world: LandingWorld, change_set: ChangeSet, edits: list[Edit], before: FileStates, touched: set[str]
) -> bool:
    """Make later edits, then undo the landing that `touched` these paths. Returns False if that was refused, as it must
    be where the undo would lose an edit or a file is in the way."""
    landed, git_before = world.files, world.git_state
    for edit in edits:
        edit.apply(world.root)
    later = world.files
    changed = {path for path in touched if drop_folder(later.get(path)) != drop_folder(landed.get(path))}
    blocked = {
        path for path in touched if path in before and drop_folder(before[path]) and is_obstructed(later, path, touched)
    }
    refusal = find_refusal(lambda: world.changes.undo(change_set.id))
    if refusal is not None:
        assert refusal.code == "later_edits", refusal
        assert changed | blocked
        assert world.files == later
        return False
    assert not changed | blocked
    assert world.git_state == git_before
    if not edits:
        assert world.files == before
    expected = {path: before.get(path) if path in touched else later.get(path) for path in {*before, *later}}
    assert select_files(world.files) == select_files(expected)
    assert world.changes.get(change_set.id).state is ChangeState.UNDONE
    return True


def find_refusal(action: Callable[[], object]) -> Refusal | None:
    """How `action` was refused, or None."""
    try:
        action()
    except Refusal as refusal:
        return refusal
    return None


def reduce_to_git(entry: FileState) -> tuple[str, bool, bytes]:
    """Kind, executable or not, bytes: git keeps no other permission bits."""
    kind, mode, data = entry
    return kind, kind == "file" and bool(mode & stat.S_IXUSR), data


def drop_folder(entry: FileState | None) -> FileState | None:
    """The entry unless it is a folder."""
    return None if entry is None or entry[0] == "folder" else entry


def select_files(entries: Mapping[str, FileState | None]) -> FileStates:
    """The entries that exist and are no folders."""
    return {path: file for path, entry in entries.items() if (file := drop_folder(entry))}


def is_obstructed(later: FileStates, path: str, touched: set[str]) -> bool:
    """Whether a file that the landing did not write is where a file must be restored."""
    parents = [str(parent) for parent in Path(path).parents][:-1]
    above = any(drop_folder(later.get(parent)) and parent not in touched for parent in parents)
    below = any(
        drop_folder(entry) and other.startswith(f"{path}/") and other not in touched for other, entry in later.items()
    )
    return above or below

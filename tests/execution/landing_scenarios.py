"""Random scenarios of a change set and later edits, and what git itself makes of them (SPEC 3.9).

The judge is independent of the engine: trees by `git add -A` on a scratch index, the merge by `git merge-tree`, and
"nothing untracked stands in the way" by `git checkout --no-overwrite-ignore` in a copy of the whole repository.
"""

from __future__ import annotations

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
from tests.execution.landing_world import FileState, FileStates, LandingWorld, read_file_states

PATHS = ("a.txt", "b.txt", "d", "d/c.txt", "d/e.txt", "d/f/g.txt", "x/y/z.txt", "x/y", 'ü "q"\n.txt', "A.TXT")
EXISTING = ("a.txt", "b.txt", "d/c.txt", "x/y/z.txt")
LINES = tuple(f"line {number} of a text that is long enough" for number in range(12))


@dataclass(frozen=True)
class Edit:
    """One edit of the files of a folder. An edit that is impossible there is skipped."""

    kind: str
    """A key of `KINDS`."""
    name: str
    """The path of the file."""
    other: str = "a.txt"
    """A second path: the new name of a file, or a word for its text."""
    number: int = 0
    """Which line, text, mode or target: each kind takes what it needs from it."""
    record: str = ""
    """What the operator then tells git: "stage", "commit" or nothing."""

    def apply(self, root: Path) -> None:
        path = root / self.name
        try:
            KINDS[self.kind](self, root, path)
        except (OSError, UnicodeDecodeError):
            return


def change_line(edit: Edit, root: Path, path: Path) -> None:
    """Change one line."""
    lines = path.read_text().splitlines()
    changed = edit.number % max(len(lines), 1)
    lines[changed : changed + 1] = [f"changed to {edit.other}"]
    path.write_text("\n".join(lines) + "\n")


def write_text(edit: Edit, root: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.write_text("\n".join(LINES[edit.number :]) + "\n")


def write_binary(edit: Edit, root: Path, path: Path) -> None:
    path.write_bytes(bytes([0, edit.number, 255, 13, 10]))


def delete_file(edit: Edit, root: Path, path: Path) -> None:
    path.unlink()


def delete_folder(edit: Edit, root: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def rename_file(edit: Edit, root: Path, path: Path) -> None:
    (root / edit.other).parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(root / edit.other):
        path.rename(root / edit.other)


def change_mode(edit: Edit, root: Path, path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        path.chmod((0o755, 0o600, 0o444, 0o700)[edit.number % 4])


def make_link(edit: Edit, root: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(("nowhere", "./b.txt", "../shop", "d")[edit.number % 4])


def make_empty_folder(edit: Edit, root: Path, path: Path) -> None:
    (path / "empty").mkdir(parents=True)


def make_ignored_file(edit: Edit, root: Path, path: Path) -> None:
    """An ignored file: what nothing may ever overwrite. Operator only."""
    if os.path.lexists(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    exclude = root / ".git/info/exclude"
    pattern = "/" + edit.name.replace("\n", "?").replace('"', "?")
    exclude.write_text((exclude.read_text() if exclude.exists() else "") + pattern + "\n")
    path.write_text("ignored\n")


KINDS: dict[str, Callable[[Edit, Path, Path], None]] = {
    "line": change_line,
    "write": write_text,
    "binary": write_binary,
    "delete": delete_file,
    "delete_folder": delete_folder,
    "rename": rename_file,
    "mode": change_mode,
    "link": make_link,
    "empty_folder": make_empty_folder,
    "ignored": make_ignored_file,
}
"""What an edit of each kind does, below the root and at the path."""

FILE_EDITS = tuple(kind for kind in KINDS if kind != "ignored")
"""The kinds of edits that a session makes too."""

paths = st.sampled_from((*EXISTING, *EXISTING, *PATHS))
line_numbers = st.integers(0, 11)
session_edits = st.lists(
    st.builds(Edit, st.sampled_from(("write", *FILE_EDITS)), paths, paths, line_numbers), min_size=2, max_size=5
)
operator_edits = st.builds(
    Edit,
    st.sampled_from((*FILE_EDITS, "ignored", "ignored")),
    paths,
    paths,
    line_numbers,
    st.sampled_from(["", "", "stage", "commit"]),
)
later_edits = st.lists(st.builds(Edit, st.sampled_from(FILE_EDITS), paths, paths, line_numbers), max_size=3)


@dataclass
class Scenario:
    """A repository in a state, a session's edits, and what the operator did before, meanwhile and after."""

    earlier: list[Edit]
    session: list[Edit]
    meanwhile: list[Edit]
    after: list[Edit]


scenarios = st.builds(
    Scenario,
    st.lists(operator_edits, max_size=3),
    session_edits,
    st.lists(operator_edits, min_size=1, max_size=4),
    later_edits,
)


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


def apply_edits(world: LandingWorld, edits: list[Edit]) -> None:
    """Make the edits of the operator, with what the operator tells git."""
    for edit in edits:
        edit.apply(world.root)
        if edit.record:
            run_git(world.root, "add", "-A")
        if edit.record == "commit":
            run_git(world.root, "commit", "-q", "--allow-empty", "-m", "more")


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
    results: list[str] = []

    def work(inside: Path) -> None:
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

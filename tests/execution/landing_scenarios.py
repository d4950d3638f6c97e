"""Random scenarios of a change set and later edits, and what git itself makes of them (SPEC 3.9).

The judge is independent of the engine: trees by `git add -A` on a scratch index, the merge by `git merge-tree`, and
"nothing untracked stands in the way" by `git checkout --no-overwrite-ignore` in a copy of the whole repository.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from engine.model import ChangeState, Refusal
from tests.execution.landing_world import FileStates, World, file_states, git_state

NAMES = ("a.txt", "b.txt", "d", "d/c.txt", "d/e.txt", "d/f/g.txt", "x/y/z.txt", "x/y", 'ü "q"\n.txt', "A.TXT")
EXISTING = ("a.txt", "b.txt", "d/c.txt", "x/y/z.txt")
LINES = tuple(f"line {number} of a text that is long enough" for number in range(12))


@dataclass(frozen=True)
class Edit:
    """One thing completed to the files of a folder; what cannot be completed there is skipped."""

    kind: str
    name: str
    other: str = "a.txt"
    place: int = 0
    record: str = ""  # "stage" or "commit": what the operator then tells git

    def apply(self, root: Path) -> None:
        path = root / self.name
        try:
            getattr(self, f"_{self.kind}")(root, path)
        except (OSError, UnicodeDecodeError):
            return

    def _line(self, root: Path, path: Path) -> None:
        """Change one line."""
        lines = path.read_text().splitlines()
        lines[self.place % max(len(lines), 1) : self.place % max(len(lines), 1) + 1] = [f"changed to {self.other}"]
        path.write_text("\n".join(lines) + "\n")

    def _write(self, root: Path, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.write_text("\n".join(LINES[self.place :]) + "\n")

    def _binary(self, root: Path, path: Path) -> None:
        path.write_bytes(bytes([0, self.place, 255, 13, 10]))

    def _delete(self, root: Path, path: Path) -> None:
        path.unlink()

    def _delete_folder(self, root: Path, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)

    def _rename(self, root: Path, path: Path) -> None:
        (root / self.other).parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(root / self.other):
            path.rename(root / self.other)

    def _mode(self, root: Path, path: Path) -> None:
        if path.is_file() and not path.is_symlink():
            path.chmod((0o755, 0o600, 0o444, 0o700)[self.place % 4])

    def _link(self, root: Path, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(("nowhere", "./b.txt", "../shop", "d")[self.place % 4])

    def _empty_folder(self, root: Path, path: Path) -> None:
        (path / "empty").mkdir(parents=True)

    def _ignored(self, root: Path, path: Path) -> None:
        """An ignored file: what nothing may ever overwrite. Operator only."""
        if os.path.lexists(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        exclude = root / ".git/info/exclude"
        pattern = "/" + self.name.replace("\n", "?").replace('"', "?")
        exclude.write_text((exclude.read_text() if exclude.exists() else "") + pattern + "\n")
        path.write_text("ignored\n")


FILES = ("line", "write", "binary", "delete", "delete_folder", "rename", "mode", "link", "empty_folder")
names = st.sampled_from((*EXISTING, *EXISTING, *NAMES))
line_places = st.integers(0, 11)
session_edits = st.lists(
    st.builds(Edit, st.sampled_from(("write", *FILES)), names, names, line_places), min_size=2, max_size=5
)
operator_edits = st.builds(
    Edit,
    st.sampled_from((*FILES, "ignored", "ignored")),
    names,
    names,
    line_places,
    st.sampled_from(["", "", "stage", "commit"]),
)
later_edits = st.lists(st.builds(Edit, st.sampled_from(FILES), names, names, line_places), max_size=3)


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


def git(root: Path, *arguments: str, index: Path | None = None, work_tree: Path | None = None) -> tuple[int, bytes]:
    environment = dict(os.environ)
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    if work_tree is not None:
        environment |= {"GIT_WORK_TREE": str(work_tree), "GIT_DIR": str(root / ".git")}
    completed = subprocess.run(
        ["git", *arguments], cwd=work_tree or root, env=environment, capture_output=True, check=False
    )
    return completed.returncode, completed.stdout


def tree_of(root: Path, *, files: Path | None = None, start: str = "") -> str:
    """The files of a folder as a tree, the plain way: `git add -A` on a scratch index."""
    index = root.parent / "judge-index"
    index.unlink(missing_ok=True)
    if start:
        git(root, "read-tree", start, index=index)
    else:
        shutil.copy2(root / ".git/index", index)
    code, _ = git(root, "add", "-A", index=index, work_tree=files or root)
    assert code == 0
    return git(root, "write-tree", index=index)[1].decode().strip()


def commit(root: Path, tree: str, *parents: str) -> str:
    options = [word for parent in parents for word in ("-p", parent)]
    return git(root, "commit-tree", tree, "-m", "x", *options)[1].decode().strip()


def apply_edits(world: World, edits: list[Edit]) -> None:
    """Make the edits of the operator, with what the operator tells git."""
    for edit in edits:
        edit.apply(world.root)
        if edit.record:
            git(world.root, "add", "-A")
        if edit.record == "commit":
            git(world.root, "commit", "-q", "--allow-empty", "-m", "more")


def merge_by_git(world: World, base: str, result: str, present: str) -> tuple[FileStates | None, set[str]]:
    """The files as git would leave them (None: it refuses), and the paths it would touch."""
    root = world.root
    root_commit = commit(root, base)
    our_commit, their_commit = commit(root, present, root_commit), commit(root, result, root_commit)
    code, out = git(root, "merge-tree", "--write-tree", "--no-messages", our_commit, their_commit)
    if code != 0:
        return None, set()
    merged = out.decode().split()[0]
    touched = git(root, "diff-tree", "-r", "--no-renames", "--name-only", "-z", present, merged)[1].split(b"\0")
    goal = commit(root, merged, our_commit)
    copy = root.parent / "copy"
    shutil.copytree(root, copy, symlinks=True)
    git(copy, "update-ref", "--no-deref", "HEAD", our_commit)
    git(copy, "read-tree", "--reset", our_commit)
    git(copy, "update-index", "-q", "--refresh")
    code, _ = git(copy, "checkout", "-q", "--no-overwrite-ignore", "--detach", goal)
    files = file_states(copy)
    shutil.rmtree(copy)
    return (None if code else files), {os.fsdecode(path) for path in touched if path}


def has_link_leading_out(root: Path, base: str, result: str) -> bool:
    """Whether the session made a link that leads out of the project: at the top, one that goes up."""
    changed = git(root, "diff-tree", "-r", "--no-renames", "--diff-filter=AMT", "-z", base, result)[1].split(b"\0")
    return any(
        entry.split()[1] == b"120000"
        and b"/" not in path
        and git(root, "cat-file", "blob", entry.split()[3].decode())[1].startswith(b"../")
        for entry, path in zip(changed[::2], changed[1::2], strict=False)
    )


def check_scenario(scenario: Scenario, folder: Path) -> str:
    """Land, edit, undo. Returns the outcome; AssertionError when git would have completed anything else."""
    world = World(folder)
    try:
        return _check_scenario(scenario, world)
    finally:
        world.close()


def _check_scenario(scenario: Scenario, world: World) -> str:
    root = world.root
    text = "\n".join(LINES) + "\n"
    world.repository.commit("one", {"a.txt": text, "b.txt": text[:200], "d/c.txt": text[100:], "x/y/z.txt": text * 2})
    apply_edits(world, scenario.earlier)
    base = tree_of(root)
    results: list[str] = []

    def work(inside: Path) -> None:
        for edit in scenario.session:
            edit.apply(inside)
        results.append(tree_of(root, files=inside, start=base))

    change_set = world.run_session(work)
    if change_set is None:
        assert results == [base]
        return "nothing changed"
    apply_edits(world, scenario.meanwhile)
    before, state = file_states(root), git_state(root)
    expected, touched = merge_by_git(world, base, results[0], tree_of(root))

    preview = world.changes.preview_land(change_set.id)
    refusal = refusal_of(lambda: world.changes.land(change_set.id))
    if has_link_leading_out(root, base, results[0]):
        assert refusal is not None, "a link that leads out was landed"
        assert refusal.code in ("unsupported_files", "conflict"), refusal
        assert file_states(root) == before
        assert git_state(root) == state
        return "refused"
    if refusal is not None:
        assert refusal.code == "conflict", refusal
        assert expected is None, f"git lands this, we refuse: {refusal}"
        assert not preview.clean
        assert file_states(root) == before
        assert git_state(root) == state
        return "refused"
    assert expected is not None, "git refuses this, we land it"
    assert preview.clean
    landed = file_states(root)
    assert {path: as_git_sees(entry) for path, entry in landed.items()} == {
        path: as_git_sees(entry) for path, entry in expected.items()
    }
    assert git_state(root) == state
    for path, entry in before.items():
        if path not in touched and entry[0] != "folder":
            assert landed[path] == entry, f"{path} was not ours to touch"

    for edit in scenario.after:
        edit.apply(root)
    later = file_states(root)
    changed = {path for path in touched if as_file(later.get(path)) != as_file(landed.get(path))}
    blocked = {
        path for path in touched if path in before and as_file(before[path]) and is_obstructed(later, path, touched)
    }
    refusal = refusal_of(lambda: world.changes.undo(change_set.id))
    if refusal is not None:
        assert refusal.code == "later_edits", refusal
        assert changed | blocked
        assert file_states(root) == later
        return "undo refused"
    assert not changed | blocked
    assert git_state(root) == state
    if not scenario.after:
        assert file_states(root) == before
    expected_after_undo = {path: before.get(path) if path in touched else later.get(path) for path in {*before, *later}}
    now = {path: entry for path, entry in file_states(root).items() if as_file(entry)}
    assert now == {path: entry for path, entry in expected_after_undo.items() if as_file(entry)}
    assert world.changes.get(change_set.id).state is ChangeState.UNDONE
    return "undone"


def refusal_of(action: Callable[[], object]) -> Refusal | None:
    """How `action` was refused, or None."""
    try:
        action()
    except Refusal as refusal:
        return refusal
    return None


def as_git_sees(entry: tuple[str, int, bytes]) -> tuple[str, bool, bytes]:
    """Kind, executable or not, bytes: git keeps no other permission bits."""
    kind, mode, data = entry
    return kind, kind == "file" and bool(mode & stat.S_IXUSR), data


def as_file(entry: tuple[str, int, bytes] | None) -> tuple[str, int, bytes] | None:
    """A folder is no file."""
    return None if entry is None or entry[0] == "folder" else entry


def is_obstructed(later: FileStates, path: str, touched: set[str]) -> bool:
    """Whether a file that the landing did not write is where a file must be restored."""
    parents = [str(parent) for parent in Path(path).parents][:-1]
    above = any(as_file(later.get(parent)) and parent not in touched for parent in parents)
    below = any(
        as_file(entry) and other.startswith(f"{path}/") and other not in touched for other, entry in later.items()
    )
    return above or below

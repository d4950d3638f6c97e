"""A repository with its change sets, and the exact states of its files and of git, for the tests of SPEC 3.9."""

import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.changesets import ChangeSets
from engine.execution.worktrees import Worktree
from engine.home import Home
from engine.model import ChangeSet, ChangeState, CheckResult, FileDiff, FilePart, Refusal
from engine.randomness import Randomness
from engine.storage.database import Database
from tests.support import MONDAY_MORNING
from tests.support.checks import refused
from tests.support.repository import Repository

TEXT = "\n".join(f"line {number}" for number in range(20)) + "\n"

FILES = {"a.txt": TEXT, "d/only.txt": "d\n", "b.txt": TEXT}
"""The files on which most tests of landings begin."""

FileState = tuple[str, int, bytes]
"""Kind ("file", "link" or "folder"), permission bits (0 for a link), and bytes (for a link its target)."""

FileStates = dict[str, FileState]
"""The state of each entry, by its path below the root."""


class Change:
    """A change set, and the decisions on it."""

    def __init__(self, changes: ChangeSets, captured: ChangeSet):
        self._changes, self.id, self.session_id, self.files = changes, captured.id, captured.session_id, captured.files

    @property
    def current(self) -> ChangeSet:
        """The change set as it is stored now."""
        return self._changes.get(self.id)

    def diff(self) -> Sequence[FileDiff]:
        return self._changes.read_diff(self.id)

    def land(self, *parts: FilePart) -> ChangeSet:
        """Land these parts; if none is given, everything that waits."""
        return self._changes.land(self.id, parts)

    def undo(self) -> ChangeSet:
        return self._changes.undo(self.id)

    def branch(self) -> ChangeSet:
        return self._changes.branch(self.id)

    def discard(self) -> ChangeSet:
        return self._changes.discard(self.id)


Decision = Callable[[Change], ChangeSet]
"""A method of `Change`."""


class LandingWorld:
    """Everything that decides on change sets of one repository, over a real database in a folder."""

    def __init__(self, folder: Path, step: Callable[[str], None] = lambda name: None):
        """`step` is called with the name of each step of a decision; a test may raise an error in it."""
        self.folder = folder
        self.home = Home.locate(folder / "home")
        self.home.data.mkdir(parents=True, exist_ok=True)
        self.repository = Repository(folder / "shop")
        self.git, self.write = self.repository.git, self.repository.write
        self.clock = FakeClock(MONDAY_MORNING)
        self.bus = EventBus()
        self.database = Database(self.home.database, clock=self.clock, bus=self.bus)
        self.step = step
        self.changes = ChangeSets(
            home=self.home,
            database=self.database,
            clock=self.clock,
            randomness=Randomness(),
            step=lambda name: self.step(name),
        )
        self.worktrees = self.changes.worktrees

    @property
    def root(self) -> Path:
        return self.repository.path

    @property
    def files(self) -> FileStates:
        """The operator's files; see `read_file_states`."""
        return read_file_states(self.root)

    @property
    def git_state(self) -> dict[str, bytes]:
        """What of git must never change; see `read_git_state`."""
        return read_git_state(self.root)

    @property
    def refs(self) -> list[str]:
        """The refs that we keep in the repository."""
        return self.repository.git("for-each-ref", "refs/clawpy").splitlines()

    def read_file(self, name: str) -> str | None:
        """The text of one of the operator's files; None if there is none."""
        path = self.root / name
        return path.read_text() if path.exists() else None

    def open_worktree(self, session_id: str = "session_1") -> Worktree:
        return self.worktrees.create(session_id, self.root)

    def run_session(
        self,
        edit: Callable[[Path], object],
        *,
        name: str = "session_1",
        title: str = "Fix the cart",
        check: CheckResult | None = None,
        continues: str = "",
        workspace: Path | None = None,
    ) -> ChangeSet | None:
        """Run `edit` in a worktree of its own. Returns the change set, or None when nothing was changed."""
        onto = self.changes.make_starting_tree_builder(continues) if continues else None
        worktree = self.worktrees.create(name, workspace or self.root, onto=onto)
        edit(worktree.folder)
        captured = self.changes.capture(worktree)
        if captured is None:
            return None
        return self.database.write(
            lambda tx: self.changes.store(
                tx, captured, continues=continues, prediction_id="pred_1", title=title, check=check
            )
        )

    def make_change(self, edit: Callable[[Path], object], **options: Any) -> Change:
        """Run a session whose edit changes something; `options` are those of `run_session`."""
        change_set = self.run_session(edit, **options)
        return Change(self.changes, change_set)

    def close(self):
        self.database.close()


def read_file_states(root: Path) -> FileStates:
    """Every file, link and folder below `root` but git's own."""
    entries = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root and ".git" in folders:
            folders.remove(".git")
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                entry = ("link", 0, os.readlink(os.fsencode(path)))  # noqa: PTH115 - byte for byte
            elif stat.S_ISDIR(status.st_mode):
                entry = ("folder", stat.S_IMODE(status.st_mode), b"")
            else:
                entry = ("file", stat.S_IMODE(status.st_mode), path.read_bytes())
            entries[os.path.relpath(path, root)] = entry
    return entries


def read_git_state(root: Path) -> dict[str, bytes]:
    """What of git must never change: index, HEAD, branches, tags, stash, configuration, our own refs not counted."""
    state = {
        name: (root / ".git" / name).read_bytes()
        for name in ("index", "HEAD", "config", "logs/HEAD", "refs/stash")
        if (root / ".git" / name).exists()
    }
    refs = subprocess.run(["git", "for-each-ref"], cwd=root, check=True, capture_output=True).stdout
    state["refs"] = b"\n".join(line for line in refs.splitlines() if b"refs/clawpy/" not in line)
    return state


def make_edits(files: Mapping[str, str | None]) -> Callable[[Path], None]:
    """An edit that writes these texts, and deletes the files whose text is None."""

    def edit(folder: Path):
        for name, text in files.items():
            if text is None:
                (folder / name).unlink()
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)

    return edit


add_line = make_edits({"a.txt": "1\n2\n3\nfour\n"})
"""Adds a line to a file of `tests/execution/changesets/conftest.py`."""


class Killed(BaseException):
    """Stands for a kill: no code of the landing handles it."""


def kill_at(world: LandingWorld, step: str, action: Callable[[], object]):
    """Do `action`, and end it as a kill would, at the first step that begins like this."""

    def kill(name: str):
        if name.startswith(step):
            raise Killed

    world.step = kill
    with pytest.raises(Killed):
        action()
    world.step = lambda name: None


def assert_landing_is_refused(world: LandingWorld, change: Change, code: str = "conflict") -> Refusal:
    """Landing is refused with this code, and changes nothing. Returns the refusal."""
    before = world.files, world.git_state
    preview = world.changes.preview_land(change.id)
    refusal = refused(code, change.land)
    assert not preview.clean
    assert (world.files, world.git_state) == before
    assert change.current.state is ChangeState.WAITING
    return refusal

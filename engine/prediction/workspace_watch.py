"""Notices changes of files in the workspaces, so that cards follow a change within seconds (SPEC 2.9).

In each workspace, git's own folders and the folders of tracked files are watched. Ignored folders, such as those of
installed packages, are not watched, because they may be huge. The engine starts the watch together with its schedule,
whose regular check finds what the watch misses.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from engine.beneath import parents
from engine.clock import Clock
from engine.frozen import group_pairs
from engine.git import Git, join_nul, split_nul
from engine.model import Refusal

log = logging.getLogger(__name__)

SETTLE_TIME = timedelta(seconds=5)
"""Time without a further change after which a workspace is checked (SPEC 2.9)."""

MAX_WAIT = timedelta(seconds=60)
"""Time after the first change after which a workspace is checked although its files keep changing."""

POLL_MS = 1_000
"""Milliseconds between two looks at what the operating system reported."""

MAX_FOLDERS = 2_000
"""Maximum number of folders of tracked files that are watched in a workspace, the topmost first: Linux limits them for
each user. Changes in the other folders are found by the next regular check."""

TIMEOUT_S = 15.0
"""Seconds that a command of git may take."""


class ChangedWorkspaces:
    """The workspaces that changed since their last check, with the times of their first and last change."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[datetime, datetime]] = {}

    def add(self, workspace: str, now: datetime) -> None:
        """Note a change in `workspace`."""
        first, _ = self._times.get(workspace, (now, now))
        self._times[workspace] = (first, now)

    def take_due(self, now: datetime) -> list[str]:
        """Remove and return the workspaces that are to be checked now: those that did not change for `SETTLE_TIME`, and
        those whose first change was `MAX_WAIT` ago."""
        due = [
            workspace
            for workspace, (first, last) in self._times.items()
            if now - last >= SETTLE_TIME or now - first >= MAX_WAIT
        ]
        for workspace in due:
            del self._times[workspace]
        return due


class WorkspaceWatch:
    """Watches the workspaces in a thread, between `start` and `close`."""

    def __init__(
        self,
        clock: Clock,
        *,
        list_workspaces: Callable[[], Sequence[str]],
        check_workspaces: Callable[[Sequence[str]], object],
        report: Callable[[str, str], None],
    ) -> None:
        """`list_workspaces` is called every second, because others may be watched from then on. `check_workspaces`
        makes cards in those that changed. It is called in the thread of the watch. `report` tells the operator of a
        problem, by a subject and a sentence."""
        self._clock = clock
        self._list_workspaces = list_workspaces
        self._check_workspaces = check_workspaces
        self._report = report
        self.changed = ChangedWorkspaces()
        """The changes that were noticed and not checked yet."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.began = threading.Event()
        """Set while the operating system reports changes. Only tests wait for it."""

    def start(self) -> None:
        """Watch in the background. Returns at once."""
        self._thread = threading.Thread(target=self._run, name="clawpy-workspaces", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End watching. A check that is under way is waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Watch until `close`. An error ends the watch and is reported."""
        try:
            while not self._stop.is_set():
                self._watch_present_folders()
        except Exception as error:
            log.exception("the workspaces are no longer watched")
            self._report("workspaces", f"cards follow changes of files only every few minutes: {error}")
        finally:
            self.began.clear()

    def _watch_present_folders(self) -> None:
        """Watch the folders that the workspaces have now, until there are others, or until `close`."""
        workspaces = tuple(self._list_workspaces())
        folders_of = {workspace: list_folders(workspace) for workspace in workspaces}
        workspaces_of = group_pairs((folder, workspace) for workspace, paths in folders_of.items() for folder in paths)
        if not workspaces_of:
            self.check_due()
            self._stop.wait(POLL_MS / 1000)
            return
        try:
            for paths in self._iterate_changes(workspaces_of):
                self._note_changes(find_changed_workspaces(paths, workspaces_of))
                checked = self.check_due()
                watched = folders_of.keys() & checked  # one that was switched off since its change is checked, too
                has_other_folders = any(folders_of[workspace] != list_folders(workspace) for workspace in watched)
                if has_other_folders or workspaces != tuple(self._list_workspaces()):
                    break
        except FileNotFoundError:  # a folder was removed after it was listed
            self._stop.wait(POLL_MS / 1000)
        self._note_changes(workspaces)  # what changes until the next watch begins is not reported

    def _iterate_changes(self, folders: Iterable[str]) -> Iterator[list[str]]:
        """The paths in these folders that changed, every `POLL_MS`; none if nothing did. Ends with `close`. Raises
        FileNotFoundError for a folder that does not exist."""
        from watchfiles import watch

        for changes in watch(
            *folders,
            watch_filter=None,
            recursive=False,
            debounce=POLL_MS,
            step=POLL_MS,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
        ):
            self.began.set()
            yield [path for _, path in changes]

    def _note_changes(self, workspaces: Iterable[str]) -> None:
        """Note that these workspaces changed now."""
        for workspace in workspaces:
            self.changed.add(workspace, self._clock.now())

    def check_due(self) -> list[str]:
        """Check the workspaces that are due, and return them."""
        due = self.changed.take_due(self._clock.now())
        if due:
            try:
                self._check_workspaces(due)
            except Exception:  # the next change is checked all the same
                log.exception("workspaces that changed could not be checked")
        return due


def list_folders(workspace: str) -> list[str]:
    """The folders of `workspace` to watch, without the folders in them; none if it is no repository."""
    git = Git(Path(workspace), timeout=TIMEOUT_S)
    try:
        repository = git.repository
        files = git.output("ls-files", "-z")
    except Refusal:  # the regular check says what is wrong with the workspace
        return []
    top = Path(os.path.realpath(workspace))
    tracked = {folder for file in split_nul(files) for folder in parents(os.fsdecode(file))}
    topmost = sorted(tracked, key=lambda folder: (folder.count("/"), folder))[: MAX_FOLDERS - 1]
    remotes = repository.common / "refs" / "remotes"
    folders = [
        top,
        *(top / folder for folder in topmost),
        repository.git_dir,
        repository.common / "refs" / "heads",
        *(remotes.iterdir() if remotes.is_dir() else ()),
    ]
    return [str(folder) for folder in dict.fromkeys(folders) if folder.is_dir() and not folder.is_symlink()]


def find_changed_workspaces(paths: Iterable[str], workspaces_of: Mapping[str, Sequence[str]]) -> list[str]:
    """The workspaces in which one of `paths` is more than a lock of git or an ignored file. `workspaces_of` names the
    workspaces of each watched folder. A lock says nothing, and git is not asked about it: git makes it before it
    changes a file of its own, and that change is among the paths, too."""
    changed: dict[str, list[str]] = {}
    for path in paths:
        folder = path if path in workspaces_of else str(Path(path).parent)
        for workspace in workspaces_of.get(folder, ()):
            if not path.endswith(".lock"):
                changed.setdefault(workspace, []).append(path)
    return [workspace for workspace, changes in changed.items() if not _are_ignored(workspace, changes)]


def _are_ignored(workspace: str, paths: Sequence[str]) -> bool:
    """Whether git ignores all of `paths`. Paths outside the working tree and in git's folder are not ignored."""
    top = os.path.realpath(workspace)
    inside = [path for path in paths if path.startswith(top + os.sep) and f"{os.sep}.git{os.sep}" not in path]
    if len(inside) < len(paths):
        return False
    names = join_nul(os.fsencode(os.path.relpath(path, top)) for path in inside)
    try:
        ignored = Git(Path(workspace), timeout=TIMEOUT_S).output(
            "check-ignore", "-z", "--stdin", stdin=names, allowed=(0, 1)
        )
    except Refusal:  # the workspace may be gone, which is a change
        return False
    return len(split_nul(ignored)) == len(inside)

"""Carries out plans of files, and rolls them back, for landings and their undos (SPEC 3.9).

Carrying out a plan has two phases. *Prepare* writes every new content to a temporary file beside its place. A full disk
or a read-only folder is noticed here, before anything has changed. *Commit* consists of renames, removals and folders
only. Just before each of them the path is read again, and must be exactly as the plan expects.

git does not write to the working tree here, so that no hook, filter or smudge program runs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from engine.execution.file_plan import Entry, Kind, Plan, find_changed, find_obstacle
from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.storage.beneath import Beneath, parents

Step = Callable[[str], None]
"""Called with the name of each step before it. Tests kill the process there."""


Contents = Callable[[Iterable[str]], dict[str, bytes]]
"""Returns the bytes of blobs by their ids."""


class FilesChanged(Exception):
    """Files are not as the plan expects. Nothing was changed, or everything was rolled back."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        super().__init__(", ".join(self.paths))


class NotRestored(Exception):
    """A change failed and could not be rolled back yet (a full disk): its record must stay."""


class Rollback(NamedTuple):
    """The result of a rollback."""

    restored: list[str]
    changed_by_others: list[str]
    """Paths that somebody else changed meanwhile. They stay as they are."""


def carry_out(root: Beneath, plan: Plan, contents: Contents, step: Step = lambda name: None) -> dict[str, int]:
    """Change the files by `plan`. Returns the `mtime_ns` of every path that was written.

    Everything is rolled back when this raises `FilesChanged` (a path is not as expected), `OSError` or `GitError`.
    Raises `NotRestored` when the rollback failed as well, and must be tried again.
    """
    carried_out: dict[Entry, int] = {}
    try:
        temporaries = _prepare(root, plan, contents, step)
        if changed := find_changed(root, plan):
            raise FilesChanged(changed)
        _commit_changes(root, plan, temporaries, step, carried_out)
    except Exception as error:
        try:
            step("roll back")
            rollback = roll_back(root, replace(plan, entries=tuple(carried_out)), contents, step)
            remove_temporaries(root, plan)
        except Exception as problem:
            raise NotRestored(str(problem)) from problem
        if rollback.changed_by_others:
            raise FilesChanged(rollback.changed_by_others) from error
        raise
    for folder in {entry.path.rpartition("/")[0] for entry in plan.entries}:
        if root.is_folder(folder):
            root.sync_folder(folder)
    return {entry.path: time for entry, time in carried_out.items() if entry.after.exists}


def read_modification_times(root: Beneath, plan: Plan) -> dict[str, int]:
    """The present `mtime_ns` of every path that a plan wrote."""
    written = [entry.path for entry in plan.entries if entry.after.exists and entry.after != entry.before]
    return {path: _read_modification_time(root, path) for path in written}


def _read_modification_time(root: Beneath, path: str) -> int:
    """The `mtime_ns` of a path, 0 when it is gone."""
    status = root.lstat(path)
    return 0 if status is None else status.st_mtime_ns


def roll_back(root: Beneath, plan: Plan, contents: Contents, step: Step = lambda name: None) -> Rollback:
    """Restore the files to their state before `plan`, however far it was carried out. Safe to repeat. A path that is
    neither as before nor as after the plan was changed by somebody else, and stays as it is."""
    remove_temporaries(root, plan)
    to_restore: list[Entry] = []
    changed_by_others: list[str] = []
    for entry in plan.reversed().entries:
        image = plan.observe_image(root, entry.path)
        if image == entry.after and not (image.kind == Kind.FILE and root.obstructed(entry.path)):
            continue
        if image == entry.before:
            to_restore.append(entry)
        else:
            changed_by_others.append(entry.path)
    removed = {entry.path for entry in to_restore if not entry.after.exists}
    blocked = {entry.path for entry in to_restore if entry.after.exists and find_obstacle(root, entry.path, removed)}
    restored = tuple(entry for entry in to_restore if entry.path not in blocked)
    backwards = replace(plan.reversed(), entries=restored)
    _commit_changes(root, backwards, _prepare(root, backwards, contents, step), step, {})
    return Rollback([entry.path for entry in restored], [*changed_by_others, *sorted(blocked)])


def is_carried_out(root: Beneath, plan: Plan) -> bool:
    """Whether every path is as after the plan, so that only the record of it is missing. If so, temporary files and
    empty folders that a crash left are removed."""
    if any(plan.observe_image(root, entry.path) != entry.after for entry in plan.entries):
        return False
    _commit_changes(root, replace(plan, entries=()), {}, lambda name: None, {})
    remove_temporaries(root, plan)
    return True


def remove_temporaries(root: Beneath, plan: Plan) -> None:
    """Remove the temporary files of `plan` that a crash left."""
    folders = {"", *(parent for entry in plan.entries for parent in parents(entry.path))}
    for folder in folders:
        for name in root.names(folder) if root.is_folder(folder) else ():
            path = f"{folder}/{name}" if folder else name
            status = root.lstat(path) if name.startswith(_temporary_prefix(plan)) else None
            if status is not None and not stat.S_ISDIR(status.st_mode):  # a folder of that name is not ours
                _unlink(root, path)


def _temporary_prefix(plan: Plan) -> str:
    return f"{TEMPORARY_PREFIX}{plan.token}-"


@frozen
class _Temporary:
    """The temporary path of a new content, and the target if it is a link."""

    path: str
    target: str = ""


def _prepare(root: Beneath, plan: Plan, contents: Contents, step: Step) -> dict[str, _Temporary]:
    """Write each new content to a temporary file in the folder of its path, or in the nearest existing one above.
    Returns the temporary files by path."""
    temporaries = {}
    new = [entry for entry in plan.entries if entry.after.exists and entry.after != entry.before]
    blobs = contents(entry.after.blob for entry in new)
    for number, entry in enumerate(new):
        folder = next((parent for parent in reversed(parents(entry.path)) if root.is_folder(parent)), "")
        name = f"{_temporary_prefix(plan)}{number}"
        place, data = f"{folder}/{name}" if folder else name, blobs[entry.after.blob]
        temporaries[entry.path] = _Temporary(place, os.fsdecode(data) if entry.after.kind == Kind.LINK else "")
        if entry.after.kind == Kind.FILE:
            step(f"prepare {entry.path}")
            _unlink(root, place)  # an existing one of that name may be a link to another file
            root.write(place, data, mode=entry.after.mode)
    for temporary in temporaries.values():
        if not temporary.target:  # all together: the first one waits for the others
            root.sync_file(temporary.path)
    return temporaries


def _unlink(root: Beneath, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        root.unlink(path)


def _commit_changes(
    root: Beneath, plan: Plan, temporaries: dict[str, _Temporary], step: Step, carried_out: dict[Entry, int]
) -> None:
    """Commit a plan. Removals come first, for the sake of a case-only rename or a folder in place of a file. Folders
    and new contents follow. `carried_out` receives each entry with the `mtime_ns` of what was written."""
    for entry in sorted(plan.entries, reverse=True):
        if not entry.after.exists and entry.before.exists:
            step(f"remove {entry.path}")
            _require_image(root, entry, plan)
            root.unlink(entry.path)
            carried_out[entry] = 0
    needed = {parent for entry in plan.entries if entry.after.exists for parent in parents(entry.path)}
    for folder, _ in sorted(plan.old_folders, reverse=True):
        if folder not in needed:
            step(f"remove folder {folder}")
            _remove_if_empty(root, folder)
    _make_folders(root, needed, dict(plan.new_folders), step)
    for entry in plan.entries:
        if entry.after.exists and entry.after != entry.before:
            step(f"write {entry.path}")
            _require_image(root, entry, plan)
            _put_image(root, entry, temporaries[entry.path])
            carried_out[entry] = 0  # before its time is read, which may fail: a rollback needs every written entry
            carried_out[entry] = _read_modification_time(root, entry.path)


def _make_folders(root: Beneath, needed: set[str], modes: dict[str, int], step: Step) -> None:
    """Make the folders that files need, and those of `modes`, where nothing is at their path."""
    created = []
    for folder in sorted(needed | set(modes)):
        if root.lstat(folder) is not None or not root.is_folder(folder.rpartition("/")[0]):
            continue
        step(f"make folder {folder}")
        root.mkdir(folder)
        created.append(folder)
    for folder in reversed(created):  # the inner ones first: an outer one may be read-only
        if folder in modes:
            root.chmod_folder(folder, modes[folder])


def _require_image(root: Beneath, entry: Entry, plan: Plan) -> None:
    """Raises `FilesChanged` when a path is not as the plan expects it before."""
    obstacle = root.obstructed(entry.path)
    if obstacle:
        raise FilesChanged([obstacle])
    if plan.observe_image(root, entry.path) != entry.before:
        raise FilesChanged([entry.path])


def _put_image(root: Beneath, entry: Entry, temporary: _Temporary) -> None:
    is_link = entry.after.kind == Kind.LINK
    if is_link and not entry.before.exists:
        root.symlink(temporary.target, entry.path)  # fails when the path exists by now
    elif not entry.before.exists:
        _place_new(root, temporary.path, entry.path)
    else:
        if is_link:
            _unlink(root, temporary.path)
            root.symlink(temporary.target, temporary.path)
        root.replace(temporary.path, entry.path)


def _place_new(root: Beneath, temporary: str, path: str) -> None:
    """Move a file to a free path. Where the file system has hard links, one is used, because it cannot overwrite."""
    try:
        root.link(temporary, path)
    except FileExistsError as error:
        raise FilesChanged([path]) from error
    except OSError:
        root.replace(temporary, path)
    else:
        root.unlink(temporary)


def _remove_if_empty(root: Beneath, folder: str) -> None:
    try:
        root.rmdir(folder)
    except OSError:
        if not root.is_folder(folder) or root.names(folder):
            return  # it has a file of somebody else, or it is gone
        raise

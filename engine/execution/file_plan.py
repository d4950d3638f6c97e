"""Changes many of the operator's files at once, by a plan of the state of every path before and after (SPEC 3.9).

Both contents of a path are blobs in the repository. So a `Plan` can be carried out, rolled back after a crash, and
undone much later by `plan.reversed()`. Before each of these the present files are compared with the plan, so that no
later edit is lost.

Carrying out a plan has two phases. *Prepare* writes every new content to a temporary file beside its place. A full disk
or a read-only folder is noticed here, before anything has changed. *Commit* consists of renames, removals and folders
only. Just before each of them the path is read again, and must be exactly as the plan expects.

git does not write to the working tree here, so that no hook, filter or smudge program runs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from engine.beneath import REPLACED, Beneath, parents
from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen

Step = Callable[[str], None]
"""Called with the name of each step before it. Tests kill the process there."""


def _ignore_step(name: str) -> None:
    """The `Step` where no test kills the process."""


Contents = Callable[[Iterable[str]], dict[str, bytes]]
"""Returns the bytes of blobs by their ids."""


# -- images of files


class ImageKind(StrEnum):
    """The kind of entry at a path."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    OTHER = "other"
    """A socket or a device: never expected, never written."""


class Image(NamedTuple):
    """The state of a path."""

    kind: ImageKind
    blob: str = ""
    """The git blob id of its raw bytes, or of a link's target."""
    mode: int = 0
    """Its permission bits without setuid and setgid, which are neither read nor set."""

    @property
    def exists(self) -> bool:
        """Whether anything is at the path."""
        return self.kind != ImageKind.ABSENT


ABSENT = Image(ImageKind.ABSENT)
"""The image of a path at which nothing is."""


def is_spelled_exactly(root: Beneath, path: str) -> bool:
    """Whether the folder lists exactly this name, case included."""
    folder, _, name = path.rpartition("/")
    return root.is_folder(folder) and name in root.names(folder)


def read_image(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    """The image of `path`, without following a link there. Its bytes are also written to `copy`. As in git, a folder is
    absent. A file that is replaced or written meanwhile is `ImageKind.OTHER`."""
    status = root.lstat(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return ABSENT
    try:
        if stat.S_ISLNK(status.st_mode):
            target = root.readlink(path)
            if copy is not None:
                copy.write_bytes(target)
            return Image(ImageKind.LINK, compute_blob_id(target, algorithm))
        if not stat.S_ISREG(status.st_mode):
            return Image(ImageKind.OTHER)
        return _read_file_image(root, path, algorithm, copy)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in REPLACED:
            return Image(ImageKind.OTHER)
        raise


def _read_file_image(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    """The image of a regular file, as `read_image` returns it. Raises OSError."""
    with os.fdopen(root.open_file(path), "rb") as source, (copy or Path(os.devnull)).open("wb") as sink:
        status = os.fstat(source.fileno())
        digest = hashlib.new(algorithm, b"blob %d\0" % status.st_size)
        read = 0
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            read += len(chunk)
            sink.write(chunk)
    if read != status.st_size:  # it is being written
        return Image(ImageKind.OTHER)
    return Image(ImageKind.FILE, digest.hexdigest(), status.st_mode & 0o777)


def compute_blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """git's id of these bytes as a blob."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def find_obstacle(root: Beneath, path: str, removed: Collection[str]) -> str:
    """The path that keeps a file from being written at `path`, "" for none. That is a parent that is no real folder, or
    if `path` is a folder now, the first file in it. Paths among `removed` do not count."""
    obstacle = root.find_obstruction(path)
    if obstacle:
        return obstacle if obstacle not in removed else ""
    if not root.is_folder(path):
        return ""
    return next((inside for inside, folder in root.walk(path) if not folder and inside not in removed), "")


# -- plans


class PlanEntry(NamedTuple):
    """The change of one path, which is relative to the top folder."""

    path: str
    before: Image
    after: Image


@frozen
class Plan:
    """A change of files."""

    token: str
    """Part of the names of its temporary files."""
    entries: tuple[PlanEntry, ...]
    old_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders that are removed if they become empty."""
    new_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders to make."""
    algorithm: str = "sha1"
    folds_case: bool = False
    """On this file system `a` and `A` are one name."""
    tree: str = ""
    """The tree of all files after a landing; "" for unknown."""
    tree_before: str = ""
    """The tree of all files just before a landing; "" for unknown."""

    def reversed(self) -> Plan:
        """The plan that undoes this one."""
        entries = tuple(PlanEntry(path, after, before) for path, before, after in self.entries)
        return replace(
            self, entries=entries, old_folders=self.new_folders, new_folders=self.old_folders, tree="", tree_before=""
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON; paths that are no UTF-8 have surrogate escapes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan that `as_json` wrote."""
        entries = tuple(PlanEntry(path, Image(*before), Image(*after)) for path, before, after in value["entries"])
        folders = {name: tuple(map(tuple, value[name])) for name in ("old_folders", "new_folders")}
        return cls(**{**value, **folders, "entries": entries})

    def observe_image(self, root: Beneath, path: str, copy: Path | None = None) -> Image:
        """The present image of `path`. Its bytes are also written to `copy`.

        Behind a parent that is a link or a file, it is absent. A file of another spelling is another file, even where
        the file system treats both as one (`folds_case`).
        """
        if self.folds_case and not is_spelled_exactly(root, path):
            return ABSENT
        return read_image(root, path, self.algorithm, copy)

    def with_removed_folders(self, root: Beneath) -> Plan:
        """The plan after it was carried out: its old folders are only those that were removed."""
        return replace(self, old_folders=tuple(item for item in self.old_folders if not root.is_folder(item[0])))

    @property
    def removed_paths(self) -> set[str]:
        """The paths that the plan removes."""
        return {entry.path for entry in self.entries if not entry.after.exists}


def find_changed_paths(root: Beneath, plan: Plan) -> list[str]:
    """The paths that are obstructed, or not as `plan` expects."""
    changed = []
    for entry in plan.entries:
        if plan.observe_image(root, entry.path) != entry.before:
            changed.append(entry.path)
        elif entry.after.exists and (obstacle := find_obstacle(root, entry.path, plan.removed_paths)):
            changed.append(obstacle)
    return list(dict.fromkeys(changed))


# -- carrying out and rolling back


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


def carry_out(root: Beneath, plan: Plan, contents: Contents, step: Step = _ignore_step) -> dict[str, int]:
    """Change the files by `plan`. Returns the `mtime_ns` of every path that was written.

    Everything is rolled back when this raises `FilesChanged` (a path is not as expected), `OSError` or `GitError`.
    Raises `NotRestored` when the rollback failed as well, and must be tried again.
    """
    execution = _Execution(root, plan, step)
    try:
        execution.prepare(contents)
        if changed := find_changed_paths(root, plan):
            raise FilesChanged(changed)
        execution.commit()
    except Exception as error:
        try:
            step("roll back")
            rollback = roll_back(root, replace(plan, entries=tuple(execution.carried_out)), contents, step)
            remove_temporaries(root, plan)
        except Exception as problem:
            raise NotRestored(str(problem)) from problem
        if rollback.changed_by_others:
            raise FilesChanged(rollback.changed_by_others) from error
        raise
    for folder in {entry.path.rpartition("/")[0] for entry in plan.entries}:
        if root.is_folder(folder):
            root.sync_folder(folder)
    return {entry.path: time for entry, time in execution.carried_out.items() if entry.after.exists}


def read_modification_times(root: Beneath, plan: Plan) -> dict[str, int]:
    """The present `mtime_ns` of every path that a plan wrote."""
    written_paths = [entry.path for entry in plan.entries if entry.after.exists and entry.after != entry.before]
    return {path: _read_modification_time(root, path) for path in written_paths}


def _read_modification_time(root: Beneath, path: str) -> int:
    """The `mtime_ns` of a path, 0 when it is gone."""
    status = root.lstat(path)
    return 0 if status is None else status.st_mtime_ns


def roll_back(root: Beneath, plan: Plan, contents: Contents, step: Step = _ignore_step) -> Rollback:
    """Restore the files to their state before `plan`, however far it was carried out. Safe to repeat. A path that is
    neither as before nor as after the plan was changed by somebody else, and stays as it is."""
    remove_temporaries(root, plan)
    backwards = plan.reversed()
    to_restore, changed_by_others = _find_carried_out(root, backwards)
    removed = {entry.path for entry in to_restore if not entry.after.exists}
    blocked = {entry.path for entry in to_restore if entry.after.exists and find_obstacle(root, entry.path, removed)}
    restored = tuple(entry for entry in to_restore if entry.path not in blocked)
    execution = _Execution(root, replace(backwards, entries=restored), step)
    execution.prepare(contents)
    execution.commit()
    return Rollback([entry.path for entry in restored], [*changed_by_others, *sorted(blocked)])


def _find_carried_out(root: Beneath, backwards: Plan) -> tuple[list[PlanEntry], list[str]]:
    """(entries, paths): the entries of a reversed plan that must be restored, because the plan was carried out there,
    and the paths that somebody else changed."""
    to_restore: list[PlanEntry] = []
    changed_by_others: list[str] = []
    for entry in backwards.entries:
        image = backwards.observe_image(root, entry.path)
        is_behind_obstacle = image.kind == ImageKind.FILE and root.find_obstruction(entry.path)
        if image == entry.after and not is_behind_obstacle:
            continue
        if image == entry.before:
            to_restore.append(entry)
        else:
            changed_by_others.append(entry.path)
    return to_restore, changed_by_others


def is_carried_out(root: Beneath, plan: Plan) -> bool:
    """Whether every path is as after the plan. After a crash, temporary files and folders may be left all the same."""
    return all(plan.observe_image(root, entry.path) == entry.after for entry in plan.entries)


def finish_plan(root: Beneath, plan: Plan) -> None:
    """Do what a crash left undone of a plan whose files are carried out: remove its old folders if they are empty, make
    its new ones, remove its temporary files. Safe to repeat."""
    _Execution(root, replace(plan, entries=())).commit()
    remove_temporaries(root, plan)


def remove_temporaries(root: Beneath, plan: Plan) -> None:
    """Remove the temporary files of `plan` that a crash left."""
    prefix = _make_temporary_prefix(plan)
    folders = {"", *(parent for entry in plan.entries for parent in parents(entry.path))}
    for folder in filter(root.is_folder, folders):
        for name in root.names(folder):
            path = _join_path(folder, name)
            if name.startswith(prefix) and not root.is_folder(path):  # a folder of that name is not ours
                _unlink(root, path)


def _make_temporary_prefix(plan: Plan) -> str:
    return f"{TEMPORARY_PREFIX}{plan.token}-"


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


@frozen
class _Temporary:
    """The temporary path of a new content, and the target if it is a link."""

    path: str
    target: str


def _unlink(root: Beneath, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        root.unlink(path)


class _Execution:
    """The phases of carrying out `plan`, with what they have done so far."""

    def __init__(self, root: Beneath, plan: Plan, step: Step = _ignore_step) -> None:
        self._root = root
        self._plan = plan
        self._step = step
        self._temporaries: dict[str, _Temporary] = {}
        """The temporary files by path."""
        self.carried_out: dict[PlanEntry, int] = {}
        """The entries that were carried out, each with the `mtime_ns` of what was written."""

    def prepare(self, contents: Contents) -> None:
        """Write each new content to a temporary file in the folder of its path, or in the nearest existing one
        above."""
        root, plan = self._root, self._plan
        new = [entry for entry in plan.entries if entry.after.exists and entry.after != entry.before]
        blobs = contents(entry.after.blob for entry in new)
        for number, entry in enumerate(new):
            nearest_folder = next((parent for parent in reversed(parents(entry.path)) if root.is_folder(parent)), "")
            path = _join_path(nearest_folder, f"{_make_temporary_prefix(plan)}{number}")
            data = blobs[entry.after.blob]
            target = os.fsdecode(data) if entry.after.kind == ImageKind.LINK else ""
            self._temporaries[entry.path] = _Temporary(path, target)
            if entry.after.kind == ImageKind.FILE:
                self._step(f"prepare {entry.path}")
                _unlink(root, path)  # an existing one of that name may be a link to another file
                root.write(path, data, mode=entry.after.mode)
        for temporary in self._temporaries.values():
            if not temporary.target:  # all together: the first one waits for the others
                root.sync_file(temporary.path)

    def commit(self) -> None:
        """Put the new contents in place. Removals come first, for the sake of a case-only rename or a folder in place
        of a file. Folders and new contents follow."""
        root, plan = self._root, self._plan
        self._remove_files()
        needed = {parent for entry in plan.entries if entry.after.exists for parent in parents(entry.path)}
        for folder, _ in sorted(plan.old_folders, reverse=True):
            if folder not in needed:
                self._step(f"remove folder {folder}")
                _remove_if_empty(root, folder)
        self._make_folders(needed, dict(plan.new_folders))
        for entry in plan.entries:
            if entry.after.exists and entry.after != entry.before:
                self._step(f"write {entry.path}")
                self._require_image(entry)
                temporary = self._temporaries[entry.path]
                _put_image(root, entry, temporary)
                self.carried_out[entry] = 0  # before two calls that may fail: a rollback needs every written entry
                _unlink(root, temporary.path)  # it is there if a hard link was made
                self.carried_out[entry] = _read_modification_time(root, entry.path)

    def _remove_files(self) -> None:
        """Remove the files that are absent after the plan, those in a folder before the folder's own name."""
        for entry in sorted(self._plan.entries, reverse=True):
            if not entry.after.exists and entry.before.exists:
                self._step(f"remove {entry.path}")
                self._require_image(entry)
                self._root.unlink(entry.path)
                self.carried_out[entry] = 0

    def _make_folders(self, needed: set[str], modes: dict[str, int]) -> None:
        """Make the folders that files need, and those of `modes`, where nothing is at their path."""
        root, created = self._root, []
        for folder in sorted(needed | set(modes)):
            if root.lstat(folder) is not None or not root.is_folder(folder.rpartition("/")[0]):
                continue
            self._step(f"make folder {folder}")
            root.mkdir(folder)
            created.append(folder)
        for folder in reversed(created):  # the inner ones first: an outer one may be read-only
            if folder in modes:
                root.chmod_folder(folder, modes[folder])

    def _require_image(self, entry: PlanEntry) -> None:
        """Raises `FilesChanged` when a path is not as the plan expects it before."""
        if obstacle := self._root.find_obstruction(entry.path):
            raise FilesChanged([obstacle])
        if self._plan.observe_image(self._root, entry.path) != entry.before:
            raise FilesChanged([entry.path])


def _put_image(root: Beneath, entry: PlanEntry, temporary: _Temporary) -> None:
    """Put the new content of an entry in its place. Without a file there before, a file that appears meanwhile is not
    overwritten."""
    is_link = entry.after.kind == ImageKind.LINK
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
    """Put a file at a free path. Where the file system has hard links, one is made, because it cannot overwrite."""
    try:
        root.link(temporary, path)
    except FileExistsError as error:
        raise FilesChanged([path]) from error
    except OSError:
        root.replace(temporary, path)


def _remove_if_empty(root: Beneath, folder: str) -> None:
    """Remove a folder, unless it has files of somebody else. Raises OSError."""
    try:
        root.rmdir(folder)
    except OSError:
        if not root.is_folder(folder) or root.names(folder):
            return  # it has a file of somebody else, or it is gone
        raise

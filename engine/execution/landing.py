"""Changes many files of the operator as one: all of them or none, and never over a later edit (SPEC 3.9).

A `Plan` has the state of every path before and after; both contents are blobs in the repository, so that the plan can
be carried out, rolled back after a crash, and undone much later by `plan.reversed()`. Carrying it out has two phases.
*Prepare* writes every new content to a temporary file beside its place; a full disk or a read-only folder is noticed
here, where nothing has changed yet. *Commit* is renames, removals and folders only. Just before each of them the path
is read again and must be exactly as the plan expects.

git does not write to the working tree here, so no hook, filter or smudge program is run."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.files import TEMPORARY_PREFIX
from engine.frozen import frozen
from engine.storage.beneath import REPLACED, Beneath, parents


class Kind(StrEnum):
    """The kind of entry at a path."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    OTHER = "other"
    """A socket or a device: never expected, never written."""


@frozen
class Image:
    """The state of a path."""

    kind: Kind
    blob: str = ""
    """The git blob id of its raw bytes, or of a link's target."""
    mode: int = 0
    """Its permission bits without setuid and setgid, which are neither read nor set."""

    @property
    def exists(self) -> bool:
        """Whether anything is at the path."""
        return self.kind is not Kind.ABSENT

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Image:
        """The image that `dataclasses.asdict` made JSON of."""
        return cls(Kind(value["kind"]), value["blob"], value["mode"])


ABSENT = Image(Kind.ABSENT)


def is_spelled_exactly(root: Beneath, path: str) -> bool:
    """Whether the folder lists exactly this name, case included."""
    folder, _, name = path.rpartition("/")
    return root.is_folder(folder) and name in root.names(folder)


def image_of(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    """The image of `path`, whose last component is not followed; its bytes go to `copy` too. A folder is absent, as for
    git. A file that is replaced or written meanwhile is `Kind.OTHER`."""
    status = root.lstat(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return ABSENT
    try:
        if stat.S_ISLNK(status.st_mode):
            target = root.readlink(path)
            if copy is not None:
                copy.write_bytes(target)
            return Image(Kind.LINK, blob_id(target, algorithm))
        if not stat.S_ISREG(status.st_mode):
            return Image(Kind.OTHER)
        return _file_image(root, path, algorithm, copy)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in REPLACED:
            return Image(Kind.OTHER)
        raise


def _file_image(root: Beneath, path: str, algorithm: str, copy: Path | None) -> Image:
    with contextlib.ExitStack() as files:
        source = files.enter_context(os.fdopen(root.open_file(path), "rb"))
        sink = files.enter_context((copy or Path(os.devnull)).open("wb"))
        status = os.fstat(source.fileno())
        digest = hashlib.new(algorithm, b"blob %d\0" % status.st_size)
        read = 0
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            read += len(chunk)
            sink.write(chunk)
    return Image(Kind.FILE, digest.hexdigest(), status.st_mode & 0o777) if read == status.st_size else Image(Kind.OTHER)


def blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """git's id of these bytes as a blob."""
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()


def find_obstacle(root: Beneath, path: str, removed: Collection[str]) -> str:
    """The path that keeps a file from being written at `path`, "" for none: a parent that is no real folder, or, where
    `path` is a folder now, the first file in it. Paths among `removed` do not count."""
    obstacle = root.obstructed(path)
    if obstacle:
        return obstacle if obstacle not in removed else ""
    if not root.is_folder(path):
        return ""
    return next((inside for inside, folder in root.walk(path) if not folder and inside not in removed), "")


Step = Callable[[str], None]
"""Called with the name of each step before it; tests kill the process there."""

Contents = Callable[[str], bytes]
"""Returns the bytes of a blob by its id."""


@frozen
class Entry:
    """The change of one path, which is relative to the top."""

    path: str
    before: Image
    after: Image


@frozen
class Plan:
    """A change of files."""

    token: str
    """Part of the names of its temporary files."""
    entries: tuple[Entry, ...]
    old_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders that may become empty and are removed then."""
    new_folders: tuple[tuple[str, int], ...] = ()
    """Path and permission bits of folders to make."""
    algorithm: str = "sha1"
    folds_case: bool = False
    """On this file system `a` and `A` are one name."""

    def reversed(self) -> Plan:
        """The plan that undoes this one."""
        return replace(
            self,
            entries=tuple(Entry(entry.path, entry.after, entry.before) for entry in self.entries),
            old_folders=self.new_folders,
            new_folders=self.old_folders,
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON; paths that are no UTF-8 have surrogate escapes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan that `as_json` wrote."""
        return cls(
            value["token"],
            tuple(
                Entry(entry["path"], Image.from_json(entry["before"]), Image.from_json(entry["after"]))
                for entry in value["entries"]
            ),
            tuple((path, mode) for path, mode in value["old_folders"]),
            tuple((path, mode) for path, mode in value["new_folders"]),
            value["algorithm"],
            value["folds_case"],
        )

    def observe_image(self, root: Beneath, path: str, copy: Path | None = None) -> Image:
        """The image of `path` now; its bytes go to `copy` too. Behind a parent that is a link or a file it is absent; a
        file of another spelling is another file, even where the file system treats both as one (`folds_case`)."""
        if self.folds_case and not is_spelled_exactly(root, path):
            return ABSENT
        return image_of(root, path, self.algorithm, copy)

    @property
    def removed_paths(self) -> set[str]:
        """The paths that the plan removes."""
        return {entry.path for entry in self.entries if not entry.after.exists}


class FilesChanged(Exception):
    """Files are not as the plan expects; nothing was changed, or everything was rolled back."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        super().__init__(", ".join(self.paths))


class NotRestored(Exception):
    """A change failed and could not be rolled back yet (a full disk): its record must stay."""


@dataclass(slots=True)
class Rollback:
    """The result of a rollback."""

    restored: list[str] = field(default_factory=list)
    changed_by_others: list[str] = field(default_factory=list)
    """Paths that somebody else changed meanwhile, which stay as they are."""


def find_changed(root: Beneath, *plans: Plan) -> list[str]:
    """The paths that are not as `plans`, carried out one after another, expect, or that are obstructed."""
    changed = []
    images: dict[str, Image] = {}  # by path, after the earlier plans
    for plan in plans:
        removed = plan.removed_paths | {path for path, image in images.items() if not image.exists}
        for entry in plan.entries:
            if (images.get(entry.path) or plan.observe_image(root, entry.path)) != entry.before:
                changed.append(entry.path)
            elif entry.after.exists and (obstacle := find_obstacle(root, entry.path, removed)):
                changed.append(obstacle)
        images |= {entry.path: entry.after for entry in plan.entries}
    return list(dict.fromkeys(changed))


def carry_out(root: Beneath, plan: Plan, contents: Contents, step: Step = lambda name: None) -> dict[str, int]:
    """Change the files by `plan`; the `mtime_ns` of every path written.

    Raises `FilesChanged` when a path is not as expected, `OSError` or `GitError` when it fails; then everything is
    rolled back. Raises `NotRestored` when the rollback failed as well, and must be tried again.
    """
    temporaries = _temporary_paths(root, plan)
    carried_out: list[Entry] = []
    try:
        for entry in plan.entries:
            if entry.after.kind is Kind.FILE and entry.after != entry.before:
                step(f"prepare {entry.path}")
                _write_temporary(root, temporaries[entry.path], contents(entry.after.blob), entry.after.mode)
        _sync_files(root, temporaries.values())
        if changed := find_changed(root, plan):
            raise FilesChanged(changed)
        written = _commit_changes(root, plan, temporaries, contents, step, carried_out)
    except Exception as error:
        try:
            step("take back")
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
    return written


def settle_plan(root: Beneath, plan: Plan) -> Plan:
    """The plan after it was carried out: its old folders are only those that were removed."""
    gone = [(path, mode) for path, mode in plan.old_folders if not root.is_folder(path)]
    return replace(plan, old_folders=tuple(gone))


def modification_times(root: Beneath, plan: Plan) -> dict[str, int]:
    """The `mtime_ns` of every path that a plan wrote."""
    statuses = {entry.path: root.lstat(entry.path) for entry in plan.entries if entry.path not in plan.removed_paths}
    return {path: status.st_mtime_ns for path, status in statuses.items() if status is not None}


def roll_back(root: Beneath, plan: Plan, contents: Contents, step: Step = lambda name: None) -> Rollback:
    """Restore the state before `plan`, however far it was carried out. Safe to repeat. A path that is neither as before
    nor as after was changed by somebody else meanwhile and stays as it is."""
    remove_temporaries(root, plan)
    result = Rollback()
    to_restore: list[Entry] = []
    for entry in plan.entries:
        image = plan.observe_image(root, entry.path)
        if image == entry.before and not (image.kind is Kind.FILE and root.obstructed(entry.path)):
            continue
        if image == entry.after:
            to_restore.append(Entry(entry.path, entry.after, entry.before))
        else:
            result.changed_by_others.append(entry.path)
    backwards = replace(plan.reversed(), entries=tuple(to_restore))
    removed = backwards.removed_paths
    blocked = {
        entry.path for entry in to_restore if entry.path not in removed and find_obstacle(root, entry.path, removed)
    }
    result.changed_by_others += sorted(blocked)
    backwards = replace(backwards, entries=tuple(entry for entry in to_restore if entry.path not in blocked))
    temporaries = _temporary_paths(root, backwards)
    for entry in backwards.entries:
        if entry.after.kind is Kind.FILE:
            _write_temporary(root, temporaries[entry.path], contents(entry.after.blob), entry.after.mode)
    _sync_files(root, temporaries.values())
    _commit_changes(root, backwards, temporaries, contents, step, [])
    result.restored = [entry.path for entry in backwards.entries]
    return result


def is_carried_out(root: Beneath, plan: Plan) -> bool:
    """Whether every path is as after the plan, so that only the record of it is missing. Temporary files and empty
    folders that a crash left are then removed."""
    if any(plan.observe_image(root, entry.path) != entry.after for entry in plan.entries):
        return False
    _commit_changes(root, replace(plan, entries=()), {}, lambda oid: b"", lambda name: None, [])
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


def _temporary_paths(root: Beneath, plan: Plan) -> dict[str, str]:
    """The temporary path of each new content: in its own folder, or the nearest existing one above."""
    paths = {}
    for number, entry in enumerate(plan.entries):
        folder = next((parent for parent in reversed(parents(entry.path)) if root.is_folder(parent)), "")
        name = f"{_temporary_prefix(plan)}{number}"
        paths[entry.path] = f"{folder}/{name}" if folder else name
    return paths


def _write_temporary(root: Beneath, place: str, data: bytes, mode: int) -> None:
    """Write a new file: an existing one of that name, which may be a link to another file, is removed first."""
    _unlink(root, place)
    root.write(place, data, mode=mode)


def _unlink(root: Beneath, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        root.unlink(path)


def _sync_files(root: Beneath, paths: Iterable[str]) -> None:
    """Flush all temporary files to the disk together: the first one waits for the others."""
    for place in paths:
        if root.lstat(place) is not None:
            root.sync_file(place)


def _commit_changes(
    root: Beneath, plan: Plan, temporaries: dict[str, str], contents: Contents, step: Step, carried_out: list[Entry]
) -> dict[str, int]:
    """Commit a plan: removals first (for a case-only rename, or a folder in place of a file), then folders, then new
    contents. `carried_out` receives the entries. Returns the `mtime_ns` of every path written."""
    for entry in sorted(plan.entries, key=lambda entry: entry.path, reverse=True):
        if not entry.after.exists and entry.before.exists:
            step(f"remove {entry.path}")
            _require_image(root, entry, plan)
            root.unlink(entry.path)
            carried_out.append(entry)
    needed = {parent for entry in plan.entries if entry.after.exists for parent in parents(entry.path)}
    for folder, _ in sorted(plan.old_folders, reverse=True):
        if folder not in needed:
            step(f"remove folder {folder}")
            _remove_if_empty(root, folder)
    _make_folders(root, needed, dict(plan.new_folders), step)
    written = {}
    for entry in plan.entries:
        if entry.after.exists and entry.after != entry.before:
            step(f"write {entry.path}")
            _require_image(root, entry, plan)
            _put_image(root, entry, temporaries[entry.path], contents)
            carried_out.append(entry)
            if (status := root.lstat(entry.path)) is not None:
                written[entry.path] = status.st_mtime_ns
    return written


def _make_folders(root: Beneath, needed: set[str], modes: dict[str, int], step: Step) -> None:
    """Make the folders that files need and those of `modes`, unless the path exists already."""
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


def _put_image(root: Beneath, entry: Entry, temporary: str, contents: Contents) -> None:
    if entry.after.kind is Kind.LINK:
        target = os.fsdecode(contents(entry.after.blob))
        if not entry.before.exists:
            root.symlink(target, entry.path)  # fails when the path exists by now
        else:
            _unlink(root, temporary)
            root.symlink(target, temporary)
            root.replace(temporary, entry.path)
    elif not entry.before.exists:
        _place_new(root, temporary, entry.path)
    else:
        root.replace(temporary, entry.path)


def _place_new(root: Beneath, temporary: str, path: str) -> None:
    """Move a file to a free path: a hard link, where the file system has them, cannot overwrite."""
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

"""Makes a landing plan from the difference of two trees, and finds files that obstruct it.

git checks new contents out into a folder of ours, so that line endings and encodings are exactly git's; then they and
the present files are stored byte for byte as blobs of the operator's repository.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.execution import snapshots
from engine.execution.landing import ABSENT, Entry, Image, Kind, Plan, find_obstacle, image_of, is_spelled_exactly
from engine.execution.snapshots import scratch_index
from engine.execution.trees import LINK, TreeChange
from engine.git import Git
from engine.git.command import join_nul
from engine.storage.beneath import Beneath, parents

_EXECUTABLE = "100755"
_BATCH = 64
_DURABLE = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "loose-object,reference",
    "GIT_CONFIG_KEY_1": "core.fsyncMethod",
    "GIT_CONFIG_VALUE_1": "fsync",
}
"""Environment of git for objects that must survive a power cut: old contents are on disk before any file changes."""


class BlobReader:
    """Reads blobs in batches, in the order in which they are needed."""

    def __init__(self, git: Git, order: Sequence[str]) -> None:
        self._git = git
        self._order = [oid for oid in dict.fromkeys(order) if oid]
        self._cache: dict[str, bytes] = {}

    def __call__(self, oid: str) -> bytes:
        """The bytes of `oid`. Raises `GitError` when the repository no longer has it."""
        if oid not in self._cache:
            start = self._order.index(oid) if oid in self._order else 0
            self._cache = self._read(self._order[start : start + _BATCH] if oid in self._order else [oid])
        if oid not in self._cache:
            self._git.output("cat-file", "-e", oid)  # says what is wrong
        return self._cache[oid]

    def _read(self, oids: Sequence[str]) -> dict[str, bytes]:
        answer = self._git.output("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode())
        blobs, offset = {}, 0
        while offset < len(answer):
            line_end = answer.index(b"\n", offset)
            words = answer[offset:line_end].split()
            offset = line_end + 1
            if len(words) == 3:
                size = int(words[2])
                blobs[words[0].decode()] = answer[offset : offset + size]
                offset += size + 1
        return blobs


def find_obstacles(root: Beneath, changes: Sequence[TreeChange]) -> list[str]:
    """The paths that obstruct `changes`: a file that the snapshot does not have (an ignored one) at a new path, a file
    of the snapshot that does not exist (sparse checkout), or a folder with such files."""
    paths = []
    removed = {os.fsdecode(change.path) for change in changes if change.is_removed}
    folded = {path.casefold() for path in removed}
    for change in changes:
        path = os.fsdecode(change.path)
        status = root.lstat(path)
        is_present = status is not None and not stat.S_ISDIR(status.st_mode)
        renamed_case = (
            is_present and change.is_added and path.casefold() in folded and not is_spelled_exactly(root, path)
        )
        if is_present == change.is_added and not renamed_case:
            paths.append(path)
        elif not change.is_removed and (obstacle := find_obstacle(root, path, removed)):
            paths.append(obstacle)
    return list(dict.fromkeys(paths))


def plan_for(git: Git, root: Beneath, tree: str, changes: Sequence[TreeChange], *, token: str, scratch: Path) -> Plan:
    """The plan that applies `changes`, which lead to `tree`, to the files of `git` beneath `root`. All contents,
    present and new, are then blobs of the repository. `scratch` is a folder for large temporary files."""
    folds_case = git.text("config", "--type=bool", "core.ignorecase", allowed=(0, 1)) == "true"
    empty = Plan(token, (), algorithm="sha256" if len(tree) == 64 else "sha1", folds_case=folds_case)
    scratch.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stage-", dir=scratch))
        stage, store = Path(folder, "files"), Path(folder, "store")
        stage.mkdir()
        store.mkdir()
        _check_out(git, stage, tree, [change.path for change in changes if not change.is_removed])
        entries = []
        staged = stack.enter_context(Beneath.open(stage))
        for number, change in enumerate(changes):
            path = os.fsdecode(change.path)
            before = empty.observe_image(root, path, store / f"b{number}")
            after = ABSENT
            if not change.is_removed:
                after = image_of(staged, path, empty.algorithm, store / f"a{number}")
            entries.append(Entry(path, before, _fit_image(change, before, after)))
        _write_blobs(git, store)
    return replace(
        empty,
        entries=tuple(entries),
        old_folders=_old_folders(root, entries),
        new_folders=_new_folders(root, entries),
    )


def keep_blobs(git: Git, plan: Plan, session_id: str, earlier: int) -> None:
    """Keep all contents of `plan` under the session's refs, as long as it may be undone. `earlier` is the number of the
    session's earlier landings."""
    blobs = sorted({image.blob for entry in plan.entries for image in (entry.before, entry.after) if image.blob})
    lines = "".join(f"100644 blob {oid}\t{oid}\n" for oid in blobs).encode()
    tree = git.text("mktree", stdin=lines, environment=durable_environment(git))
    git.output(
        "update-ref",
        f"{snapshots.REF_ROOT}/{session_id}/landing{earlier or ''}",
        tree,
        environment=durable_environment(git),
    )


def blobs_of(git: Git, plan: Plan) -> BlobReader:
    """The contents of a plan, in the order in which `carry_out` needs them."""
    return BlobReader(git, [entry.after.blob for entry in plan.entries] + [entry.before.blob for entry in plan.entries])


def _check_out(git: Git, stage: Path, tree: str, paths: Sequence[bytes]) -> None:
    """Have git write `paths` of `tree` into the empty folder `stage`, with the attributes of the tree itself."""
    with scratch_index() as index:
        staged = git.over(stage, index)
        no_sparse = ("-c", "core.sparseCheckout=false", "-c", "index.sparse=false")
        staged.output(*no_sparse, "read-tree", tree)
        if paths:
            staged.output(*no_sparse, "checkout-index", "-z", "--stdin", stdin=join_nul(paths), timeout=600)


def _fit_image(change: TreeChange, before: Image, after: Image) -> Image:
    """The new image with the old file's permissions and, if git sees the same content, with its bytes, whose line
    endings may differ from those of a checkout."""
    if before.kind is not Kind.FILE or after.kind is not Kind.FILE:
        return after
    blob = before.blob if change.old_oid == change.new_oid else after.blob
    mode = before.mode
    if change.old_mode != change.new_mode and change.old_mode != LINK:
        readable = (mode & 0o444) >> 2
        mode = mode | readable if change.new_mode == _EXECUTABLE else mode & ~0o111
    return Image(Kind.FILE, blob, mode)


def _write_blobs(git: Git, store: Path) -> None:
    names = "".join(f"{file}\n" for file in sorted(store.iterdir()))
    if names:
        git.output(
            "hash-object",
            "-w",
            "--no-filters",
            "--stdin-paths",
            stdin=names.encode(),
            environment=durable_environment(git),
        )


def durable_environment(git: Git) -> dict[str, str]:
    """The environment in which git returns when objects and refs are on disk."""
    count = int(git.environment.get("GIT_CONFIG_COUNT", "0"))
    return {
        f"GIT_CONFIG_{what}_{count + number}": _DURABLE[f"GIT_CONFIG_{what}_{number}"]
        for number in (0, 1)
        for what in ("KEY", "VALUE")
    } | {"GIT_CONFIG_COUNT": str(count + 2)}


def _old_folders(root: Beneath, entries: Sequence[Entry]) -> tuple[tuple[str, int], ...]:
    """Folders that may be empty afterwards: above removed files, and those that a file replaces."""
    modes = dict(replaced_folders(root, entries))
    for entry in entries:
        if not entry.after.exists:
            for parent in parents(entry.path):
                _note_mode(root, parent, modes)
    return tuple(sorted(modes.items()))


def replaced_folders(root: Beneath, entries: Sequence[Entry]) -> tuple[tuple[str, int], ...]:
    """Folders that a file replaces if they are empty, as in git."""
    modes: dict[str, int] = {}
    for entry in entries:
        if entry.after.exists and root.is_folder(entry.path):
            inside = [path for path, is_folder in root.walk(entry.path) if is_folder]
            for folder in (entry.path, *inside):
                _note_mode(root, folder, modes)
    return tuple(sorted(modes.items()))


def _note_mode(root: Beneath, folder: str, modes: dict[str, int]) -> None:
    status = root.lstat(folder) if folder not in modes else None
    if status is not None and stat.S_ISDIR(status.st_mode):
        modes[folder] = stat.S_IMODE(status.st_mode)


def _new_folders(root: Beneath, entries: Sequence[Entry]) -> tuple[tuple[str, int], ...]:
    umask = _read_umask()
    needed = {parent for entry in entries if entry.after.exists for parent in parents(entry.path)}
    return tuple(sorted((folder, 0o777 & ~umask) for folder in needed if not root.is_folder(folder)))


def _read_umask() -> int:
    """The process's umask, read without changing it, which would affect other threads."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022

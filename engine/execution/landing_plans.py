"""Plans a landing from git trees: which files change and how, and what is in the way (SPEC 3.9).

A landing of some parts begins with the tree that has them. git checks the new contents out into a scratch folder, so
that line endings and encodings are exactly git's. Then the new and the present contents are stored, byte for byte, as
blobs of the operator's repository. `Landings` carries the plans out.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from io import BytesIO
from pathlib import Path

from engine.beneath import Beneath, parents
from engine.execution.diffs import apply_hunks, find_landed_hunks, find_unsupported, parse_spans
from engine.execution.file_plan import (
    ABSENT,
    Image,
    ImageKind,
    Plan,
    PlanEntry,
    find_obstacle,
    is_spelled_exactly,
    read_image,
)
from engine.execution.trees import (
    DURABLE_OPTIONS,
    EXECUTABLE_MODE,
    LINK_MODE,
    REF_ROOT,
    TreeChange,
    diff_trees,
    merge_three_way,
    read_patches,
    scratch_index,
)
from engine.frozen import frozen
from engine.git import Git, join_nul, join_paths, printable_path
from engine.model import FilePart, LandPreview, Refusal

# -- landings of parts


def write_tree_with(git: Git, base: str, result: str, landed: str, parts: Sequence[FilePart]) -> str:
    """Add `parts` of the change from `base` to `result` to the tree `landed`, which has another part of that change.
    Returns the new tree, whose objects are all on disk.

    Raises `Refusal`: `unknown_file`, `unknown_hunk`, `already_decided` (a part is landed already), `inseparable` (a
    file replaces one that is not among `parts`).
    """
    files = {printable_path(file.path): (file, patch) for file, patch in read_patches(git, base, result)}
    remaining = {change.path: change for change in diff_trees(git, landed, result)}
    waiting = [path for path, (file, _) in files.items() if remaining.keys() & file.paths]
    entries, selected_paths = [], set[bytes]()
    for part in parts:
        if part.path not in files:
            raise Refusal("unknown_file", f"it does not change {part.path}", f"one of: {join_paths(waiting)}")
        if part.path not in waiting:
            raise Refusal("already_decided", f"{part.path} is landed already", f"left: {join_paths(waiting)}")
        file, patch = files[part.path]
        selected_paths |= file.paths
        entries += _make_index_entries(git, file, patch, remaining, part)
    with scratch_index() as index:
        partial = git.over(git.folder, index)
        partial.output("read-tree", landed)
        partial.output("update-index", "--replace", "-z", "--index-info", stdin=join_nul(entries))
        tree = partial.text(*DURABLE_OPTIONS, "write-tree", "--missing-ok")
    if unselected := {change.path for change in diff_trees(git, landed, tree)} - selected_paths:
        names = join_paths([printable_path(path) for path in sorted(unselected)])
        raise Refusal("inseparable", f"it takes the place of {names}", "land them together")
    return tree


def _make_index_entries(
    git: Git, file: TreeChange, patch: bytes, remaining: Mapping[bytes, TreeChange], part: FilePart
) -> list[bytes]:
    """The lines for `git update-index` that remove a file from an index, and add it with this part of its change."""
    entries = [f"0 {'0' * len(file.new_oid)}\t".encode() + path for path in file.paths]
    mode, oid = file.new_mode, file.new_oid
    if part.hunks:
        landed = find_landed_hunks(git, file, patch, remaining)
        if blob := _write_blob_with(git, file, patch, landed, part):
            mode, oid = file.old_mode, blob
    if not file.is_removed:
        entries.append(f"{mode} {oid}\t".encode() + file.path)
    return entries


def _write_blob_with(git: Git, file: TreeChange, patch: bytes, landed: frozenset[int] | None, part: FilePart) -> str:
    """Write the blob of the old file with these hunks and the `landed` ones (None: unknown). "" when these are all
    hunks of the file."""
    hunks = parse_spans(patch) if file.patch_count == 1 else []
    if unknown := [number for number in part.hunks if not 1 <= number <= len(hunks)]:
        fix = f"its hunks are 1 to {len(hunks)}" if hunks else "it has none: land all of it"
        raise Refusal("unknown_hunk", f"{part.path} has no hunk {unknown[0]}", fix)
    if landed is None:
        raise Refusal("unknown_hunk", f"the hunks of {part.path} that are left have no numbers", "land all of it")
    if again := sorted(landed.intersection(part.hunks)):
        remaining_hunks = ", ".join(str(number) for number in range(1, len(hunks) + 1) if number not in landed)
        message = f"hunk {again[0]} of {part.path} is landed already"
        raise Refusal("already_decided", message, f"hunks left: {remaining_hunks}")
    chosen = landed.union(part.hunks)
    if len(chosen) == len(hunks):
        return ""
    old, new = (git.output("cat-file", "blob", oid) for oid in (file.old_oid, file.new_oid))
    return git.text(*DURABLE_OPTIONS, "hash-object", "-w", "--stdin", stdin=apply_hunks(old, new, hunks, chosen))


# -- plans


def make_plan(git: Git, root: Beneath, tree: str, changes: Sequence[TreeChange], *, token: str, scratch: Path) -> Plan:
    """The plan that applies `changes`, which lead to `tree`, to the files beneath `root`.

    It stores the present and the new contents as blobs in the repository of `git`. `scratch` is a folder for large
    temporary files.
    """
    folds_case = git.text("config", "--type=bool", "core.ignorecase", allowed=(0, 1)) == "true"
    draft = Plan(token, (), algorithm="sha256" if len(tree) == 64 else "sha1", folds_case=folds_case)
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stage-", dir=scratch) as folder:
        entries = _store_contents(git, root, tree, changes, draft, Path(folder))
    modes = find_replaced_folders(root, entries)
    for entry in entries:
        if not entry.after.exists:
            modes |= _read_modes(root, parents(entry.path))
    needed = {parent for entry in entries if entry.after.exists for parent in parents(entry.path)}
    new_folders = sorted((folder, 0o777 & ~_read_umask()) for folder in needed if not root.is_folder(folder))
    old_folders = tuple(sorted(modes.items()))
    return replace(draft, entries=tuple(entries), old_folders=old_folders, new_folders=tuple(new_folders))


def _store_contents(
    git: Git, root: Beneath, tree: str, changes: Sequence[TreeChange], draft: Plan, folder: Path
) -> list[PlanEntry]:
    """Store the present and the new contents of `changes` as blobs. Returns the entries for the plan `draft`.
    `folder` is for temporary files."""
    stage, store = folder / "files", folder / "store"
    stage.mkdir()
    store.mkdir()
    _check_out(git, stage, tree, [change.path for change in changes if not change.is_removed])
    entries = []
    with Beneath.open(stage) as staged:
        for number, change in enumerate(changes):
            path = os.fsdecode(change.path)
            before = draft.observe_image(root, path, store / f"b{number}")
            after = ABSENT
            if not change.is_removed:
                after = read_image(staged, path, draft.algorithm, store / f"a{number}")
            entries.append(PlanEntry(path, before, _fit_image(change, before, after)))
    if names := "".join(f"{file}\n" for file in sorted(store.iterdir())):
        git.output(*DURABLE_OPTIONS, "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names.encode())
    return entries


def _check_out(git: Git, stage: Path, tree: str, paths: Sequence[bytes]) -> None:
    """Have git write `paths` of `tree` into the empty folder `stage`, by the attributes that the tree itself has."""
    with scratch_index() as index:
        staged = git.over(stage, index)
        no_sparse = ("-c", "core.sparseCheckout=false", "-c", "index.sparse=false")
        staged.output(*no_sparse, "read-tree", tree)
        if paths:
            staged.output(*no_sparse, "checkout-index", "-z", "--stdin", stdin=join_nul(paths), timeout=600)


def _fit_image(change: TreeChange, before: Image, after: Image) -> Image:
    """The new image with the permissions of the old file. If git sees no change of contents, it also has the old bytes,
    because their line endings may differ from those of a checkout."""
    if before.kind != ImageKind.FILE or after.kind != ImageKind.FILE:
        return after
    blob = before.blob if change.old_oid == change.new_oid else after.blob
    mode = before.mode
    if change.old_mode != change.new_mode and change.old_mode != LINK_MODE:
        readable = (mode & 0o444) >> 2
        mode = mode | readable if change.new_mode == EXECUTABLE_MODE else mode & ~0o111
    return Image(ImageKind.FILE, blob, mode)


def find_replaced_folders(root: Beneath, entries: Sequence[PlanEntry]) -> dict[str, int]:
    """The permission bits of the folders that files of `entries` replace, by path. As in git, they must be empty."""
    modes: dict[str, int] = {}
    for entry in entries:
        if entry.after.exists and root.is_folder(entry.path):
            inside = [path for path, is_folder in root.walk(entry.path) if is_folder]
            modes |= _read_modes(root, (entry.path, *inside))
    return modes


def _read_modes(root: Beneath, folders: Iterable[str]) -> dict[str, int]:
    """The permission bits of those of `folders` that exist and are no links, by path."""
    modes = {}
    for folder in folders:
        status = root.lstat(folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            modes[folder] = stat.S_IMODE(status.st_mode)
    return modes


def _read_umask() -> int:
    """The umask of this process. It is read from /proc, because `os.umask` would change it for other threads."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022


@frozen
class TrialLanding:
    """The result of `try_landing`."""

    preview: LandPreview
    """Whether the landing is possible."""
    tree: str = ""
    """The merged tree; "" after a conflict."""
    changes: Sequence[TreeChange] = ()
    """The difference of the merged tree from the present files."""
    unsupported: Mapping[bytes, str] = field(default_factory=dict)
    """The paths of `changes` that cannot be landed, each with the reason."""


def try_landing(git: Git, root: Beneath, *, landed: str, target: str, present: str) -> TrialLanding:
    """Try to land the changes from the tree `landed` to `target` on the files beneath `root`, whose tree is `present`.
    Changes no file."""
    merge = merge_three_way(git, base=landed, ours=present, theirs=target)
    if merge.conflicts:
        return TrialLanding(LandPreview(False, merge.conflicts))
    changes = diff_trees(git, present, merge.tree)
    reasons = find_unsupported(git, merge.tree, changes)
    obstructing = find_obstructing_paths(root, [change for change in changes if change.path not in reasons])
    preview = LandPreview(
        clean=not reasons and not obstructing,
        in_the_way=tuple(map(printable_path, obstructing)),
        unsupported=tuple(f"{printable_path(path)}: {reason}" for path, reason in reasons.items()),
        files=len(changes),
    )
    return TrialLanding(preview, merge.tree, changes, reasons)


def find_obstructing_paths(root: Beneath, changes: Sequence[TreeChange]) -> list[str]:
    """The paths that obstruct `changes`.

    A change is obstructed by a file at a new path that the snapshot does not have (an ignored one), by a folder with
    such files, or when a file of the snapshot is not on the disk (sparse checkout).
    """
    obstructing = []
    removed = {os.fsdecode(change.path) for change in changes if change.is_removed}
    removed_folded = {path.casefold() for path in removed}
    for change in changes:
        path = os.fsdecode(change.path)
        status = root.lstat(path)
        is_present = status is not None and not stat.S_ISDIR(status.st_mode)
        if is_present and change.is_added and path.casefold() in removed_folded and not is_spelled_exactly(root, path):
            is_present = False  # a rename of only the case: the file at this path is the removed one
        if is_present == change.is_added:
            obstructing.append(path)
        elif not change.is_removed and (obstacle := find_obstacle(root, path, removed)):
            obstructing.append(obstacle)
    return list(dict.fromkeys(obstructing))


# -- stored contents


def read_blobs(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """The bytes of these blobs by their ids. Raises `GitError` when the repository no longer has one of them."""
    distinct_oids = list(dict.fromkeys(oids))
    output = BytesIO(git.output("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in distinct_oids).encode()))
    blobs = {}
    for oid in distinct_oids:
        header = output.readline().split()
        if len(header) != 3:
            git.output("cat-file", "-e", oid)  # says what is wrong
        blobs[oid] = output.read(int(header[2]) + 1)[:-1]
    return blobs


def keep_blobs(git: Git, plan: Plan, session_id: str, earlier_landings: int) -> None:
    """Keep git from collecting the contents of `plan` while it may be undone, by a ref of the session.
    `earlier_landings` is their number."""
    blobs = sorted({image.blob for entry in plan.entries for image in (entry.before, entry.after) if image.blob})
    lines = "".join(f"100644 blob {oid}\t{oid}\n" for oid in blobs).encode()
    tree = git.text(*DURABLE_OPTIONS, "mktree", stdin=lines)
    git.output(*DURABLE_OPTIONS, "update-ref", f"{REF_ROOT}/{session_id}/landing{earlier_landings or ''}", tree)

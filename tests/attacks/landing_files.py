"""Files of the operator that a landing must not change, a project, and changes and plans of a landing."""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from engine.beneath import Beneath
from engine.execution import file_plan
from engine.execution.file_plan import ABSENT, Contents, Image, ImageKind, Plan, PlanEntry, compute_blob_id
from engine.model import Refusal

EDITED = "edited\n"


class Canary:
    """Files of the operator's outside the tree, each with the name of one that a landing writes or removes."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "old/empty").mkdir(parents=True)
        for name in ("change", "go", "f.txt", "gone.txt", "id_rsa"):
            (folder / name).write_text(f"secret {name}\n")
            (folder / name).chmod(0o640)
            os.utime(folder / name, ns=(10**18, 10**18))
        self._before = self._file_states()

    def _file_states(self) -> dict[str, tuple[int, int, bytes]]:
        entries = {}
        for path in sorted([self.folder, *self.folder.rglob("*")]):
            status = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            entries[str(path)] = (status.st_mode, status.st_mtime_ns, data)
        return entries

    def assert_untouched(self):
        assert self._file_states() == self._before


PROJECT = {"d/f.txt": "one\n", "d/gone.txt": "gone\n", "d/old/y": "y\n", "top": "top\n"}
"""The files that `make_all_changes` changes."""


def make_all_changes(folder: Path):
    """Make each sort of change to `PROJECT` that a landing knows, in one folder."""
    (folder / "d/f.txt").write_text(EDITED)
    (folder / "d/gone.txt").unlink()
    shutil.rmtree(folder / "d/old")
    (folder / "d/sub").mkdir()
    (folder / "d/sub/authorized_keys").write_text(EDITED)
    (folder / "d/authorized_keys").write_text(EDITED)
    (folder / "d/l").symlink_to("f.txt")


def replace_by_link(folder: Path, target: Path):
    """Put a link to `target` where `folder` is."""
    with contextlib.suppress(FileNotFoundError):
        folder.rename(folder.with_name(f"{folder.name}-away"))
        folder.symlink_to(target)


def ignore_failure(work: Callable[[], object]):
    """Do work that may be refused or fail: only what it leaves outside counts."""
    with contextlib.suppress(Refusal, OSError, file_plan.FilesChanged, file_plan.NotRestored):
        work()


def make_plan() -> tuple[Plan, Contents]:
    """A plan with each sort of change to the tree of `make_tree`, and the contents of its files."""
    texts = {compute_blob_id(text.encode()): text.encode() for text in ("one", "two", "change", "go", "x")}
    first, second = (
        Image(ImageKind.FILE, compute_blob_id(b"one"), 0o644),
        Image(ImageKind.FILE, compute_blob_id(b"two"), 0o755),
    )
    entries = (
        PlanEntry("d/change", first, second),
        PlanEntry("d/go", first, ABSENT),
        PlanEntry(
            "d/link", Image(ImageKind.LINK, compute_blob_id(b"one")), Image(ImageKind.LINK, compute_blob_id(b"two"))
        ),
        PlanEntry("d/new", ABSENT, second),
        PlanEntry("d/new_link", ABSENT, Image(ImageKind.LINK, compute_blob_id(b"x"))),
        PlanEntry("d/old/empty/y", first, ABSENT),
        PlanEntry("d/sub/authorized_keys", ABSENT, first),
    )
    plan = Plan("land_x", entries, (("d/old", 0o755), ("d/old/empty", 0o755)), (("d/sub", 0o755),))
    return plan, lambda oids: {oid: texts[oid] for oid in oids}


def make_tree(top: Path) -> Path:
    """Make the tree that the plan changes; returns `top`."""
    (top / "d/old/empty").mkdir(parents=True)
    for name in ("change", "go", "old/empty/y"):
        (top / "d" / name).write_text("one")
        (top / "d" / name).chmod(0o644)
    (top / "d/link").symlink_to("one")
    return top


def carry_out(files: Beneath):
    file_plan.carry_out(files, *make_plan())


def reverse(files: Beneath):
    plan, contents = make_plan()
    file_plan.carry_out(files, plan.reversed(), contents)


def roll_back(files: Beneath):
    file_plan.roll_back(files, *make_plan())

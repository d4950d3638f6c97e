"""The mounts of a sandbox: folders that commands may write, and folders of git that they may only read (SPEC 3.8)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.mounts import Mount, MountKind, make_pinned, plan_mounts
from engine.model import Refusal


def test_commands_write_their_folders_but_not_what_git_runs(tmp_path: Path) -> None:
    confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
    confinement.make()
    folder = confinement.folder
    (folder / "lib" / ".git").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')

    def plan_kinds() -> dict[Path, MountKind]:
        return {mount.at: mount.kind for mount in plan_mounts(confinement, [])}

    planned = plan_kinds()
    for place in (folder, confinement.tmp, confinement.home, confinement.caches, folder / "lib"):
        assert planned[place] is MountKind.WRITE
    protected = {place for place, kind in planned.items() if kind is MountKind.READ}
    assert protected == {folder / ".git", folder / "lib" / ".git", folder / ".gitmodules"}
    shutil.move(folder / ".git", tmp_path / "git")
    (folder / ".git").symlink_to(tmp_path / "git")
    assert plan_kinds()[folder] is MountKind.READ, (
        "nothing can be mounted on a link, so nothing in the folder is written"
    )


@pytest.mark.parametrize("planted", ["link", "file", ""])
def test_a_folder_that_a_command_replaced_is_not_mounted(tmp_path: Path, planted: str) -> None:
    root, outside = tmp_path / "tmp", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    mounts = [
        Mount(MountKind.WRITE, Path("/var/tmp/a/b"), root / "a" / "b"),
        Mount(MountKind.WRITE, outside, outside / "c"),
    ]
    if planted == "link":
        (root / "a").symlink_to(outside)
    elif planted == "file":
        (root / "a").touch()
    if planted:
        with pytest.raises(Refusal, match="no longer a separate folder"):
            make_pinned(mounts, root)
    else:
        make_pinned(mounts, root)
        make_pinned(mounts, root)
        assert (root / "a" / "b").is_dir()
    assert list(outside.iterdir()) == []

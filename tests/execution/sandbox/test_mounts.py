"""The mounts of a sandbox: folders that commands may write, and folders of git that they may only read (SPEC 3.8)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.mounts import Mount, MountKind, make_pinned, plan_mounts
from engine.model import Refusal


@pytest.fixture
def mounts(tmp_path: Path) -> list[Mount]:
    """Two mounts, of which the first one has its folder below `tmp_path`/tmp."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "outside").mkdir()
    return [
        Mount(MountKind.WRITE, Path("/var/tmp/a/b"), tmp_path / "tmp/a/b"),
        Mount(MountKind.WRITE, tmp_path / "outside", tmp_path / "outside/c"),
    ]


@pytest.fixture
def confinement(tmp_path: Path) -> Confinement:
    confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
    confinement.make()
    return confinement


def plan_kinds(confinement: Confinement) -> dict[Path, MountKind]:
    """The kind of each mount by its place."""
    return {mount.at: mount.kind for mount in plan_mounts(confinement, [])}


def test_commands_write_their_folders_but_not_what_git_runs(confinement: Confinement):
    folder = confinement.folder
    (folder / "lib" / ".git").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')
    planned = plan_kinds(confinement)
    for place in (folder, confinement.tmp, confinement.home, confinement.caches, folder / "lib"):
        assert planned[place] is MountKind.WRITE
    protected = {place for place, kind in planned.items() if kind is MountKind.READ}
    assert protected == {folder / ".git", folder / "lib" / ".git", folder / ".gitmodules"}


def test_a_folder_whose_git_folder_is_a_link_is_not_written(confinement: Confinement, tmp_path: Path):
    """Nothing can be mounted on a link."""
    confinement.folder.mkdir()
    (confinement.folder / ".git").symlink_to(tmp_path / "git")
    assert plan_kinds(confinement)[confinement.folder] is MountKind.READ


def test_the_folder_of_a_mount_is_made_once_and_beside_the_places_of_sessions_none_is(
    tmp_path: Path, mounts: list[Mount]
):
    for _ in range(2):
        make_pinned(mounts, tmp_path / "tmp")
    assert (tmp_path / "tmp/a/b").is_dir()
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("plant", [lambda place: place.symlink_to("../outside"), Path.touch], ids=["link", "file"])
def test_a_folder_that_a_command_replaced_is_not_mounted(
    tmp_path: Path, mounts: list[Mount], plant: Callable[[Path], None]
):
    plant(tmp_path / "tmp/a")
    with pytest.raises(Refusal, match="no longer a separate folder"):
        make_pinned(mounts, tmp_path / "tmp")
    assert list((tmp_path / "outside").iterdir()) == []

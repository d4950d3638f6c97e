"""The mounts of a sandbox: folders that commands may write, and folders of git that they may only read; the profiles of
Seatbelt, the rung of macOS, which cannot be run here (SPEC 3.8)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.mounts import Mount, MountKind, make_pinned, plan_mounts
from engine.execution.sandbox.programs import make_profile, quote_path
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


# Profiles of Seatbelt


@pytest.fixture
def profiled(tmp_path: Path) -> Confinement:
    for name in ("home/folder/.git", "home/folder/deep/secret", "home/scratch", "home/caches", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Confinement(
        home / "folder", home / "scratch", home / "caches", hidden=(home / ".ssh", home / "folder" / "deep" / "secret")
    )


def split_quoted(text: str) -> tuple[list[str], str]:
    """The strings of a profile, and the text outside of them."""
    texts = []
    outside, inside, escaped = "", False, False
    for character in text:
        if not inside:
            if character == '"':
                inside = True
                texts.append("")
            else:
                outside += character
        elif escaped or character not in '\\"':
            texts[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            inside = False
    assert not inside
    return texts, outside


def test_the_profile_denies_first_and_lets_the_deeper_path_decide(profiled: Confinement):
    text = make_profile(profiled)
    folder = profiled.folder
    order = [
        "(deny default)",
        f'(allow file-read* file-write* (subpath "{folder}"))',
        f'(deny file-write* (subpath "{folder}/.git"))',
        f'(deny file-read* file-write* (subpath "{folder}/deep/secret"))',
    ]
    assert sorted(order, key=text.index) == order
    assert f'(deny file-write-unlink (literal "{folder}/deep"))' in text
    assert "network" not in text


def test_the_profile_with_network_denies_unix_sockets(profiled: Confinement):
    text = make_profile(replace(profiled, network=True))
    assert text.index("(allow network*)") < text.index("(deny network-outbound (remote unix-socket))")


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\x1bb", "a\x7fb"])
def test_a_path_with_a_control_character_is_refused(name: str):
    with pytest.raises(ValueError, match="control character"):
        quote_path(name)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_quoted_text_is_one_string(text: str):
    assert split_quoted(quote_path(text)) == ([text], "")

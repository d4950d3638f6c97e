"""Files are written whole or not at all, what a crash left is removed, and no link is followed (SPEC
11.3)."""

import os
import stat
from pathlib import Path

import pytest

from engine.files import TEMPORARY_PREFIX, remove_folder, remove_temporaries, write_atomic


def test_a_new_file_is_private_and_a_replaced_file_keeps_its_mode(tmp_path: Path):
    file = tmp_path / "soul.md"
    write_atomic(file, b"one")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    write_atomic(file, b"two")
    assert file.read_bytes() == b"two"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_link_stays_a_link(tmp_path: Path):
    real = tmp_path / "real.md"
    real.write_text("old")
    link = tmp_path / "link.md"
    link.symlink_to(real)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "config.toml"
    file.write_text("old")

    def fail_with_full_disk(_descriptor: int):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_with_full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, b"new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_temporary_files_of_a_crash_are_removed(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / f"{TEMPORARY_PREFIX}abc").write_text("half")
    (tmp_path / "deep" / "kept").write_text("whole")
    assert remove_temporaries(tmp_path) == 1
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["kept"]


def test_a_folder_is_removed_without_following_links(tmp_path: Path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/x").write_text("x")
    (tmp_path / "doomed/a").mkdir(parents=True)
    (tmp_path / "doomed/a/link").symlink_to(tmp_path / "precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")

    remove_folder(tmp_path / "doomed")
    remove_folder(tmp_path / "link")
    remove_folder(tmp_path / "nothing")

    assert (tmp_path / "precious/x").exists()
    assert not (tmp_path / "doomed").exists()
    assert not (tmp_path / "link").is_symlink()

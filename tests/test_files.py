"""Files are written whole or not at all, what a crash left is removed, and no link is followed (SPEC 11.3). A marked
section is written without a change of any other byte of the file (SPEC 1.6)."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.files import (
    GUIDANCE_MARKS,
    TEMPORARY_PREFIX,
    find_section,
    remove_folder,
    remove_temporaries,
    write_atomic,
    write_section,
)


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


# Marked sections (SPEC 1.6)

OPEN, CLOSE = GUIDANCE_MARKS.opening, GUIDANCE_MARKS.closing

DATA = st.lists(
    st.sampled_from([OPEN.encode(), CLOSE.encode(), b"\n", b"\r\n", b"## Inherited Wisdom", b"<!--", b"-->", b"\r"])
    | st.binary(max_size=12),
    max_size=10,
).map(b"".join)
BODIES = st.text(max_size=60) | st.sampled_from(["", OPEN, CLOSE, f"{CLOSE}\n{OPEN}", "a\nb"])


@given(DATA, BODIES, BODIES)
@example(b"no newline at the end", "body", "")
@example(f"{OPEN}stray\n{OPEN}\nold\n{CLOSE} tail {CLOSE}".encode(), "body", "other")
def test_every_other_byte_stays_and_twice_is_once(data: bytes, body: str, former_body: str):
    written = write_section(data, body, GUIDANCE_MARKS)
    assert write_section(written, body, GUIDANCE_MARKS) == written
    before, after = find_section(data, GUIDANCE_MARKS), find_section(written, GUIDANCE_MARKS)
    if before is not None:
        assert written[: after[0]] == data[: before[0]]
        assert written[after[1] :] == data[before[1] :]
    elif body:
        assert written.startswith(data)
        assert (written[len(data) : after[0]] + written[after[1] :]).strip() == b""
    else:
        assert written == data
    if body:
        assert write_section(write_section(written, former_body, GUIDANCE_MARKS), body, GUIDANCE_MARKS) == written


@pytest.mark.parametrize(
    "data, body, expected",
    [
        (b"# A\r\ntext", "one\ntwo", f"# A\r\ntext\r\n\r\n{OPEN}\r\none\r\ntwo\r\n{CLOSE}\r\n"),
        (b"", "one", f"{OPEN}\none\n{CLOSE}\n"),
    ],
    ids=["windows", "empty file"],
)
def test_a_section_has_the_line_ends_of_its_file(data: bytes, body: str, expected: str):
    assert write_section(data, body, GUIDANCE_MARKS) == expected.encode()

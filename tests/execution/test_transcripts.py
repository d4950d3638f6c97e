"""Transcripts: harmless lines, limits, pages, and what a crash or a full disk leaves (SPEC 3.8)."""

import resource
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution import transcripts
from engine.execution.transcripts import (
    CUT_NOTE,
    MAX_LINE_CHARS,
    LineSplitter,
    TranscriptReader,
    TranscriptWriter,
)
from engine.model import sanitise


def split_lines(*chunks: bytes) -> list[str]:
    """The lines that output in these chunks becomes."""
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.split(chunk)] + splitter.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "transcript.jsonl"


def test_progress_bars_show_their_last_state():
    assert split_lines(b"10 %\r50 %\r100 %\ndone\r\n") == ["100 %", "done"]
    endless = split_lines(*[b"x" * 900 + b"\r" for _ in range(100)], b"ready\n")
    assert len(endless) == 1
    assert len(endless[0]) < MAX_LINE_CHARS + 50


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"\x1b]\n", b"\n"])
def test_any_bytes_in_any_chunks_become_the_same_harmless_lines(chunks: list[bytes]):
    lines = split_lines(*chunks)
    assert lines == split_lines(b"".join(chunks))
    for line in lines:
        assert "\n" not in line
        assert sanitise(line) == line


def test_pages_are_read_by_line_number(path: Path, clock: FakeClock):
    writer, reader = TranscriptWriter(path, clock, tuple), TranscriptReader()
    assert reader.page(path) == []
    for start in range(0, 5000, 500):
        writer.append("output", [f"line {number}" for number in range(start + 1, start + 501)])
        writer.flush()
        assert [line.number for line in reader.page(path, after=start)] == list(range(start + 1, start + 501))
    for after in (-5, 0, 999, 1000, 4999, 5000, 9999):
        page = reader.page(path, after=after, limit=2)
        first = max(after, 0) + 1
        assert [line.text for line in page] == [f"line {number}" for number in (first, first + 1) if number <= 5000]
    writer.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_half_written_line_is_left_out_and_cut_off(path: Path, clock: FakeClock):
    writer = TranscriptWriter(path, clock, tuple)
    writer.append("output", ["whole"])
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"at": "2026-01-0')
    assert [line.text for line in TranscriptReader().page(path)] == ["whole"]
    second = TranscriptWriter(path, clock, tuple)
    second.append("note", ["goes on"])
    second.close()
    assert [(line.number, line.text) for line in TranscriptReader().page(path)] == [(1, "whole"), (2, "goes on")]


@pytest.mark.parametrize("cut_at", [8, 9])
def test_the_note_on_dropped_output_follows_a_secret_in_the_last_line(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, cut_at: int
):
    monkeypatch.setattr(transcripts, "MAX_OUTPUT_LINES", 10)
    writer = TranscriptWriter(path, clock, lambda: ["correct-horse"])
    writer.append("output", ["x"] * cut_at + ["it is correct-horse"] + ["x"] * 5)
    writer.close()
    notes = [line.text for line in TranscriptReader().page(path) if line.kind == "note"]
    assert notes == [CUT_NOTE, "the transcript keeps 10 lines of output; the rest is dropped"]


def test_a_full_disk_leaves_no_half_written_batch(path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    writer = TranscriptWriter(path, clock, tuple)
    writer.append("output", ["a" * 3000])
    writer.flush()
    size = path.stat().st_size
    writer.append("output", ["b" * 3000])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limit[1]))
    try:
        with pytest.raises(OSError, match="large"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.stat().st_size == size
    writer.close()
    assert [line.text[0] for line in TranscriptReader().page(path)] == ["a", "b"]

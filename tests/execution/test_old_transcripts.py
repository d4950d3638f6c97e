"""Transcripts that an earlier version stored with keys in them are gone through once (SPEC 11.1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import open_engine
from engine.execution import old_transcripts
from engine.execution.old_transcripts import OldTranscripts, clean
from engine.execution.transcripts import TranscriptReader
from engine.home import Home as EngineHome
from engine.model.secrets import CUT
from engine.storage import files
from engine.storage.database import Database
from tests.execution.session_world import until

OURS = "correct-horse-battery"  # a key of the operator's: it looks like nothing
THEIRS = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
BASE64 = "AQEA7bq9Zk/x" * 6
KEY = ["-----BEGIN PRIVATE KEY-----", BASE64, "AQEA", "-----END PRIVATE KEY-----"]


def entry(text: str, kind: str = "output") -> dict[str, str]:
    return {"at": "2026-01-05T09:00:00+00:00", "kind": kind, "text": text}


def store(path: Path, entries: list[Any]) -> Path:
    """As a version stored it that cut nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entries))
    path.chmod(0o600)
    return path


def texts(path: Path) -> list[str]:
    return [line.text for line in TranscriptReader().page(path)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "transcripts"


class Home:
    """The stored transcripts of a home, and what was told of them."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.running: set[str] = set()
        self.told: list[str] = []
        self._database = database

    def start(self) -> OldTranscripts:
        """As an engine begins with them."""
        return OldTranscripts(
            self.folder,
            self._database,
            over=lambda session: session not in self.running,
            secrets=lambda: [OURS],
            report=lambda where, message: self.told.append(message),
        )


@pytest.fixture
def home(folder: Path, database: Database) -> Home:
    return Home(folder, database)


def test_keys_are_cut_out_of_a_transcript_and_nothing_else_changes(folder: Path) -> None:
    said = [entry("hello ünï"), entry(f"TOKEN {THEIRS}"), entry(f"{OURS}!", "error"), entry("done", "note")]
    path = store(folder / "sess_1.jsonl", said)
    assert clean(path, [OURS])
    after = [json.loads(line) for line in path.read_text().splitlines()]
    assert after == [said[0], entry(f"TOKEN {CUT}"), entry(f"{CUT}!", "error"), said[3]]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not clean(path, [OURS]), "once is enough"


def test_a_private_key_goes_over_lines_between_which_others_stand(folder: Path) -> None:
    said = [one for line in KEY for one in (entry(line), entry("warning", "error"))]
    path = store(folder / "sess_1.jsonl", said)
    clean(path)
    assert texts(path) == [CUT, "warning"] * 4


def test_what_is_clean_is_not_written(folder: Path) -> None:
    path = store(folder / "sess_1.jsonl", [entry("3 passed")])
    before = path.stat()
    assert not clean(path, [OURS])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("half", [f'{{"at": "2026", "text": "{THEIRS}', f"{THEIRS}", "[" * 50_000 + THEIRS])
def test_a_line_that_a_crash_left_half_written_is_cut_as_text(folder: Path, half: str) -> None:
    path = store(folder / "sess_1.jsonl", [entry("3 passed")])
    whole = path.read_bytes()
    path.write_bytes(whole + half.encode() + b"\xff")
    clean(path)
    assert path.read_bytes() == whole + half.replace(THEIRS, CUT).encode() + b"\xff"


def test_in_a_conversation_what_the_provider_wants_back_stays(folder: Path) -> None:
    message = {"kind": "response", "parts": [{"content": f"use {THEIRS}", "signature": THEIRS, "n": 1}]}
    path = store(folder / "sess_1.messages.jsonl", [message])
    clean(path)
    (part,) = json.loads(path.read_text())["parts"]
    assert part == {"content": f"use {CUT}", "signature": THEIRS, "n": 1}


def test_a_full_disk_leaves_the_file_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(folder / "sess_1.jsonl", [entry(THEIRS)])
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        clean(path)
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_all_are_gone_through_once_some_at_a_time_also_over_a_restart(
    home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_transcripts, "MOST", 1)
    paths = [store(folder / f"sess_{number}.jsonl", [entry(THEIRS)]) for number in range(3)]
    old = home.start()
    assert old.round() == 1
    assert [texts(path) for path in paths] == [[CUT], [THEIRS], [THEIRS]]
    old = home.start()
    assert [old.round(), old.round()] == [1, 1]
    assert [texts(path) for path in paths] == [[CUT]] * 3
    old.round()
    assert not old.wanted()
    assert not home.start().wanted()


def test_they_are_gone_through_again_when_more_is_known_to_be_secret(
    home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.start().round()
    path = store(folder / "sess_1.jsonl", [entry(THEIRS)])
    assert not home.start().wanted()
    monkeypatch.setattr(old_transcripts, "RULES", old_transcripts.RULES + 1)
    assert home.start().round() == 1
    assert texts(path) == [CUT]


def test_what_a_session_writes_is_left_to_it_and_looked_at_after_the_next_start(home: Home, folder: Path) -> None:
    path = store(folder / "sess_1.jsonl", [entry(THEIRS)])
    home.running = {"sess_1"}
    old = home.start()
    assert old.round() == 0
    assert not old.wanted()
    home.running = set()
    assert home.start().round() == 1
    assert texts(path) == [CUT]


def test_one_that_cannot_be_written_is_told_of_and_keeps_no_other_back(
    home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (store(folder / f"sess_{number}.jsonl", [entry(THEIRS)]) for number in range(2))

    def refused(path: Path, known: Any, really: Callable[..., bool] = clean) -> bool:
        if path == first:
            raise PermissionError(13, "Permission denied")
        return really(path, known)

    monkeypatch.setattr(old_transcripts, "clean", refused)
    assert home.start().round() == 1
    assert texts(second) == [CUT]
    assert home.told == [
        f"secrets cannot be removed from {first}: Permission denied; make it writable; the next start tries again"
    ]
    monkeypatch.undo()
    assert home.start().round() == 1
    assert texts(first) == [CUT]


def test_a_home_without_transcripts_has_nothing_to_go_through(home: Home) -> None:
    old = home.start()
    assert old.round() == 0
    assert not old.wanted()


def test_who_reads_on_in_a_file_that_was_gone_through_reads_the_next_lines(folder: Path) -> None:
    said = [entry(f"{number}: https://me:{number % 1000:03}@box") for number in range(4_000)]
    path = store(folder / "sess_1.jsonl", said)
    reader = TranscriptReader()
    assert [line.number for line in reader.page(path, after=3_500, limit=1)] == [3_501]
    assert clean(path)
    (line,) = reader.page(path, after=3_500, limit=1)
    assert (line.number, line.text) == (3_501, f"3500: https://me:{CUT}@box")


@pytest.mark.long
def test_an_engine_goes_through_those_of_its_home_when_it_starts(tmp_path: Path) -> None:
    home = EngineHome.locate(tmp_path / "home")
    path = store(home.transcripts / "sess_1.jsonl", [entry(THEIRS)])
    engine = open_engine(home)
    try:
        until(lambda: texts(path) == [CUT], 60)  # what its own thread asks is not asked from here, too
    finally:
        engine.close()

"""Transcripts of other agents (SPEC 4.5): each turn is imported once, and none of this engine's own sessions. Lines of
JSON as memories (SPEC 9.8)."""

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.engine import Engine
from engine.memory.importing import Importer, read_json_lines
from engine.model import RETENTION_BY_KIND, Retention
from engine.services.autonomy import find_last_operator_activity
from engine.services.prediction import find_last_workspace_activity
from engine.storage.database import Database
from tests.memory.stand_in_work import StandInWork
from tests.support import MONDAY_MORNING
from tests.support.repository import Repository

SECRET = "sk-" + "a1" * 15


def make_json_line(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


def make_claude_line(number: int, speaker: str, text: str, **more: Any) -> str:
    """A turn as Claude Code writes it."""
    message = {"role": speaker, "content": [{"type": "text", "text": text}]}
    fields = {"type": speaker, "uuid": f"u{number}", "sessionId": "s1", "cwd": "/home/me/shop", "message": message}
    return make_json_line(**fields | {"timestamp": "2026-01-05T09:30:00Z"} | more)


CODEX_TURN = make_json_line(
    timestamp="2026-01-05T09:30:00Z",
    type="response_item",
    payload={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
)


def make_importer(
    database: Database,
    work: StandInWork,
    folders: Sequence[Path],
    *,
    is_own_folder: Callable[[str], bool] = lambda folder: False,
    report: Callable[[str, str], None] = lambda where, problems: None,
) -> Importer:
    return Importer(
        database, work.remember, lambda: list(map(str, folders)), find_workspace=lambda folder: folder,
        is_own_folder=is_own_folder, secrets=tuple, report=report,
    )  # fmt: skip


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """A transcript with a line that is broken, two that say nothing, and one that is not complete yet."""
    file = tmp_path / "projects/shop/s1.jsonl"
    file.parent.mkdir(parents=True)
    tool_call = {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash", "input": {}}]}
    file.write_text(
        make_claude_line(1, "user", "Fix the parser")
        + "{broken\n"
        + make_claude_line(2, "assistant", "x", message=tool_call)
        + make_json_line(type="summary", summary="x")
        + make_claude_line(3, "assistant", f"The key is {SECRET}")
        + make_claude_line(4, "user", "half a li")[:-1]
    )
    return file


def test_turns_are_remembered_with_their_speaker_and_place_and_without_secrets(transcript: Path, database: Database):
    work = StandInWork()
    assert make_importer(database, work, [transcript.parents[1]]).run() == 2
    turn = work.remembered["claude-code:s1:u1"]
    assert (turn.speaker, turn.session, turn.workspace) == ("user", "claude-code:s1", "/home/me/shop")
    assert turn.source.endswith("s1.jsonl:1")
    assert turn.retention is None
    assert RETENTION_BY_KIND[turn.kind] == Retention.MONTH
    assert SECRET not in work.remembered["claude-code:s1:u3"].text


def test_bad_lines_and_folders_are_named(transcript: Path, tmp_path: Path, database: Database):
    reports = []
    folders = [transcript.parents[1], tmp_path / "none"]
    make_importer(database, StandInWork(), folders, report=lambda where, problems: reports.append(problems)).run()
    assert "s1.jsonl line 2: not JSON" in reports[0]
    assert "is not a folder" in reports[0]


def test_a_turn_is_imported_once_and_only_when_it_is_complete(transcript: Path, database: Database):
    work = StandInWork()
    importer = make_importer(database, work, [transcript.parents[1]])
    assert importer.run() == 2
    assert importer.run() == 0
    transcript.write_text(transcript.read_text() + "\n" + make_claude_line(5, "user", "and then?"))
    assert importer.run() == 2


def test_our_own_sessions_are_not_read_and_a_folder_that_is_named_once_counts(tmp_path: Path, database: Database):
    (tmp_path / "ours.jsonl").write_text(make_claude_line(1, "user", "Do it", cwd="/ours/ses_1"))
    file, head = tmp_path / "rollout-1.jsonl", make_json_line(type="session_meta", payload={"cwd": "/home/me/shop"})
    file.write_text(head)
    work = StandInWork()
    importer = make_importer(database, work, [tmp_path], is_own_folder=lambda folder: folder.startswith("/ours"))
    assert importer.run() == 0
    file.write_text(head + CODEX_TURN)
    assert importer.run() == 1
    assert [turn.workspace for turn in work.remembered.values()] == ["/home/me/shop"]


# In a whole engine


def test_a_conversation_elsewhere_is_a_sign_of_the_operator_and_no_write(
    shop_engine: Engine, repository: Repository, tmp_path: Path
):
    file, at = tmp_path / "projects/s1.jsonl", MONDAY_MORNING - timedelta(minutes=3)
    file.parent.mkdir()
    file.write_text(make_claude_line(1, "user", "hello", cwd="/elsewhere"))
    os.utime(file, (at.timestamp(), at.timestamp()))
    before = find_last_operator_activity(shop_engine)
    shop_engine.settings.set("memory.transcripts", [str(file.parent)])
    assert before != at
    assert find_last_operator_activity(shop_engine) == at
    assert find_last_workspace_activity(shop_engine, [str(repository.path)]) == before


# Lines of JSON


AT_NOON = (
    "2023-05-08T14:00:00+02:00",
    "12:00 pm on 8 May, 2023",
    "2023/05/08 (Mon) 12:00",
    1683547200,
    "1683547200000",
    "Mon, 8 May 2023 12:00:00 GMT",
)


def test_a_line_has_its_time_in_utc_or_none_if_it_cannot_be_read():
    lines = [make_json_line(text="a", timestamp=time) for time in (*AT_NOON, "8 May", 1e300)]
    items, [problem, _] = read_json_lines(lines, first=1, source="f")
    assert [item.at for item in items] == [*[datetime(2023, 5, 8, 12, tzinfo=UTC)] * len(AT_NOON), None, None]
    assert problem == (7, "timestamp '8 May' is not a time such as 2026-01-05T14:12:30Z; stored without its time", True)


@given(st.text())
def test_no_line_raises(line: str):
    read_json_lines([line], first=1, source="f")

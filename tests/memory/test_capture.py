"""What is taken out of what agents say, and what is not (SPEC 4.4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.memory.capture_rules import MAX_LENGTH, MIN_LENGTH, capture, classify, corrected_by
from engine.memory.captures import Captures
from engine.memory.transcript_import import Importer
from engine.model import RETENTION_BY_KIND, Retention
from engine.model.agent_turns import MAX_LINE_BYTES, read_turn
from engine.storage.database import Database
from tests.memory.fake_work import FakeWork, view


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("We decided to use SQLite for the queue.", "decision"),
        ("I've chosen to keep the old parser.", "decision"),
        ("Decision: the API stays on version 2.", "decision"),
        ("From now on, migrations are written by hand.", "decision"),
        ("We ruled out Redis because it needs a server.", "decision"),
        ("We're going with the streaming parser.", "decision"),
        ("It was agreed to drop Python 3.10.", "decision"),
        ("We chose to cache it because it could save time.", "decision"),
        ("The service listens on port 8000.", "fact"),
        ("The settings are stored in config.toml.", "fact"),
        ("Always run the linter before committing.", "fact"),
        ("The owner prefers small commits.", "fact"),
        ("Note that the tests need a database.", "fact"),
        ("Fact: the build takes nine minutes.", "fact"),
        ("Redis runs on the staging host only.", "fact"),
        ("Actually, the port is 8001.", "correction"),
        ("I was wrong about the port, it is 8001.", "correction"),
        ("Correction: the limit is 20 requests.", "correction"),
        ("The worker no longer uses threads.", "correction"),
        ("Contrary to what I said, the file is written twice.", "correction"),
    ],
)
def test_what_is_stated_is_taken(sentence: str, kind: str) -> None:
    assert classify(sentence) == kind


@pytest.mark.parametrize(
    "sentence",
    [
        "Should we use SQLite for the queue?",
        "Have we decided to use SQLite for the queue?",
        "If it is slow, we decided to use a cache.",
        "We could go with SQLite for the queue.",
        "Perhaps the service listens on port 8000.",
        "I think the service uses SQLite.",
        "We have not decided on the database yet.",
        "We need to decide on a database for it.",
        "Suppose the service listens on port 8000.",
        "Let me look at how the service uses SQLite.",
        "I'll use grep to find the parser.",
        "Now the service uses the new parser.",
        "The tests are currently expected to fail.",
        'The mail says "we decided to move to Postgres" somewhere.',
        "`the service listens on port 8000`",
        "return the value, which must be positive;",
        "Done, all of it.",
        "It works well now.",
        "The weather is nice in Rome.",
    ],
)
def test_what_is_asked_supposed_planned_or_quoted_is_not(sentence: str) -> None:
    assert classify(sentence) is None


def test_length_has_bounds() -> None:
    base = "The service uses "
    assert classify(base + "x" * (MAX_LENGTH - len(base) - 1) + ".") == "fact"
    assert classify(base + "x" * (MAX_LENGTH - len(base)) + ".") is None
    short = "We use a b c."
    assert len(short) > MIN_LENGTH


def test_code_block_quotes_and_tables_are_left_out() -> None:
    text = """Here it is:

```python
# Decision: we keep the old parser.
```

> We decided to drop Redis.

| Decision: we keep the table. |

    Decision: indented code is not prose.

- We decided to keep
  the old parser for good.
"""
    found = capture(list(enumerate(text.split("\n"), 1)))
    assert [(one.text, one.line) for one in found] == [("We decided to keep the old parser for good.", 13)]


def test_a_sentence_with_a_secret_is_not_taken() -> None:
    key = "sk-" + "a1" * 15
    assert capture([(1, f"Note that the service uses {key} to sign in.")]) == []
    assert capture([(1, "Note that the service uses hunter2hunter2 to sign in.")], secrets=["hunter2hunter2"]) == []


def test_output_counts_only_where_it_says_what_it_is() -> None:
    assert capture([(1, "The service listens on port 8000.")], output=True) == []
    assert capture([(1, "Decision: the port stays 8000 for now.")], output=True)[0].kind == "decision"


def test_tags_name_topics_and_files() -> None:
    (one,) = capture([(1, "The schema is defined in engine/storage/rows.py by hand.")])
    assert one.tags == ("database", "engine/storage/rows.py")


@given(st.text())
def test_any_text_is_read_without_harm(text: str) -> None:
    for one in capture(list(enumerate(text.split("\n"), 1))):
        assert one.line <= text.count("\n") + 1
        assert len(one.text) <= MAX_LENGTH


@given(st.lists(st.sampled_from(["```", "text", "", "> quote", "- item", "# head", "    code", "Decision: a b c d."])))
def test_lines_of_sentences_are_lines_of_the_text(lines: list[str]) -> None:
    for one in capture(list(enumerate(lines, 1))):
        assert lines[one.line - 1].endswith("Decision: a b c d.")


def test_a_correction_finds_what_it_corrects() -> None:
    earlier = [("a", "The service listens on port 8000"), ("b", "Always run the linter")]
    assert corrected_by("Actually, the service listens on port 8001", earlier) == "a"
    assert corrected_by("Actually, nothing of the kind happened", earlier) == ""
    assert corrected_by("The service listens on port 8000!", earlier) == ""  # it says the same


class TestStoring:
    @pytest.fixture
    def work(self) -> FakeWork:
        work = FakeWork()
        work.add(
            view(),
            ("say", "I read the parser."),
            ("say", "We decided to keep the old parser."),
            ("output", "The service listens on port 9999."),
            ("reply", "I prefer small commits with a reason."),
            ("note", "Decision: it ran in a worktree of its own."),
        )
        return work

    @pytest.fixture
    def captures(self, database: Database, work: FakeWork) -> Captures:
        return Captures(database, work, work.remember)

    def test_it_is_kept_with_its_source_and_remembered(self, captures: Captures, work: FakeWork) -> None:
        captures.capture_session("session_1")
        found = captures.of_session("session_1")
        assert [(one.kind, one.source) for one in found] == [
            ("decision", "session_1:2"),
            ("fact", "session_1:4"),
            ("decision", "session_1:5"),
        ]
        memory = work.remembered[found[0].id]
        assert (memory.kind, memory.source, memory.agent) == ("decision", "session_1:2", "backend_builder")
        assert "captured" in memory.tags

    def test_another_session_that_says_the_same_is_counted(self, captures: Captures, work: FakeWork) -> None:
        captures.capture_session("session_1")
        work.add(view("session_2"), ("say", "We decided to keep the old parser!"))
        captures.capture_session("session_2")
        captures.capture_session("session_2")
        (one,) = captures.entries(words="old parser")
        assert (one.seen, one.session) == (2, "session_1")

    def test_pages_and_counts(self, captures: Captures, clock: FakeClock) -> None:
        captures.capture_session("session_1")
        newest = captures.entries(limit=2)
        older = captures.entries(before=newest[-1].id)
        assert len(newest) + len(older) == 3
        assert captures.count() == (3, newest[0].at)
        assert len(captures.between(clock.now(), clock.now() + timedelta(seconds=1))) == 3
        assert captures.between(clock.now() + timedelta(seconds=1), clock.now() + timedelta(days=1)) == []


# -- other agents' transcripts


def claude(number: int, speaker: str, text: str, **more: Any) -> str:
    line = {
        "type": speaker,
        "uuid": f"u{number}",
        "sessionId": "s1",
        "cwd": "/home/me/shop",
        "timestamp": "2026-01-05T09:30:00Z",
        "message": {"role": speaker, "content": [{"type": "text", "text": text}]},
    }
    return json.dumps(line | more) + "\n"


def importer_of(
    database: Database,
    work: FakeWork,
    folders: Callable[[], Sequence[str]],
    *,
    ours: Callable[[str], bool] = lambda folder: False,
    report: Callable[[str, str], None] = lambda where, problems: None,
) -> Importer:
    return Importer(
        database, work.remember, folders, workspace_of=lambda folder: folder, ours=ours, secrets=tuple, report=report
    )


class TestImporting:
    def test_turns_come_in_once_and_bad_lines_are_named(self, tmp_path: Path, database: Database) -> None:
        folder = tmp_path / "projects/shop"
        folder.mkdir(parents=True)
        file = folder / "s1.jsonl"
        tool = {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash", "input": {}}]}
        file.write_text(
            claude(1, "user", "Fix the parser")
            + "{broken\n"
            + claude(2, "assistant", "x", message=tool)
            + json.dumps({"type": "summary", "summary": "x"})
            + "\n"
            + claude(3, "assistant", "The key is sk-" + "a1" * 15)
            + claude(4, "user", "half a li")[:-1]
        )
        work = FakeWork()
        folders = [str(tmp_path / "projects"), str(tmp_path / "none")]
        reports: list[str] = []
        importer = importer_of(database, work, lambda: folders, report=lambda where, problems: reports.append(problems))
        assert importer.run() == 2
        assert "s1.jsonl line 2: not JSON" in reports[0]
        assert "is not a folder" in reports[0]
        first = work.remembered["claude-code:s1:u1"]
        assert (first.speaker, first.session, first.workspace) == ("user", "claude-code:s1", "/home/me/shop")
        assert first.source.endswith("s1.jsonl:1")
        assert first.retention is None  # as its kind: for a month
        assert RETENTION_BY_KIND[first.kind] is Retention.MONTH
        assert "a1a1" not in work.remembered["claude-code:s1:u3"].text
        times = work.times
        assert importer.run() == 0
        assert work.times == times
        file.write_text(file.read_text() + "\n" + claude(5, "user", "and then?"))
        assert importer.run() == 2

    def test_codex_is_read_too(self) -> None:
        payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        line = json.dumps({"timestamp": "2026-01-05T09:30:00Z", "type": "response_item", "payload": payload}).encode()
        turn = read_turn(line, "rollout-1")
        assert turn is not None
        assert (turn.agent, turn.session, turn.text) == ("codex", "codex:rollout-1", "Hello")

    def test_our_own_sessions_are_not_read_and_a_folder_said_once_counts(
        self, tmp_path: Path, database: Database
    ) -> None:
        (tmp_path / "ours.jsonl").write_text(claude(1, "user", "Do it", cwd="/ours/ses_1"))
        payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        meta = json.dumps({"type": "session_meta", "payload": {"cwd": "/home/me/shop"}}) + "\n"
        file = tmp_path / "rollout-1.jsonl"
        file.write_text(meta)
        work = FakeWork()
        importer = importer_of(database, work, lambda: [str(tmp_path)], ours=lambda folder: folder.startswith("/ours"))
        assert importer.run() == 0
        file.write_text(meta + json.dumps({"type": "response_item", "payload": payload}) + "\n")
        assert importer.run() == 1
        assert [one.workspace for one in work.remembered.values()] == ["/home/me/shop"]

    @pytest.mark.parametrize(
        "line", [b"[]", b"nope", b"x" * (MAX_LINE_BYTES + 1), b'{"type": "user", "message": 3}', b'"text"']
    )
    def test_what_is_malformed_is_said(self, line: bytes) -> None:
        with pytest.raises(ValueError):
            read_turn(line, "s")

"""Conversations with other agents, as they are read from transcripts: open questions, and when one grew last (SPEC 2.1,
2.2)."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.prediction.threads import Threads, find_final_question
from tests.conftest import MONDAY_MORNING as NOW

SHOP = "/home/me/shop"


def make_claude_line(speaker: str, text: str, **fields: Any) -> str:
    """A line of a transcript of Claude Code with these other fields."""
    message = {"role": speaker, "content": [{"type": "text", "text": text}]}
    stamp = (NOW - timedelta(minutes=5)).isoformat()
    line = {"type": speaker, "uuid": text, "sessionId": "s1", "cwd": SHOP, "timestamp": stamp, "message": message}
    return json.dumps(line | fields) + "\n"


class Transcripts:
    """A folder of transcripts of other agents."""

    def __init__(self, folder: Path):
        self.folder, self.clock = folder, FakeClock(NOW)
        self.threads = Threads(
            lambda: [str(folder)],
            self.clock,
            is_ours=lambda folder: folder.startswith("/ours"),
            secrets=lambda: ["hunter2-hunter2"],
        )

    def write(self, text: str, name: str = "s1", ago: timedelta = timedelta(minutes=5)) -> Path:
        """Write a transcript that grew some time `ago`; returns its path."""
        path = self.folder / "projects" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, ((NOW - ago).timestamp(),) * 2)
        self.clock.advance(timedelta(seconds=6))
        return path


@pytest.fixture
def transcripts(tmp_path: Path) -> Transcripts:
    return Transcripts(tmp_path)


@pytest.mark.parametrize(
    "text, question",
    [
        ("Done. Shall I also migrate the tests?", "Shall I also migrate the tests?"),
        ("Two ways:\n1. keep it\n2. drop it\n\n**Which one do you want?**", "Which one do you want?"),
        ("Why did it fail? Because of the date.", ""),
        ("All green.", ""),
    ],
)
def test_the_question_that_a_text_ends_with(text: str, question: str):
    assert find_final_question(text) == question


def test_an_open_question_is_found_with_what_it_is_about(transcripts: Transcripts):
    transcripts.write(
        make_claude_line("user", "Add the cart")
        + make_claude_line("assistant", "Added. Shall I use hunter2-hunter2 for the tests?")
    )
    [thread] = transcripts.threads.read_newest(SHOP)
    assert (thread.agent, thread.about, thread.unanswered) == ("Claude Code", "Add the cart", False)
    assert thread.question.startswith("Shall I use")
    assert "hunter2-hunter2" not in thread.question
    assert thread.at == NOW - timedelta(minutes=5)
    assert transcripts.threads.read_newest("/home/me/blog") == []


def test_the_folder_of_codex_is_that_of_its_first_line(transcripts: Transcripts):
    meta = {"type": "session_meta", "payload": {"id": "x", "cwd": SHOP}}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Next?"}]}
    lines = [meta, {"timestamp": NOW.isoformat(), "type": "response_item", "payload": message}]
    transcripts.write("".join(json.dumps(line) + "\n" for line in lines), "rollout-1")
    [thread] = transcripts.threads.read_newest(SHOP)
    assert (thread.agent, thread.session, thread.question) == ("Codex", "codex:rollout-1", "Next?")


def test_the_last_growth_is_not_that_of_our_own_sessions(transcripts: Transcripts):
    assert transcripts.threads.find_last_growth() is None
    transcripts.write(make_claude_line("user", "hello"), ago=timedelta(hours=3))
    transcripts.write(make_claude_line("user", "hello", cwd="/ours/worktree"), "s2", ago=timedelta(minutes=1))
    assert transcripts.threads.find_last_growth() == NOW - timedelta(hours=3)
    transcripts.write(make_claude_line("user", "and more"), ago=timedelta(minutes=2))
    assert transcripts.threads.find_last_growth() == NOW - timedelta(minutes=2)

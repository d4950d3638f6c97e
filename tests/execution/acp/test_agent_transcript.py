"""What an agent streams is written in whole, and the command of a call is read from its input."""

from __future__ import annotations

from typing import Any

import pytest
from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.acp.agent_transcript import AgentTranscript, command_of
from engine.model.secrets import redact


@pytest.mark.long
@given(st.lists(st.tuples(st.sampled_from(["say", "thought"]), st.text())))
def test_streamed_chunks_are_written_in_whole(pieces: list[tuple[str, str]]) -> None:
    written: dict[str, str] = {"say": "", "thought": ""}

    def write(kind: str, text: str) -> None:
        written[kind] += text

    transcript = AgentTranscript(write, lambda tool, message: None, redact)
    for kind, text in pieces:
        transcript.add_chunk(kind, schema.TextContentBlock(type="text", text=text))
    transcript.flush()
    for kind in written:
        sent = "".join(text for piece_kind, text in pieces if piece_kind == kind)
        assert "".join(written[kind].split()) == "".join(sent.split())
    assert transcript.message == "".join(text for kind, text in pieces if kind == "say")


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        ({"command": "make test"}, "make test"),
        ({"command": ["bash", "-lc", "make test"]}, "make test"),
        ({"command": ["/bin/sh", "-c", "a && b"]}, "a && b"),
        ({"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ({"cmd": "ls"}, "ls"),
        ({"command": []}, ""),
        ({"command": [1]}, ""),
        ({"path": "x"}, ""),
        ("ls", ""),
        (None, ""),
    ],
)
def test_the_command_is_read_from_the_input_of_a_call(raw: Any, command: str) -> None:
    assert command_of(raw) == command

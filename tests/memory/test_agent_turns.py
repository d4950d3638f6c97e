"""A line of a transcript of another agent: a turn, or a reason why it is none."""

from __future__ import annotations

import pytest

from engine.memory.agent_turns import MAX_LINE_BYTES, read_turn
from tests.memory.test_transcript_import import CODEX_TURN


def test_a_line_of_codex_is_read() -> None:
    turn = read_turn(CODEX_TURN.encode(), "rollout-1")
    assert turn is not None
    assert (turn.agent, turn.session, turn.text) == ("codex", "codex:rollout-1", "Hello")


@pytest.mark.parametrize(
    "line",
    [b"[]", b"nope", b"x" * (MAX_LINE_BYTES + 1), b'{"type": "user", "message": 3}', b'"text"'],
    ids=["list", "no JSON", "too long", "no message", "text"],
)
def test_a_malformed_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_turn(line, "s")

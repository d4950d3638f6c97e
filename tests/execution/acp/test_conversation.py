"""Lines of an agent: which of them are messages of the protocol."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.acp.conversation import parse_message


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"nonsense", b"[1]", b'"x"', b'{"id": true}', b'{"id": "a"}', b'{"method": 1}', b"9" * 5_000]
)
def test_invalid_lines_are_no_messages(line: bytes) -> None:
    assert parse_message(line) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)

MESSAGES = st.dictionaries(st.sampled_from(["id", "method", "result", "error", "params"]), JSON)


@given(st.binary(max_size=200) | (JSON | MESSAGES).map(lambda value: json.dumps(value).encode()))
@settings(max_examples=60, deadline=None)
def test_any_line_parses_to_a_message_or_none(line: bytes) -> None:
    """And what is a message has what the library expects of it."""
    message = parse_message(line)
    if message is None:
        return
    if "method" in message:
        assert isinstance(message["method"], str)
        return
    assert isinstance(message["id"], int)
    if "result" not in message:
        assert isinstance(message["error"], dict)

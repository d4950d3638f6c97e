"""Messages of a coding agent are read whatever they are: any line, texts, commands, options (SPEC 3.8)."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from acp import schema
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.live_session import LiveSession
from engine.execution.runners.acp.agent_transcript import AgentTranscript
from engine.execution.runners.acp.conversation import parse_message
from engine.execution.runners.acp.requests import choose_option, find_command

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.sampled_from(["id", "method", "result", "error", "params"]), JSON)
OPTION_KINDS = st.lists(st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"]), max_size=6)


def make_option(kind: Any) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=f"id-{kind}", name=str(kind), kind=kind)


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"nonsense", b"[1]", b'"x"', b'{"id": true}', b'{"id": "a"}', b'{"method": 1}', b"9" * 5_000]
)
def test_invalid_lines_are_no_messages(line: bytes):
    assert parse_message(line) is None


@given(st.binary(max_size=200) | (JSON | MESSAGES).map(lambda value: json.dumps(value).encode()))
@settings(max_examples=60)
def test_any_line_parses_to_a_valid_message_or_none(line: bytes):
    """A message has the fields that the library reads without looking."""
    message = parse_message(line)
    if message is None:
        return
    if "method" in message:
        assert isinstance(message["method"], str)
        return
    assert isinstance(message["id"], int)
    if "result" not in message:
        assert isinstance(message["error"], dict)


@given(OPTION_KINDS, st.booleans())
def test_the_chosen_option_never_allows_more_than_was_decided(kinds: list[str], allowed: bool):
    chosen = choose_option([make_option(kind) for kind in kinds], allowed=allowed)
    if allowed:
        assert chosen == ("id-allow_once" if "allow_once" in kinds else None)
    else:
        assert chosen is None or chosen.startswith("id-reject")
        assert (chosen is None) == (not any(kind.startswith("reject") for kind in kinds))


@given(st.lists(st.tuples(st.sampled_from(["say", "thought"]), st.text())))
def test_each_chunk_of_text_is_streamed_and_what_is_said_is_the_message(chunks: list[tuple[str, str]]):
    streamed = []
    stream, end_stream = lambda *chunk: streamed.append(chunk), lambda: streamed.append(("the end", ""))
    live = SimpleNamespace(stream=stream, transcript=SimpleNamespace(end_stream=end_stream))
    transcript = AgentTranscript(cast(LiveSession, live))
    for kind, text in chunks:
        transcript.add_chunk(kind, schema.TextContentBlock(type="text", text=text))
    transcript.end_text()
    assert streamed == [*chunks, ("the end", "")]
    assert transcript.message == "".join(text for kind, text in chunks if kind == "say")


@pytest.mark.parametrize(
    "tool_input, command",
    [
        ({"command": "make test"}, "make test"),
        ({"command": ["bash", "-lc", "make test"]}, "make test"),
        ({"command": ["/bin/sh", "-c", "a && b"]}, "a && b"),
        ({"command": ["sh", "-c", 'npm "$0"', "publish"]}, "sh -c 'npm \"$0\"' publish"),
        ({"command": ["git", "commit", "-m", "two words"]}, "git commit -m 'two words'"),
        ({"cmd": "ls"}, "ls"),
        ({"command": []}, ""),
        ({"command": [1]}, ""),
        ({"path": "x"}, ""),
        ("ls", ""),
        (None, ""),
    ],
)
def test_the_command_is_read_from_the_input_of_a_call(tool_input: Any, command: str):
    assert find_command(tool_input) == command

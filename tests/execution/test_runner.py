"""The parts of a conversation, as the X-ray shows them."""

from __future__ import annotations

from engine.execution.runners.runner import assistant_part, operator_part, result_part
from engine.model import SourceKind


def test_parts_of_a_conversation_have_their_source() -> None:
    answer = assistant_part("I look.", [{"name": "read", "arguments": '{"path": "a"}'}], "call_1")
    assert (answer.role, answer.text) == ("assistant", 'I look.\nread({"path": "a"})')
    assert answer.lines[0].source.ref == "call_1"
    assert assistant_part("", [{"name": "read", "arguments": "{no"}], "c").text == "read({no)"
    assert result_part("read", "one\x1b[31m\ntwo", "c").text == "one\ntwo"
    assert operator_part("more", "reply").lines[0].source.kind is SourceKind.OPERATOR
    assert operator_part("tests are red", "heal").lines[0].source.label == "the validation loop"

"""The small pieces of the model runner: failures and pauses, speaking in lines, conversations on disk, messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.message_parts import assistant_part, operator_part, result_part
from engine.execution.runners.model import failures, host_protocol
from engine.execution.runners.model.conversation_store import ConversationStore
from engine.execution.runners.model.failures import MAX_DELAY_S, MAX_RETRIES, MAX_RETRY_AFTER_S
from engine.execution.runners.model.host_protocol import Failure, Kind, Model
from engine.execution.runners.streamed_text import StreamedText
from engine.model import SourceKind
from engine.model.secrets import CUT, redact

AGAIN = {
    Kind.RATE: MAX_RETRIES,
    Kind.SERVER: MAX_RETRIES,
    Kind.CONNECTION: MAX_RETRIES,
    Kind.GONE: 2,
    Kind.SILENT: 1,
    Kind.RUBBISH: 1,
}


@pytest.mark.parametrize("kind", list(Kind))
def test_each_failure_has_words_a_way_out_and_a_number_of_tries(kind: Kind) -> None:
    what, fix = failures.describe_failure(Failure(kind, "so they say", 418), Model("openai", "m", "openai", "http://a"))
    assert "so they say" in what
    assert "(418)" in what
    assert fix
    assert "{" not in what + fix
    tries = AGAIN.get(kind, 0)
    assert all(failures.retry_delay(Failure(kind), tried, 0.5) is not None for tried in range(1, tries + 1))
    assert failures.retry_delay(Failure(kind), tries + 1, 0.5) is None


def test_pauses_double_and_are_spread() -> None:
    pauses = [failures.retry_delay(Failure(Kind.RATE), tried, 0.0) for tried in range(1, 5)]
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert failures.retry_delay(Failure(Kind.RATE), 4, 0.999) == pytest.approx(8.0, abs=0.01)


@given(st.floats(0, 10_000), st.integers(1, MAX_RETRIES), st.floats(0, 0.999))
def test_what_the_provider_asks_for_is_kept_to_or_not_waited_for(asked: float, tried: int, chance: float) -> None:
    pause = failures.retry_delay(Failure(Kind.RATE, retry_after=asked), tried, chance)
    assert (pause is None) == (asked > MAX_RETRY_AFTER_S)
    if pause is not None:
        assert asked <= pause <= max(asked, MAX_DELAY_S)


@pytest.mark.long
@given(st.lists(st.tuples(st.sampled_from(["say", "thought"]), st.text("ab \n", max_size=30)), max_size=20))
def test_nothing_that_is_said_is_lost(pieces: list[tuple[str, str]]) -> None:
    lines: list[tuple[str, str]] = []
    speaking = StreamedText(lambda kind, text: lines.append((kind, text)), redact)
    for kind, text in pieces:
        speaking.add(kind, text)
        speaking.write_sentences()
    speaking.flush()
    for kind in ("say", "thought"):
        heard = "".join(text for one, text in lines if one == kind)
        said = "".join(text for one, text in pieces if one == kind)
        assert heard.replace("\n", "").replace(" ", "") == said.replace("\n", "").replace(" ", "")


def test_a_model_that_pauses_after_each_word_is_heard_in_sentences() -> None:
    lines: list[str] = []
    speaking = StreamedText(lambda kind, text: lines.append(text), redact)
    said = "Decision: we keep the old parser, e.g. for dates. 1. The key is Bearer sk-0123456789abcdefghij"
    for word in said.split():
        speaking.add("say", f"{word} ")
        speaking.write_sentences()
    speaking.flush()
    assert lines[0] == "Decision: we keep the old parser, e.g. for dates. "
    assert "sk-" not in "".join(map(redact, lines)), "no key is torn"
    assert len(lines) == 2


def test_a_key_in_a_stored_conversation_is_not_told_to_the_model_again(tmp_path: Path) -> None:
    histories = ConversationStore(tmp_path)
    histories.begin("sess_1")
    histories.add("sess_1", ['{"content": "use ghp_0123456789abcdefghijABCDEFGHIJ012345"}', '{"b": "ü"}'])
    copy = histories.begin("sess_2", continues="sess_1")
    assert [json.loads(line) for line in copy.read_text().splitlines()] == [{"content": f"use {CUT}"}, {"b": "ü"}]


def test_a_model_never_shows_its_key() -> None:
    assert "secret" not in repr(Model("openai", "m", "openai", "http://a", "sk-secret"))


def test_what_was_said_has_its_source() -> None:
    answer = assistant_part("I look.", [{"name": "read", "arguments": '{"path": "a"}'}], "call_1")
    assert (answer.role, answer.text) == ("assistant", 'I look.\nread({"path": "a"})')
    assert answer.lines[0].source.ref == "call_1"
    assert assistant_part("", [{"name": "read", "arguments": "{no"}], "c").text == "read({no)"
    assert result_part("read", "one\x1b[31m\ntwo", "c").text == "one\ntwo"
    assert operator_part("more", "reply").lines[0].source.kind is SourceKind.OPERATOR
    assert operator_part("tests are red", "heal").lines[0].source.label == "the validation loop"


TEXT = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(TEXT, TEXT | st.integers() | st.none()))
@settings(max_examples=40, deadline=None)
def test_messages_survive_the_pipe(message: dict[str, object]) -> None:
    line = host_protocol.encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert host_protocol.decode(line) == message


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_half_characters_stop_no_message(half: str) -> None:
    assert host_protocol.decode(host_protocol.encode({"text": half})).keys() == {"text"}


def test_a_message_is_an_object() -> None:
    with pytest.raises(ValueError, match="no object"):
        host_protocol.decode(b"[1]\n")

"""The lines of training files (SPEC 8.3), and our own check of files."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.learning.decisions.exporting import (
    Exchange,
    Shape,
    check_preferences,
    format_answer,
    format_exchange,
    format_preference,
    read_preference,
)
from engine.learning.decisions.preferences import Preference

PAIR = Preference(
    7, "workspace: shop\ntime: Monday 09:10", "run the tests → koji-core", "sum up the day → chronicle-hub",
    datetime(2026, 1, 5, 9, 10, tzinfo=UTC), 0.3, 0.72, 0.45,
)  # fmt: skip


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip())


def test_the_plain_format_has_the_fields_of_the_specification() -> None:
    assert json.loads(format_preference(PAIR, Shape.PLAIN)) == {
        "prompt": "workspace: shop\ntime: Monday 09:10",
        "chosen": "run the tests → koji-core",
        "rejected": "sum up the day → chronicle-hub",
        "metadata": {"timestamp": "2026-01-05T09:10:00Z", "confidence_chosen": 0.72, "confidence_rejected": 0.45},
    }


@pytest.mark.parametrize("shape", [Shape.TOGETHER, Shape.OPENAI])
def test_together_and_openai_have_one_assistant_message_on_each_side(shape: Shape) -> None:
    line = json.loads(format_preference(PAIR, shape))
    assert set(line) == {"input", "preferred_output", "non_preferred_output"}
    assert [message["role"] for message in line["input"]["messages"]] == ["system", "user"]
    assert line["preferred_output"] == [{"role": "assistant", "content": PAIR.chosen}]
    assert line["non_preferred_output"] == [{"role": "assistant", "content": PAIR.rejected}]


def test_trl_has_messages_at_the_top_level() -> None:
    line = json.loads(format_preference(PAIR, Shape.TRL))
    assert set(line) == {"prompt", "chosen", "rejected"}
    assert line["prompt"][-1] == {"role": "user", "content": PAIR.context}
    assert line["chosen"] == [{"role": "assistant", "content": PAIR.chosen}]


@given(context=TEXTS, chosen=TEXTS, rejected=TEXTS, shape=st.sampled_from(list(Shape)))
def test_every_format_is_read_as_it_was_written(context: str, chosen: str, rejected: str, shape: Shape) -> None:
    line = format_preference(Preference(1, context, chosen, rejected, PAIR.at), shape)
    assert "\n" not in line
    if chosen == rejected:
        with pytest.raises(ValueError, match="the same"):
            read_preference(line)
    else:
        assert read_preference(line) == (context, chosen, rejected)
        assert check_preferences([line]) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "the line is not an object"),
        ('{"prompt": "a", "chosen": "b", "rejected": " "}', "rejected: "),
        ('{"prompt": "a", "chosen": "b", "rejected": "b"}', "the same"),
        ('{"input": {"messages": [{"role": "user", "content": "a"}]}, "preferred_output": [], '
         '"non_preferred_output": []}', "preferred_output"),
        ('{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}, '
         '{"role": "assistant", "content": "c"}], "rejected": [{"role": "assistant", "content": "d"}]}',
         "chosen"),
        ('{"prompt": [{"role": "assistant", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], '
         '"rejected": [{"role": "assistant", "content": "d"}]}', "end with a user message"),
        (json.dumps({"prompt": "x" * 200_000, "chosen": "b", "rejected": "c"}), "longer than 200000"),
    ],
)  # fmt: skip
def test_a_bad_line_is_reported(line: str, reason: str) -> None:
    [error] = check_preferences([format_preference(PAIR, Shape.PLAIN), line])[:1]
    assert error.startswith("line 2: ")
    assert reason in error


def test_a_repeated_line_and_an_empty_file_are_errors() -> None:
    line = format_preference(PAIR, Shape.PLAIN)
    assert check_preferences([line, line]) == ["line 2: has the same content as line 1"]
    assert check_preferences([]) == ["the file is empty"]
    assert check_preferences(["{"] * 30)[-1] == "and 10 more"


def test_a_conversation_has_a_system_prompt_a_situation_and_an_answer() -> None:
    line = format_exchange(
        Exchange("monday morning", format_answer("run the tests", "koji-core", 0.723, "red yesterday"))
    )
    messages = json.loads(line)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert json.loads(messages[-1]["content"]) == {
        "prompt": "run the tests", "channel": "koji-core", "confidence": 0.72, "reasoning": "red yesterday",
    }  # fmt: skip

"""Which sentences are captured as decisions, facts and corrections, and which are not (SPEC 4.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.capture_rules import MAX_LENGTH, Speaker, capture_sentences, classify_sentence, find_corrected
from tests.support.helpers import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize("sentence, kind", ROWS["stated"])
def test_what_is_stated_is_captured(sentence: str, kind: str):
    assert classify_sentence(sentence) == kind


@pytest.mark.parametrize("sentence", ROWS["not_stated"])
def test_what_is_asked_supposed_planned_or_quoted_is_not_captured(sentence: str):
    assert classify_sentence(sentence) is None


@pytest.mark.parametrize("length, kind", [(MAX_LENGTH, "fact"), (MAX_LENGTH + 1, None)])
def test_a_sentence_has_at_most_400_characters(length: int, kind: str | None):
    assert MAX_LENGTH == 400
    assert classify_sentence("The service uses ".ljust(length - 1, "x") + ".") == kind


@pytest.mark.parametrize(
    "sentence, kind",
    [("We go with a", "decision"), ("I go with a", None), ("We decided to", None)],
    ids=["12 characters", "11 characters", "3 words"],
)
def test_a_sentence_has_at_least_12_characters_and_4_words(sentence: str, kind: str | None):
    assert classify_sentence(sentence) == kind


def test_code_quotes_and_tables_are_left_out():
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
    captured = capture_sentences(enumerate(text.split("\n"), 1))
    assert [(sentence.text, sentence.line) for sentence in captured] == [
        ("We decided to keep the old parser for good.", 13)
    ]


def test_a_sentence_with_a_secret_is_not_captured():
    key = "sk-" + "a1" * 15
    assert capture_sentences([(1, f"Note that the service uses {key} to sign in.")]) == []
    assert (
        capture_sentences([(1, "Note that the service uses hunter2hunter2 to sign in.")], secrets=["hunter2hunter2"])
        == []
    )


@pytest.mark.parametrize(
    "text, kinds",
    [
        ("Decision: the port stays 8000 for now.", ["decision"]),
        ("The service listens on port 8000.", []),
        ("important: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", []),
        ("Note: Cart.java uses or overrides a deprecated API.", []),
    ],
)
def test_output_is_captured_only_with_a_label(text: str, kinds: list[str]):
    assert [capture.kind for capture in capture_sentences([(1, text)], Speaker.PROGRAM)] == kinds


def test_tags_name_topics_and_files():
    (sentence,) = capture_sentences([(1, "The schema is defined in engine/storage/rows.py by hand.")])
    assert sentence.tags == ("database", "engine/storage/rows.py")


@given(st.text())
def test_any_text_is_read_without_harm(text: str):
    for sentence in capture_sentences(enumerate(text.split("\n"), 1)):
        assert sentence.line <= text.count("\n") + 1
        assert len(sentence.text) <= MAX_LENGTH


def test_code_and_comments_are_left_out_and_lines_keep_their_numbers():
    code = ["```", "Always use uv.", "````", "- ```py", "Always use tox.", "  ```"]
    lines = [*code, "<!-- Always", "use nox. -->", "Always run\nthe linter."]
    captured = capture_sentences(enumerate(lines, 7), Speaker.OPERATOR)
    assert [(sentence.text, sentence.line) for sentence in captured] == [("Always run the linter.", 15)]
    assert capture_sentences([]) == []


def test_a_correction_finds_the_statement_that_it_corrects():
    earlier = [("a", "The service listens on port 8000"), ("b", "Always run the linter")]
    assert find_corrected("Actually, the service listens on port 8001", earlier) == "a"
    assert find_corrected("Actually, nothing of the kind happened", earlier) == ""
    assert find_corrected("The service listens on port 8000!", earlier) == ""  # it says the same

"""Which sentences are decisions, facts and corrections (SPEC 4.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.capture_rules import MAX_SENTENCE_CHARS, capture_sentences, classify_sentence
from tests.support import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize("sentence, kind", ROWS["stated"])
def test_what_is_stated_is_captured(sentence: str, kind: str):
    assert classify_sentence(sentence) == kind


@pytest.mark.parametrize("sentence", ROWS["not_stated"])
def test_what_is_asked_supposed_planned_or_quoted_is_not_captured(sentence: str):
    assert classify_sentence(sentence) is None


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


@given(st.text())
def test_any_text_is_read_without_harm(text: str):
    for sentence in capture_sentences(enumerate(text.split("\n"), 1)):
        assert sentence.line <= text.count("\n") + 1
        assert len(sentence.text) <= MAX_SENTENCE_CHARS

"""Token vectors: packed, and compared with those of a question."""

from __future__ import annotations

import numpy
import pytest

from engine.memory.token_vectors import TOKEN_DIMENSIONS, maxsim, pack_tokens


def test_words_are_nearest_to_themselves() -> None:
    chance = numpy.random.default_rng(1)
    question, text = (pack_tokens(chance.normal(size=(rows, 384)).astype(numpy.float32)) for rows in (3, 4))
    assert len(question) == 3 * TOKEN_DIMENSIONS
    scores = maxsim(question, [], [text, question, None])
    assert scores[1] == pytest.approx(1.0, abs=0.02)
    assert scores[0] < scores[1]
    assert scores[2] == 0.0

"""How texts are cut for the embedder."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.memory import passages


@given(st.lists(st.integers(1, 9), max_size=1200))
def test_chunks_cover_the_text_fit_the_embedder_and_overlap(lengths: list[int]) -> None:
    offsets, at = [], 0
    for length in lengths:
        offsets.append((at, at + length))
        at += length
    found = passages.chunks(offsets, at)
    assert found[0][0] == 0
    assert found[-1][1] == at
    for (_, stop), (start, _) in itertools.pairwise(found):
        assert start < stop
    for start, stop in found:
        assert sum(1 for offset in offsets if start <= offset[0] and offset[1] <= stop) <= passages.MAX_TOKENS

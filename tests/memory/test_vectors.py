"""A text is cut into chunks that fit the embedder (SPEC 4.3)."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.memory.vectors import MAX_CHUNK_TOKENS, cut_into_chunks


@given(st.lists(st.integers(1, 9), max_size=1200))
def test_chunks_cover_the_text_fit_the_embedder_and_overlap(lengths: list[int]):
    ends = [0, *itertools.accumulate(lengths)]
    offsets = list(itertools.pairwise(ends))
    chunks = cut_into_chunks(offsets, ends[-1])
    assert chunks[0][0] == 0
    assert chunks[-1][1] == ends[-1]
    for (_, stop), (start, _) in itertools.pairwise(chunks):
        assert start < stop
    for start, stop in chunks:
        assert sum(start <= first and last <= stop for first, last in offsets) <= MAX_CHUNK_TOKENS

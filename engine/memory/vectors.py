"""Searches the vectors of layers C and E.

Few vectors are compared exactly. With many, the index proposes candidates, which are then compared exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.memory.embedding import Embedder, Embedding, NoEmbedder
from engine.memory.index import Index
from engine.memory.store import LAYERS, MemoryStore
from engine.model import Layer

if TYPE_CHECKING:
    from engine.memory.vector_matrix import Near, Vector, VectorMatrix

MAX_EXACT = 20_000
"""Up to this many chunks all vectors are held in memory (30 MB) and compared exactly."""

PAGE = 2_000
"""Vectors that are read at once."""

MAX_QUESTIONS = 256
"""Number of questions whose vectors are kept."""

MIN_SIMILARITY = 0.0
"""The least similarity of candidates. It is less than that of results (`ranking.MIN_RELEVANCE`), because a turn that is
not near may belong to one that is. With 0.25 here, recall@10 of chats would fall by a tenth."""


class NoIndex(Exception):
    """There are too many vectors to compare all of them, and the index cannot search now. The message says why."""


class Vectors:
    """Searches chunks by their vectors. From any thread; no call waits until vectors or the index are complete."""

    def __init__(
        self, store: MemoryStore, index: Index, *, embedder: Callable[[], Embedder], model: Callable[[], str]
    ) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._model = model
        self._embed_cached = lru_cache(MAX_QUESTIONS)(_embed_question)
        self._exact: VectorMatrix | None = None
        self._exact_state = ("", -1)
        """The model and the number of commits at which `_exact` was read."""
        self._exact_lock = threading.Lock()
        self.trouble = ""
        """Why questions cannot be embedded, in words; "" if they can."""

    def embed(self, text: str) -> Embedding | None:
        """The embedding of a question, None if it cannot be made: then `trouble` says why. The latest are kept."""
        try:
            embedding = self._embed_cached(self._embedder(), text)
        except NoEmbedder as error:
            self.trouble = str(error)
            return None
        self.trouble = ""
        return embedding

    def search(
        self, query: Vector, k: int, layers: frozenset[Layer] = LAYERS, min_similarity: float = MIN_SIMILARITY
    ) -> dict[int, float]:
        """The `k` nearest memories with at least `min_similarity`: the similarity by their `seq`, best first.
        Raises `NoIndex`."""
        from engine.memory.vector_matrix import compare_chunks, first_hits

        exact = self._exact_vectors()
        if exact is not None:
            return exact.search(query, k, layers, min_similarity)
        chunks: list[int] = []
        for layer in sorted(layers & LAYERS):
            hits = self._index.search(layer, query.tobytes(), k)
            if hits is None:
                state = self._index.state
                raise NoIndex(f"the index is {state.state}" + (f": {state.message}" if state.message else ""))
            chunks += [chunk_id for chunk_id, distance in hits if 1 - distance / 2 >= min_similarity]
        near = compare_chunks(query, self._store.vectors_of(chunks=chunks))
        return first_hits(((seq, value) for value, _, seq in sorted(near, reverse=True)), k)

    def near(self, query: Vector, seqs: Sequence[int]) -> list[Near]:
        """All chunks of these memories, nearest first. Memories without vectors are left out."""
        from engine.memory.vector_matrix import compare_chunks

        exact = self._exact_vectors()
        near = exact.near(query, seqs) if exact else compare_chunks(query, self._store.vectors_of(seqs=seqs))
        return sorted(near, reverse=True)

    def forget(self) -> None:
        """Vectors were deleted: read those that are held in memory again."""
        with self._exact_lock:
            self._exact, self._exact_state = None, ("", -1)

    def _exact_vectors(self) -> VectorMatrix | None:
        """All vectors, None if they are too many. They are read at the first call; later calls read new ones."""
        from engine.memory.vector_matrix import VectorMatrix

        model, commits = self._model(), self._store.commits  # before reading: the next call reads what is written now
        with self._exact_lock:
            if self._exact_state != (model, commits):
                if self._exact is None or self._exact_state[0] != model:
                    self._exact = VectorMatrix()
                if self._store.has_more_chunks_than(MAX_EXACT):
                    self._exact = None
                else:
                    while page := self._store.vector_page(model, self._exact.last, PAGE):
                        self._exact.add(page)
                self._exact_state = model, commits
            return self._exact


def _embed_question(embedder: Embedder, text: str) -> Embedding:
    return embedder.embed([text], now=True)[0]

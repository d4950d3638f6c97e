"""Searches the vectors of layers C and E.

Few vectors are compared exactly. With many, the index proposes candidates, which are then compared exactly. Vectors are
unit vectors: their similarity is their product, in [-1, 1], and Chroma's squared L2 is 2 - 2 * similarity.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.memory.embedding import Embedder, Embedding, NoEmbedder
from engine.memory.index import Index
from engine.memory.ranking import Near
from engine.memory.store import LAYERS, MemoryStore
from engine.model import Layer

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]


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
        self._exact: _Exact | None = None
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
        self, query: Matrix, k: int, layers: frozenset[Layer] = LAYERS, min_similarity: float = MIN_SIMILARITY
    ) -> dict[int, float]:
        """The `k` nearest memories with at least `min_similarity`: the similarity by their `seq`, best first.
        Raises `NoIndex`."""
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
        near = _rescored(query, self._store.vectors_of(chunks=chunks))
        return _best(((seq, value) for value, _, seq in sorted(near, reverse=True)), k)

    def near(self, query: Matrix, seqs: Sequence[int]) -> list[Near]:
        """All chunks of these memories, nearest first. Memories without vectors are left out."""
        exact = self._exact_vectors()
        near = exact.near(query, seqs) if exact is not None else _rescored(query, self._store.vectors_of(seqs=seqs))
        return sorted(near, reverse=True)

    def forget(self) -> None:
        """Vectors were deleted: read those that are held in memory again."""
        with self._exact_lock:
            self._exact, self._exact_state = None, ("", -1)

    def _exact_vectors(self) -> _Exact | None:
        """All vectors, None if they are too many. They are read at the first call; later calls read new ones."""
        model, commits = self._model(), self._store.commits  # before reading: the next call reads what is written now
        with self._exact_lock:
            if self._exact_state != (model, commits):
                if self._exact is None or self._exact_state[0] != model:
                    self._exact = _Exact()
                if self._store.has_more_chunks_than(MAX_EXACT):
                    self._exact = None
                else:
                    while page := self._store.vector_page(model, self._exact.last, PAGE):
                        self._exact.add(page)
                self._exact_state = model, commits
            return self._exact


def _embed_question(embedder: Embedder, text: str) -> Embedding:
    return embedder.embed([text], now=True)[0]


def _rescored(query: Matrix, chunks: Sequence[tuple[int, int, bytes]]) -> list[Near]:
    """The similarity of chunks, which are given as (id, `seq` of the memory, vector)."""
    import numpy

    chunks = [chunk for chunk in chunks if len(chunk[2]) == query.nbytes]  # not those of a former embedder
    if not chunks:
        return []
    matrix = numpy.frombuffer(b"".join(vector for _, _, vector in chunks), dtype="<f4").reshape(len(chunks), -1)
    near = products(matrix, query).tolist()
    return [(value, chunk_id, seq) for (chunk_id, seq, _), value in zip(chunks, near, strict=True)]


def _best(hits: Iterable[tuple[int, float]], k: int) -> dict[int, float]:
    """The first `k` memories of pairs (`seq`, similarity), which are best first; each memory once."""
    best: dict[int, float] = {}
    for seq, value in hits:
        best.setdefault(seq, value)
        if len(best) == k:
            break
    return best


def products(matrix: Matrix, vector: Matrix) -> Matrix:
    """The product of each row with a vector, in the calling thread. `@` would use several threads that wait for each
    other: on a busy machine that takes ten times as long, and the screen gets no processor."""
    import numpy

    return numpy.asarray(numpy.einsum("ij,j->i", matrix, vector))


class _Exact:
    """All vectors of a model, as the rows of a matrix. Rows are added at the end, and a search uses the rows that were
    there when it began."""

    def __init__(self) -> None:
        import numpy

        self.last = 0
        """The id of the last chunk."""
        self._matrix: Matrix = numpy.empty((0, 1), "<f4")  # with room for rows to come
        self._chunks: list[int] = []
        self._seqs: list[int] = []
        self._is_summary = bytearray()
        self._rows_of: dict[int, list[int]] = {}

    def add(self, page: Sequence[tuple[int, int, Layer, bytes]]) -> None:
        """Add (chunk id, `seq` of the memory, layer, vector) of chunks."""
        import numpy

        start, stop = len(self._chunks), len(self._chunks) + len(page)
        vectors = numpy.frombuffer(b"".join(vector for *_, vector in page), dtype="<f4").reshape(len(page), -1)
        if stop > len(self._matrix):
            matrix = numpy.empty((max(256, 2 * stop), vectors.shape[1]), "<f4")
            matrix[:start] = self._matrix[:start]
            self._matrix = matrix
        self._matrix[start:stop] = vectors
        for row, (chunk, seq, layer, _) in enumerate(page, start):
            self._seqs.append(seq)
            self._is_summary.append(layer is Layer.CONTEXT)
            self._chunks.append(chunk)
            self._rows_of.setdefault(seq, []).append(row)
        self.last = self._chunks[-1]

    def near(self, query: Matrix, seqs: Iterable[int]) -> list[Near]:
        """All chunks of these memories, in no order."""
        rows = [row for seq in seqs for row in self._rows_of.get(seq, ())]
        near = products(self._matrix[rows], query).tolist() if rows else []
        return [(value, self._chunks[row], self._seqs[row]) for value, row in zip(near, rows, strict=True)]

    def search(self, query: Matrix, k: int, layers: frozenset[Layer], min_similarity: float) -> dict[int, float]:
        """As `Vectors.search`."""
        import numpy

        size = len(self._chunks)
        if not size:
            return {}
        near = products(self._matrix[:size], query)
        if not layers >= LAYERS:
            is_summary = numpy.frombuffer(bytes(self._is_summary[:size]), bool)
            near[is_summary != (Layer.CONTEXT in layers)] = -numpy.inf
        rows = numpy.flatnonzero(near >= min_similarity)
        rows = rows[numpy.argsort(-near[rows], kind="stable")]
        return _best(((self._seqs[row], float(near[row])) for row in rows), k)

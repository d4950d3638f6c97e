"""Dense search: by exact vectors where there are few, else by the index, with its candidates rescored exactly.

Vectors are unit vectors, so that similarity is their product in [-1, 1], and Chroma's squared L2 is 2 - 2 * similarity.
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
"""Chunks up to which all vectors are held in memory and compared exactly (30 MB)."""

PAGE = 2_000
MAX_QUESTIONS = 256
"""Vectors of questions that are kept."""

MIN_SIMILARITY = 0.0
"""Similarity of candidates: less than the limit of what is returned (`ranking.MIN_RELEVANCE`), since a turn may belong
to one that is near. Keeping to 0.25 here takes a tenth of recall@10 from chats."""


class NoIndex(Exception):
    """There are too many vectors to compare all, and the index cannot search now; in words."""


class Vectors:
    """Dense search over chunks. From any thread; no call waits for what is being built."""

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
        """The model and the commits of which `_exact` was read."""
        self._exact_lock = threading.Lock()
        self.trouble = ""
        """Why questions cannot be embedded, in words; "" when they can."""

    def embed(self, text: str) -> Embedding | None:
        """A question as the embedder reads it; None when it cannot work: `trouble` says why. The latest are kept."""
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
        """The `k` nearest memories with `min_similarity`, by number, best first, with their similarity. Raises
        `NoIndex`."""
        exact = self._exact_vectors()
        if exact is not None:
            return exact.search(query, k, layers, min_similarity)
        chunks: list[int] = []
        for layer in sorted(layers & LAYERS):
            hits = self._index.search(layer, query.tobytes(), k)
            if hits is None:
                state = self._index.state
                raise NoIndex(f"the index is {state.state}" + (f": {state.message}" if state.message else ""))
            chunks += [number for number, distance in hits if 1 - distance / 2 >= min_similarity]
        near = _rescored(query, self._store.vectors_of(chunks=chunks))
        return _best(((seq, value) for value, _, seq in sorted(near, reverse=True)), k)

    def near(self, query: Matrix, seqs: Sequence[int]) -> list[Near]:
        """How near all chunks of these memories are, nearest first. Memories without vectors are left out."""
        exact = self._exact_vectors()
        near = exact.near(query, seqs) if exact is not None else _rescored(query, self._store.vectors_of(seqs=seqs))
        return sorted(near, reverse=True)

    def forget(self) -> None:
        """Vectors were deleted: read anew what is held in memory."""
        with self._exact_lock:
            self._exact, self._exact_state = None, ("", -1)

    def _exact_vectors(self) -> _Exact | None:
        """All vectors; read when they are first asked for, and what was added since. None when they are too many."""
        model, commits = self._model(), self._store.commits  # before the look: what is written meanwhile comes next
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
    """(id, number of the memory, vector) of chunks by how near they are."""
    import numpy

    chunks = [chunk for chunk in chunks if len(chunk[2]) == query.nbytes]  # not those of a former embedder
    if not chunks:
        return []
    matrix = numpy.frombuffer(b"".join(vector for _, _, vector in chunks), dtype="<f4").reshape(len(chunks), -1)
    near = products(matrix, query).tolist()
    return [(value, number, seq) for (number, seq, _), value in zip(chunks, near, strict=True)]


def _best(hits: Iterable[tuple[int, float]], k: int) -> dict[int, float]:
    """The first `k` memories of (number, similarity), best first, each once."""
    best: dict[int, float] = {}
    for seq, value in hits:
        best.setdefault(seq, value)
        if len(best) == k:
            break
    return best


def products(matrix: Matrix, vector: Matrix) -> Matrix:
    """The product of each row with a vector, on the thread that asks: `@` would have several threads wait for each
    other, which takes ten times as long on a busy machine, and keeps the cores from the screen."""
    import numpy

    return numpy.asarray(numpy.einsum("ij,j->i", matrix, vector))


class _Exact:
    """All vectors of a model, row by row. Rows are added at the end; a search works on what was there when it began."""

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
        """Add (chunk id, number of the memory, layer, vector) of chunks."""
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
        """How near all chunks of memories are."""
        rows = [row for seq in seqs for row in self._rows_of.get(seq, ())]
        near = products(self._matrix[rows], query).tolist() if rows else []
        return [(value, self._chunks[row], self._seqs[row]) for value, row in zip(near, rows, strict=True)]

    def search(self, query: Matrix, k: int, layers: frozenset[Layer], min_similarity: float) -> dict[int, float]:
        """The `k` nearest memories."""
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

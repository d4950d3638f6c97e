"""Dense search: by exact vectors where there are few, else by the index, with its candidates rescored exactly.

Vectors are unit vectors, so that similarity is their product in [-1, 1], and Chroma's squared L2 is 2 - 2 * similarity.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.memory.embedding import Embedder, NoEmbedder
from engine.memory.index import Index
from engine.memory.store import MemoryStore
from engine.memory.vectorising import NewVector
from engine.model import Layer

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Near = tuple[float, int, int]
    """How near a chunk is, its id, and the number of its memory."""

EXACT_MOST = 20_000
"""Up to so many chunks all vectors are held in memory and compared (30 MB)."""

PAGE = 2_000
QUESTIONS = 256
"""Vectors of questions that are kept."""

CHUNKS_A_HIT = 4
"""At most so many chunks are looked at for each memory that is wanted, since long ones have several that are near."""

CHUNKS_KEPT = 3

BOTH = frozenset({Layer.VECTORS, Layer.CONTEXT})


class Hit(NamedTuple):
    """A memory that was found, by its number, how near its nearest chunk is, and its nearest chunks, at most
    `CHUNKS_KEPT`."""

    seq: int
    similarity: float
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hits:
    """What dense search found, best first, each memory once. `served`: "exact", "chroma", or "" when nothing could
    search; then `words` says why."""

    hits: tuple[Hit, ...]
    served: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """A question as the embedder reads it: its unit vector, what `token_vectors.pack` keeps of its tokens, and those;
    an endpoint tells none."""

    vector: Matrix
    kept: bytes
    tokens: tuple[str, ...]


class Vectors:
    """Dense search over chunks. From any thread; no call waits for what is being built."""

    def __init__(
        self, store: MemoryStore, index: Index, *, embedder: Callable[[], Embedder], model: Callable[[], str]
    ) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._model = model
        self._questions: OrderedDict[tuple[str, str], Read] = OrderedDict()
        self._asking = threading.Lock()
        self._exact: _Exact | None = None
        self._loading = threading.Lock()
        self.trouble = ""
        """Why questions cannot be embedded, in words; "" when they can."""

    def read(self, text: str) -> Read | None:
        """A question as the embedder reads it; None when it cannot work: `trouble` says why. The latest are kept."""
        import numpy

        embedder = self._embedder()
        key = (embedder.name, text)
        with self._asking:
            found = self._questions.get(key)
        if found is None:
            try:
                (made,) = embedder.embed([text], now=True)
            except NoEmbedder as error:
                self.trouble = str(error)
                return None
            found = Read(numpy.frombuffer(made.vector, dtype="<f4"), made.kept, made.tokens)
        self.trouble = ""
        with self._asking:
            self._questions[key] = found
            self._questions.move_to_end(key)
            while len(self._questions) > QUESTIONS:
                self._questions.popitem(last=False)
        return found

    def search(self, query: Matrix, k: int, *, layers: frozenset[Layer] = BOTH, within: float = 2.0) -> Hits:
        """The `k` nearest memories `within` a squared L2. `query` is one vector."""
        exact = self._all()
        if exact is not None:
            return Hits(_by_memory(exact.search(query, k, layers, within), k), "exact")
        found: list[int] = []
        for layer in sorted(layers & BOTH):
            nearest = self._index.search(layer, query.astype("<f4").tobytes(), k)
            if nearest is None:
                state = self._index.state
                return Hits((), "", f"the index is {state.state}" + (f": {state.words}" if state.words else ""))
            found += [number for number, distance in nearest if distance <= within]
        return Hits(_by_memory(_rescored(query, self._store.vectors_of(chunks=found)), k), "chroma")

    def nearest(self, query: Matrix, seqs: Iterable[int]) -> dict[int, Hit]:
        """How near memories are, exactly, by number: each by its best chunk. Those without vectors are left out."""
        exact = self._all()
        near = exact.nearest(query, seqs) if exact is not None else _rescored(query, self._store.vectors_of(seqs=seqs))
        return {hit.seq: hit for hit in _by_memory(near, len(near))}

    def added(self, model: str, vectors: Sequence[NewVector]) -> None:
        """These were stored."""
        with self._loading:
            if self._exact is not None and self._exact.model == model:
                for one in vectors:
                    self._exact.put(one.chunk_id, one.seq, one.layer, one.vector)

    def dropped(self, chunk_ids: Iterable[int]) -> None:
        """These chunks are gone."""
        with self._loading:
            if self._exact is not None:
                self._exact.drop(chunk_ids)

    def _all(self) -> _Exact | None:
        """All vectors, read when they are first asked for; None when they are too many."""
        model = self._model()
        with self._loading:
            if self._exact is None or self._exact.model != model:
                self._exact = None
                if self._store.more_chunks_than(EXACT_MOST):
                    return None
                exact = _Exact(model)
                after = 0
                while page := self._store.vector_page(model, after, PAGE):
                    for chunk_id, seq, layer, vector in page:
                        exact.put(chunk_id, seq, layer, vector)
                    after = page[-1][0]
                self._exact = exact
            elif len(self._exact) > EXACT_MOST:
                self._exact = None
            return self._exact


def _rescored(query: Matrix, chunks: Sequence[tuple[int, int, bytes]]) -> list[Near]:
    """(id, number of the memory, vector) of chunks by how near they are."""
    import numpy

    chunks = [one for one in chunks if len(one[2]) == query.nbytes]  # not those of a former embedder
    if not chunks:
        return []
    matrix = numpy.frombuffer(b"".join(vector for _, _, vector in chunks), dtype="<f4").reshape(len(chunks), -1)
    near = products(matrix, query).tolist()
    return [(value, number, seq) for (number, seq, _), value in zip(chunks, near, strict=True)]


def _by_memory(near: Iterable[Near], k: int) -> tuple[Hit, ...]:
    """The `k` memories that have the nearest chunks, best first."""
    similarity: dict[int, float] = {}
    chunks: dict[int, list[int]] = {}
    for value, number, seq in sorted(near, key=itemgetter(0), reverse=True):
        if seq not in similarity:
            similarity[seq], chunks[seq] = value, [number]
        else:
            chunks[seq].append(number)
    return tuple(
        Hit(seq, value, tuple(chunks[seq][:CHUNKS_KEPT])) for seq, value in itertools.islice(similarity.items(), k)
    )


def products(matrix: Matrix, vector: Matrix) -> Matrix:
    """The product of each row with a vector, on the thread that asks: `@` would have several threads wait for each
    other, which takes ten times as long on a busy machine, and keeps the cores from the screen."""
    import numpy

    return numpy.asarray(numpy.einsum("ij,j->i", matrix, vector))


class _Exact:
    """All vectors. Rows are added at the end; a search works on what was there when it began."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._row: dict[int, int] = {}
        self._rows_of: dict[int, list[int]] = {}
        self._chunks: list[int] = []
        self._seqs: list[int] = []
        self._layers: list[Layer] = []
        self._matrix: Any = None

    def __len__(self) -> int:
        return len(self._row)

    def put(self, chunk_id: int, seq: int, layer: Layer, vector: bytes) -> None:
        import numpy

        new = numpy.frombuffer(vector, dtype="<f4")
        with self._lock:
            if self._matrix is None or len(self._chunks) == len(self._matrix):
                grown = numpy.zeros((max(256, 2 * len(self._chunks)), len(new)), dtype="<f4")
                if self._matrix is not None:
                    grown[: len(self._matrix)] = self._matrix
                self._matrix = grown
            row = self._row.get(chunk_id)
            if row is None:
                row = len(self._chunks)
                self._row[chunk_id] = row
                self._chunks.append(chunk_id)
                self._seqs.append(seq)
                self._layers.append(layer)
                self._rows_of.setdefault(seq, []).append(row)
            self._matrix[row] = new

    def drop(self, chunk_ids: Iterable[int]) -> None:
        """Their rows become zero, which is near to nothing."""
        with self._lock:
            for chunk_id in chunk_ids:
                row = self._row.pop(chunk_id, None)
                if row is not None:
                    self._matrix[row] = 0
                    self._rows_of[self._seqs[row]].remove(row)

    def nearest(self, query: Matrix, seqs: Iterable[int]) -> list[Near]:
        """How near all chunks of memories are."""
        with self._lock:
            matrix = self._matrix
            rows = [row for seq in seqs for row in self._rows_of.get(seq, ())]
        if not rows:
            return []
        near = products(matrix[rows], query).tolist()
        return [(value, self._chunks[row], self._seqs[row]) for row, value in zip(rows, near, strict=True)]

    def search(self, query: Matrix, k: int, layers: frozenset[Layer], within: float) -> list[Near]:
        """The nearest chunks, so many that they should be of `k` memories."""
        import numpy

        with self._lock:
            matrix, size, memories = self._matrix, len(self._chunks), len(self._rows_of)
        if matrix is None:
            return []
        near = products(matrix[:size], query)
        least = 1 - within / 2
        chunks_each = min(CHUNKS_A_HIT, 1 + (size - 1) // max(1, memories))
        most = min(size, chunks_each * k if layers >= BOTH else size)
        best = numpy.argpartition(-near, most - 1)[:most] if most < size else numpy.arange(size)
        best = best[near[best] >= least]
        return [
            (value, self._chunks[row], self._seqs[row])
            for row, value in zip(best.tolist(), near[best].tolist(), strict=True)
            if self._layers[row] in layers
        ]

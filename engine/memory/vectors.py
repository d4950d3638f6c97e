"""Vectors of layers C and E: made in the background, and searched.

They are missing for new memories, after a crash, and for all memories when the embedder changes. A memory is cut into
chunks that fit the embedder, and each gets its context. A turn of a conversation means little alone
("Yes, last week!"): it is embedded behind the turn before it, the date and who speaks.

Where there are few vectors they are compared exactly, else by the index, with its candidates rescored exactly. Vectors
are unit vectors, so that similarity is their product in [-1, 1], and Chroma's squared L2 is 2 - 2 * similarity.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.background import Background
from engine.memory.embedding import Embedder, Embedding, NoEmbedder
from engine.memory.helper import Helper, HelperFailed
from engine.memory.index import Index
from engine.memory.question import MONTHS
from engine.memory.ranking import Near
from engine.memory.store import LAYERS, MemoryStore, NewPassage
from engine.model import Layer, Memory, Refusal
from engine.programs import HelperGone
from engine.storage.database import Database

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]


# -- making

log = logging.getLogger(__name__)

VERSION = 2
"""Changes with whatever here changes the texts that are embedded: then all are embedded again."""

MAX_TOKENS = 96
"""Tokens of a chunk, some sentences: one vector for more of them blurs what a single one says. What is put before it
must fit into the embedder's 256 as well."""

OVERLAP = 16
"""Tokens that a chunk shares with the one before it."""

MAX_CHUNKS = 64
"""Chunks of one memory that get vectors, about 4,000 words; what follows is found by its words alone."""

MAX_CHARACTERS = 40_000
"""Characters of a memory that are cut into chunks."""

PREVIOUS_TURN = 240
"""Characters of the turn before that count, its last ones."""

MAX_MEMORIES = 64
"""Memories whose vectors are made and stored together."""

MAX_PASSAGES = 256
"""Chunks from which a batch is full."""

RETRY_DELAYS_S = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

OFFSETS_TIMEOUT_S = 60.0


def chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretches of a text of `length` characters, given where its tokens begin and end: at most `MAX_TOKENS` each,
    overlapping by `OVERLAP`, together the whole of it, up to `MAX_CHUNKS`."""
    stretches: list[tuple[int, int]] = []
    for first in range(0, max(1, len(offsets) - OVERLAP), MAX_TOKENS - OVERLAP):
        last = first + MAX_TOKENS
        stretches.append((offsets[first][0] if first else 0, offsets[last - 1][1] if last < len(offsets) else length))
    return stretches[:MAX_CHUNKS]


class Vectoriser:
    """One thread that runs while vectors are missing, and waits otherwise."""

    def __init__(
        self,
        database: Database,
        store: MemoryStore,
        helper: Helper,
        *,
        embedder: Callable[[], Embedder],
        on_complete: Callable[[], None],
    ) -> None:
        """`helper` says where tokens begin and end; `on_complete()` is called when no vector is missing any more."""
        self._database = database
        self._store = store
        self._helper = helper
        self._embedder = embedder
        self._on_complete = on_complete
        self._has_new = False
        self._background = Background("clawpy-vectors", self._step)
        self._failures = 0
        self.trouble = ""
        """Why no vectors can be made now, in words; "" when they can."""

    @property
    def model(self) -> str:
        """What rows say that their vectors were made with: the embedder, and how texts are cut for it."""
        return f"{self._embedder().name}/{VERSION}"

    def wake(self) -> None:
        """Something may be missing. Returns at once."""
        self._background.wake()

    def settle(self, timeout: float | None) -> bool:
        """Wait until nothing is missing; False after `timeout` seconds, or when no vectors can be made."""
        self.wake()
        thread = self._background
        thread.wait_for(lambda: thread.closed or bool(self.trouble) or thread.idle, timeout)
        return thread.idle and not self.trouble

    def close(self) -> None:
        """Stop after what is being made. Safe to call twice."""
        self._background.close()

    def _step(self) -> float | None:
        trouble = ""
        try:
            more = self._make_batch()
        except (NoEmbedder, HelperGone, HelperFailed, TimeoutError) as error:
            trouble = str(error) or "memory's helper process does not answer"
        except Refusal as refusal:
            if refusal.code == "engine_closed":
                return None
            trouble = refusal.message
        except Exception as error:
            log.exception("vectors could not be made")
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self.trouble:
            log.warning("no vectors: %s", trouble)
        self.trouble, self._failures = trouble, self._failures + 1 if trouble else 0
        if trouble:
            return RETRY_DELAYS_S[min(self._failures, len(RETRY_DELAYS_S)) - 1]
        return 0.0 if more else None

    def _make_batch(self) -> bool:
        """Make vectors for the oldest that have none; True when there may be more."""
        embedder, model = self._embedder(), self.model
        memories = self._store.pending(model, MAX_MEMORIES, characters=MAX_CHARACTERS)
        previous = self._store.previous_turns([memory.seq for memory in memories])
        by_seq = self._store.by_seq(previous.values())
        parts: list[tuple[Memory, int, int]] = []
        for memory in memories:
            if len(parts) >= MAX_PASSAGES:
                break
            # No token is shorter than a character.
            is_short = len(memory.text) <= MAX_TOKENS
            offsets = [] if is_short else self._helper.call("offsets", memory.text, timeout=OFFSETS_TIMEOUT_S)
            parts += [(memory, start, stop) for start, stop in chunks(offsets, len(memory.text))]
        heads = [
            _head(memory, None if start else by_seq.get(previous.get(memory.seq, 0))) for memory, start, _ in parts
        ]
        texts = [head + memory.text[start:stop] for head, (memory, start, stop) in zip(heads, parts, strict=True)]
        passages: dict[int, list[NewPassage]] = {}
        if parts:
            embeddings = embedder.embed(texts, keep=list(map(len, heads)))
            for (memory, start, stop), embedding in zip(parts, embeddings, strict=True):
                passage = NewPassage(start, stop, embedding.vector, embedding.packed_tokens or None)
                passages.setdefault(memory.seq, []).append(passage)
            self._database.write(lambda tx: self._store.put_passages(tx, model, passages))
        if not parts and self._has_new:
            self._on_complete()
        self._has_new = bool(parts)
        return self._has_new


def _head(memory: Memory, previous: Memory | None) -> str:
    """What stands before a chunk of `memory`, `previous` being the turn before it in its session."""
    before = f"{previous.text[-PREVIOUS_TURN:]} " if previous is not None and previous.text else ""
    who = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {list(MONTHS)[memory.at.month - 1].capitalize()} {memory.at.year}] {who}"


# -- searching

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

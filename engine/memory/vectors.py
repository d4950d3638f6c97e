"""The vectors of layers C and E: a thread makes those that are missing, and searches compare them with questions.

They are missing for new memories, after a crash, and for all memories when the embedder changes. A memory is cut into
chunks that fit the embedder, and each chunk is embedded with its context. A turn of a conversation means little alone
("Yes, last week!"), so the turn before it, the date and the speaker are put before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.background import BackgroundWorker, HelperGone
from engine.frozen import frozen, group_pairs
from engine.memory import VECTOR_LAYERS
from engine.memory.embedding import Embedder, Embedding, NoEmbedder
from engine.memory.helper import Helper, HelperFailed
from engine.memory.index import Index
from engine.memory.question import MONTHS
from engine.memory.store import MemoryStore, NewPassage
from engine.model import Layer, Memory, Refusal
from engine.storage.database import Database

if TYPE_CHECKING:
    from engine.memory.vector_math import NearChunk, Vector, VectorMatrix

log = logging.getLogger(__name__)

CHUNKS_VERSION = 2
"""Must change when the texts that are embedded are made in another way. Then all memories are embedded again."""

MAX_CHUNK_TOKENS = 96
"""Tokens of a chunk, a few sentences. The vector of a longer text says less about each of its sentences. The embedder
takes 256 tokens, so that the context before the chunk fits as well."""

OVERLAP_TOKENS = 16
"""Tokens that a chunk shares with the one before it."""

MAX_CHUNKS = 64
"""Maximum number of chunks of one memory, about 4,000 words. The text after them is found by its words alone."""

MAX_EMBEDDED_CHARS = 40_000
"""Maximum number of characters of a memory that are cut into chunks."""

PREVIOUS_TURN_CHARS = 240
"""Number of characters of the turn before that are put before a chunk: its last ones."""

MEMORIES_PER_BATCH = 64
"""Maximum number of memories in a batch, whose vectors are stored together."""

PASSAGES_PER_BATCH = 256
"""A batch with this many chunks is full."""

RETRY_DELAYS_S = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

OFFSETS_TIMEOUT_S = 60.0
"""Seconds until the helper has split a text into tokens."""

MAX_EXACT_CHUNKS = 20_000
"""Up to this many chunks all vectors are held in memory (30 MB) and compared exactly."""

VECTORS_PER_PAGE = 2_000
"""Vectors that are read at once."""

MAX_QUESTIONS = 256
"""Number of questions whose vectors are kept."""

MIN_SIMILARITY = 0.0
"""The least similarity of candidates. It is less than that of results (`ranking.MIN_RELEVANCE`), because a turn that is
not near may belong to one that is. With 0.25 here, recall@10 of chats would fall by a tenth."""


def cut_into_chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Cut a text of `length` characters into chunks. `offsets` says where its tokens begin and end. A chunk has at most
    `MAX_CHUNK_TOKENS` tokens, and shares `OVERLAP_TOKENS` with the next. Together they are the whole text, up to
    `MAX_CHUNKS`."""
    chunks: list[tuple[int, int]] = []
    for first in range(0, max(1, len(offsets) - OVERLAP_TOKENS), MAX_CHUNK_TOKENS - OVERLAP_TOKENS):
        last = first + MAX_CHUNK_TOKENS
        start = offsets[first][0] if first else 0
        stop = offsets[last - 1][1] if last < len(offsets) else length
        chunks.append((start, stop))
    return chunks[:MAX_CHUNKS]


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
        """`helper` tells where tokens begin and end. `on_complete()` is called when no more vectors are missing."""
        self._database = database
        self._store = store
        self._helper = helper
        self._embedder = embedder
        self._on_complete = on_complete
        self._has_new = False
        self._background = BackgroundWorker("clawpy-vectors", self._step)
        self._failures = 0
        self.problem = ""
        """Why no vectors can be made now, in words; "" if they can."""

    @property
    def model(self) -> str:
        """Identifies how vectors are made now, in the column `model`: the embedder, and the version of this module."""
        return f"{self._embedder().name}/{CHUNKS_VERSION}"

    def wake(self) -> None:
        """Make the vectors that are missing. Returns at once."""
        self._background.wake()

    def settle(self, timeout: float) -> bool:
        """Wait until no vectors are missing; False after `timeout` seconds, or if none can be made."""
        self.wake()
        thread = self._background
        has_ended = thread.wait_for(lambda: thread.is_closed or bool(self.problem) or thread.is_idle, timeout)
        return has_ended and not (thread.is_closed or self.problem)

    def close(self) -> None:
        """Stop after the batch in progress. Safe to call twice."""
        self._background.close()

    def _step(self) -> float | None:
        """Make one batch; returns the seconds until the next step, None to wait for `wake`."""
        problem = ""
        try:
            has_more = self._make_batch()
        except (NoEmbedder, HelperGone, HelperFailed, TimeoutError) as error:
            problem = str(error) or "memory's helper process does not answer"
        except Refusal as refusal:
            if refusal.code == "engine_closed":
                return None
            problem = refusal.message
        except Exception as error:
            log.exception("vectors could not be made")
            problem = f"{type(error).__name__}: {error}"
        if problem and problem != self.problem:
            log.warning("no vectors: %s", problem)
        self.problem, self._failures = problem, self._failures + 1 if problem else 0
        if problem:
            return RETRY_DELAYS_S[min(self._failures, len(RETRY_DELAYS_S)) - 1]
        return 0.0 if has_more else None

    def _make_batch(self) -> bool:
        """Make vectors for the oldest memories without them; True if more may be missing."""
        embedder, model = self._embedder(), self.model
        chunks = self._read_next_chunks(model)
        if chunks:
            texts = [chunk.head + chunk.text for chunk in chunks]
            embeddings = embedder.embed(texts, starts=[len(chunk.head) for chunk in chunks])
            passages = group_pairs(
                (
                    chunk.memory.seq,
                    NewPassage(chunk.start, chunk.stop, embedding.vector, embedding.packed_tokens or None),
                )
                for chunk, embedding in zip(chunks, embeddings, strict=True)
            )
            self._database.write(lambda tx: self._store.put_passages(tx, model, passages))
        elif self._has_new:
            self._on_complete()
        self._has_new = bool(chunks)
        return self._has_new

    def _read_next_chunks(self, model: str) -> list[_Chunk]:
        """The chunks of the oldest memories without vectors of `model`: at least those of one memory, if there is one,
        then until a batch is full."""
        memories = self._store.read_pending(model, MEMORIES_PER_BATCH, characters=MAX_EMBEDDED_CHARS)
        previous = self._store.find_previous_turns([memory.seq for memory in memories])
        turns_before = self._store.read_by_seq(previous.values())
        chunks: list[_Chunk] = []
        for memory in memories:
            if len(chunks) >= PASSAGES_PER_BATCH:
                break
            turn_before = turns_before.get(previous.get(memory.seq, 0))
            chunks += [
                _Chunk(memory, start, stop, _make_head(memory, None if start else turn_before))
                for start, stop in cut_into_chunks(self._find_token_offsets(memory.text), len(memory.text))
            ]
        return chunks

    def _find_token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Where the tokens of a text begin and end. A text of no more characters than a chunk has tokens is not asked
        about, because a token is seldom shorter than a character: a syllable of Korean may be two or three tokens."""
        if len(text) <= MAX_CHUNK_TOKENS:
            return []
        offsets: list[tuple[int, int]] = self._helper.call("find_token_offsets", text, timeout=OFFSETS_TIMEOUT_S)
        return offsets


@frozen
class _Chunk:
    """A chunk of a memory that is to be embedded, and the context that is put before it."""

    memory: Memory
    start: int
    stop: int
    head: str

    @property
    def text(self) -> str:
        """The part of the memory that it is."""
        return self.memory.text[self.start : self.stop]


def _make_head(memory: Memory, previous: Memory | None) -> str:
    """The context before a chunk of `memory`: the end of the turn before it (`previous`), its date and its speaker."""
    before = f"{previous.text[-PREVIOUS_TURN_CHARS:]} " if previous is not None and previous.text else ""
    month = list(MONTHS)[memory.at.month - 1].capitalize()
    speaker = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {month} {memory.at.year}] {speaker}"


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
        self.problem = ""
        """Why questions cannot be embedded, in words; "" if they can."""

    def embed(self, text: str) -> Embedding | None:
        """The embedding of a question, None if it cannot be made: then `problem` says why. The latest are kept."""
        try:
            embedding = self._embed_cached(self._embedder(), text)
        except NoEmbedder as error:
            self.problem = str(error)
            return None
        self.problem = ""
        return embedding

    def search(
        self, query: Vector, k: int, layers: frozenset[Layer] = VECTOR_LAYERS, min_similarity: float = MIN_SIMILARITY
    ) -> dict[int, float]:
        """The similarities of the `k` nearest memories by their `seq`, best first. None is below `min_similarity`.
        Raises `NoIndex`."""
        from engine.memory.vector_math import compare_chunks, select_first_hits

        exact = self._load_exact_vectors()
        if exact is not None:
            return exact.search(query, k, layers, min_similarity)
        chunks: list[int] = []
        for layer in sorted(layers & VECTOR_LAYERS):
            hits = self._index.search(layer, query.tobytes(), k)
            if hits is None:
                state = self._index.state
                raise NoIndex(f"the index is {state.phase}" + (f": {state.message}" if state.message else ""))
            chunks += [chunk_id for chunk_id, distance in hits if 1 - distance / 2 >= min_similarity]
        near = compare_chunks(query, self._store.read_chunks(chunks))
        return select_first_hits(((seq, value) for value, _, seq in sorted(near, reverse=True)), k)

    def find_near(self, query: Vector, seqs: Sequence[int]) -> list[NearChunk]:
        """All chunks of these memories, nearest first. Memories without vectors are left out."""
        from engine.memory.vector_math import compare_chunks

        exact = self._load_exact_vectors()
        near = exact.find_near(query, seqs) if exact else compare_chunks(query, self._store.read_chunks_of(seqs))
        return sorted(near, reverse=True)

    def forget(self) -> None:
        """Vectors were deleted: read those that are held in memory again."""
        with self._exact_lock:
            self._exact, self._exact_state = None, ("", -1)

    def _load_exact_vectors(self) -> VectorMatrix | None:
        """All vectors, None if they are too many. They are read at the first call; later calls read new ones."""
        from engine.memory.vector_math import VectorMatrix

        # Before reading: the next call reads what is written now.
        model, commits = self._model(), self._store.database.commits
        with self._exact_lock:
            if self._exact_state != (model, commits):
                if self._exact is None or self._exact_state[0] != model:
                    self._exact = VectorMatrix()
                if self._store.has_more_chunks_than(MAX_EXACT_CHUNKS):
                    self._exact = None
                else:
                    while page := self._store.read_vector_page(model, self._exact.last_chunk, VECTORS_PER_PAGE):
                        self._exact.add(page)
                self._exact_state = model, commits
            return self._exact


def _embed_question(embedder: Embedder, text: str) -> Embedding:
    return embedder.embed([text], is_question=True)[0]

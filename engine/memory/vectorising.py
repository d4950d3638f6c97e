"""Makes the vectors that are missing, in the background: of what was just remembered, of what a crash left, and of
everything when the embedder changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.background import Background
from engine.memory import passages
from engine.memory.embedding import Embedder, NoEmbedder
from engine.memory.helper import HelperFailed, HelperGone
from engine.memory.store import MemoryStore, NewChunk
from engine.model import Layer, Memory, Refusal
from engine.storage.database import Database

log = logging.getLogger(__name__)

BATCH = 64
"""Memories whose vectors are made and stored together."""

PARTS_MOST = 256
"""Chunks after which such a batch is full."""

PATIENCE = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

Offsets = Callable[[str], Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class NewVector:
    """A vector that was stored."""

    chunk_id: int
    seq: int
    layer: Layer
    vector: bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk on its way: characters `start` to `stop` of a memory, and what stands before them."""

    one: Memory
    start: int
    stop: int
    head: str


class Vectoriser:
    """One thread that runs while vectors are missing, and waits otherwise."""

    def __init__(
        self,
        database: Database,
        store: MemoryStore,
        *,
        embedder: Callable[[], Embedder],
        offsets: Offsets,
        made: Callable[[str, list[NewVector]], None],
    ) -> None:
        """`offsets(text)` are where the tokens of a text lie; `made(model, vectors)` hears of what is stored,
        of nothing when all is made."""
        self._database = database
        self._store = store
        self._embedder = embedder
        self._offsets = offsets
        self._made = made
        self._background = Background("clawpy-vectors", self._step)
        self._failures = 0
        self.trouble = ""
        """Why no vectors can be made now, in words; "" when they can."""

    @property
    def model(self) -> str:
        """What rows say that their vectors were made with: the embedder, and how texts are cut for it."""
        return f"{self._embedder().name}/{passages.VERSION}"

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
        try:
            more = self._some()
            self._tell("")
            return 0.0 if more else None
        except (NoEmbedder, HelperGone, HelperFailed, TimeoutError) as error:
            self._tell(str(error) or "memory's helper process does not answer")
        except Refusal as refusal:
            if refusal.code == "engine_closed":
                return None
            self._tell(refusal.message)
        except Exception as error:
            log.exception("vectors could not be made")
            self._tell(f"{type(error).__name__}: {error}")
        return PATIENCE[min(self._failures, len(PATIENCE)) - 1]

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("no vectors: %s", trouble)
        self._failures = self._failures + 1 if trouble else 0
        self.trouble = trouble

    def _some(self) -> bool:
        """Make vectors for the oldest that have none; True when there may be more."""
        embedder, model = self._embedder(), self.model
        found = self._store.pending(model, BATCH, characters=passages.READ)
        if not found:
            self._made(model, [])
            return False
        parts = self._plan(found)
        texts = [part.head + part.one.text[part.start : part.stop] for part in parts]
        made = embedder.embed(texts, keep=[len(part.head) for part in parts])
        chunks: dict[int, list[NewChunk]] = {part.one.seq: [] for part in parts}
        for part, one in zip(parts, made, strict=True):
            chunks[part.one.seq].append(NewChunk(part.start, part.stop, one.vector, one.kept or None))
        layers = {part.one.seq: part.one.layer for part in parts}
        stored = self._database.write(lambda tx: self._store.put_chunks(tx, model, chunks))
        vectors = {seq: [chunk.vector for chunk in some] for seq, some in chunks.items()}
        self._made(model, [NewVector(number, seq, layers[seq], vectors[seq].pop(0)) for number, seq in stored])
        return True

    def _plan(self, found: Sequence[Memory]) -> list[_Part]:
        known = {one.seq: one for one in found}
        former = self._store.former([one.seq for one in found if one.session])
        known |= self._store.by_seq(number for number in former.values() if number not in known)
        parts: list[_Part] = []
        for one in found:
            if len(parts) >= PARTS_MOST:
                break
            offsets = [] if passages.short(one.text) else self._offsets(one.text)
            before = known.get(former.get(one.seq, 0))
            for start, stop in passages.chunks(offsets, len(one.text)):
                parts.append(_Part(one, start, stop, passages.head(one, None if start else before)))
        return parts

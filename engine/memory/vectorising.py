"""Makes the vectors that are missing, in the background: of what was just remembered, of what a crash left, and of
everything when the embedder changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.background import Background
from engine.memory import passages
from engine.memory.embedding import Embedder, NoEmbedder
from engine.memory.helper import Helper, HelperFailed, HelperGone
from engine.memory.store import MemoryStore, NewChunk
from engine.model import Memory, Refusal
from engine.storage.database import Database

log = logging.getLogger(__name__)

BATCH = 64
"""Memories whose vectors are made and stored together."""

PARTS_MOST = 256
"""Chunks after which such a batch is full."""

PATIENCE = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

OFFSETS_SECONDS = 60.0


class _Part(NamedTuple):
    """A chunk on its way: characters `start` to `stop` of a memory, and what stands before them."""

    of: Memory
    start: int
    stop: int
    head: str


class Vectoriser:
    """One thread that runs while vectors are missing, and waits otherwise."""

    def __init__(
        self,
        database: Database,
        store: MemoryStore,
        helper: Helper,
        *,
        embedder: Callable[[], Embedder],
        made: Callable[[int], None],
    ) -> None:
        """`helper` says where tokens lie; `made(number)` hears of vectors that are stored, 0 when all are made."""
        self._database = database
        self._store = store
        self._helper = helper
        self._embedder = embedder
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
            self._made(0)
            return False
        parts = self._plan(found)
        texts = [part.head + part.of.text[part.start : part.stop] for part in parts]
        chunks: dict[int, list[NewChunk]] = {}
        for part, made in zip(parts, embedder.embed(texts, keep=[len(part.head) for part in parts]), strict=True):
            chunks.setdefault(part.of.seq, []).append(NewChunk(part.start, part.stop, made.vector, made.kept or None))
        self._database.write(lambda tx: self._store.put_chunks(tx, model, chunks))
        self._made(len(parts))
        return True

    def _plan(self, found: Sequence[Memory]) -> list[_Part]:
        known = {memory.seq: memory for memory in found}
        former = self._store.former([memory.seq for memory in found if memory.session])
        known |= self._store.by_seq(number for number in former.values() if number not in known)
        parts: list[_Part] = []
        for memory in found:
            if len(parts) >= PARTS_MOST:
                break
            short = passages.short(memory.text)
            offsets = [] if short else self._helper.call("offsets", memory.text, timeout=OFFSETS_SECONDS)
            before = known.get(former.get(memory.seq, 0))
            for start, stop in passages.chunks(offsets, len(memory.text)):
                parts.append(_Part(memory, start, stop, passages.head(memory, None if start else before)))
        return parts

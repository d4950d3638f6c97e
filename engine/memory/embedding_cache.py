"""A cache of text embeddings for the Twin, which cannot wait for the embedder."""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Sequence

from engine.memory.embedding import NoEmbedder
from engine.memory.memory import MemoryService

log = logging.getLogger(__name__)

MAX_VECTORS = 2_000
"""Embeddings that are kept, the newest; 3 MB."""


class EmbeddingCache:
    """Returns the embeddings that it has at once, and None for the others. Those are made in the background for the
    next call, if memory's helper process is running anyway."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
        self._vectors: OrderedDict[str, bytes] = OrderedDict()
        self._queue: queue.SimpleQueue[Sequence[str] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __call__(self, texts: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            vectors = [self._vectors.get(text) for text in texts]
            missing = [text for text, vector in zip(texts, vectors, strict=True) if vector is None]
            if missing and self._memory.is_embedder_running:
                self._queue.put(missing)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._make, name="clawpy-meanings", daemon=True)
                    self._thread.start()
        return vectors

    def close(self) -> None:
        """Stop the background thread."""
        self._queue.put(None)

    def _make(self) -> None:
        while (texts := self._queue.get()) is not None:
            with self._lock:
                missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            try:
                vectors = self._memory.embed_texts(missing) if missing else []
            except NoEmbedder as error:
                log.info("the Twin compares words only: %s", error)
                continue
            with self._lock:
                self._vectors.update(zip(missing, vectors, strict=True))
                while len(self._vectors) > MAX_VECTORS:
                    self._vectors.popitem(last=False)

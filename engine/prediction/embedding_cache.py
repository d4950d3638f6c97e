"""A cache of text embeddings for the Twin, which cannot wait for the embedder."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence

from engine.background import Background
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
        self._missing: set[str] = set()
        self._lock = threading.Lock()
        self._background = Background("clawpy-meanings", self._make)

    def __call__(self, texts: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            vectors = [self._vectors.get(text) for text in texts]
            if None in vectors and self._memory.is_embedder_running:
                self._missing.update(texts)
                self._background.wake()
        return vectors

    def close(self) -> None:
        """Stop the background thread."""
        self._background.close(0)

    def _make(self) -> None:
        with self._lock:
            missing = [text for text in self._missing if text not in self._vectors]
            self._missing.clear()
        try:
            vectors = self._memory.embed_texts(missing)
        except NoEmbedder as error:
            log.info("the Twin compares words only: %s", error)
            return
        with self._lock:
            self._vectors.update(zip(missing, vectors, strict=True))
            while len(self._vectors) > MAX_VECTORS:
                self._vectors.popitem(last=False)

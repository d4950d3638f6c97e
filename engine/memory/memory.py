"""The service `engine.memory` (SPEC 4): it remembers in layers C and E, and recalls over all layers.

It puts together what the other modules of this package do: the `store` has the rows, the `vectoriser` makes vectors of
them by the embedder that the settings name, the `index` and the `vectors` find them, and the `recaller` asks all
layers. Whoever has something to remember calls `remember`, and whoever makes a prompt calls `recall`. The layers that
need sessions are in `knowledge`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.clock import Clock
from engine.config.settings import SettingsSource
from engine.memory import DEADLINE_S, Recaller
from engine.memory.embedding import TIMEOUT_S, Embedder, Endpoint, EndpointEmbedder, LocalEmbedder
from engine.memory.helper import Helper
from engine.memory.index import ChromaServer, Index, IndexPhase
from engine.memory.search import MemorySearch
from engine.memory.store import MemoryStore
from engine.memory.vectors import MAX_EXACT_CHUNKS, Vectoriser, Vectors
from engine.model import Layer, LayerState, Memory, NewMemory, Recall, RecallQuery, RememberResult
from engine.storage.database import Database

log = logging.getLogger(__name__)


class MemoryService:
    """`engine.memory`. All methods may be called from any thread and take milliseconds, unless they say otherwise."""

    def __init__(
        self,
        database: Database,
        *,
        settings: SettingsSource,
        clock: Clock,
        folder: Path,
        endpoint: Callable[[str], Endpoint | None] = lambda provider: None,
        running: Callable[[], frozenset[str]] = frozenset,
        server: Callable[[], ChromaServer | None] = lambda: None,
        embedder: Embedder | None = None,
    ) -> None:
        """The index is in `folder`, unless `server()` returns a server for it. `endpoint` returns the endpoint of a
        provider of embeddings, `running` the ids of the sessions that are not over. `embedder` replaces the one that
        the settings name."""
        self.database = database
        self._settings = settings
        self.clock = clock
        self._running = running
        self._given_embedder = embedder
        self._is_started = False
        self._helper = Helper()
        self._local = LocalEmbedder(self._helper)
        self._endpoint = endpoint
        self.store = MemoryStore(database, self._on_erased)
        self.vectoriser = Vectoriser(
            database, self.store, self._helper, embedder=self._get_embedder, on_complete=lambda: self.index.wake()
        )
        self.index = Index(
            self.store, self._helper, folder, embedding_model=lambda: self.vectoriser.model, server=server
        )
        self.vectors = Vectors(self.store, self.index, embedder=self._get_embedder, model=lambda: self.vectoriser.model)
        self.search = MemorySearch(database, self.store, self.vectors)
        self.recaller = Recaller([self.search], clock)
        self.read_entries = self.store.read_entries

    # -- remembering

    def remember(self, items: Sequence[NewMemory]) -> RememberResult:
        """Remember `items`. When it returns, they are on disk and found by their words. Vectors follow in the
        background after `start`; without it (an engine that ends with its verb) the next engine makes them. Raises
        `Refusal` as `MemoryStore.remember`."""
        result = self.store.remember(items)
        if result.new and self._is_started:
            self.vectoriser.wake()
        return result

    def settle(self, timeout: float, *, indexed: bool = False) -> bool:
        """Wait until every vector is made. With `indexed`, or if there are too many for exact search, also wait until
        the index contains them. False after `timeout` seconds, or if no vectors can be made."""
        end = time.monotonic() + timeout
        if not self.vectoriser.settle(timeout):
            return False
        if not indexed and not self.store.has_more_chunks_than(MAX_EXACT_CHUNKS):
            return True
        return self.index.wait(max(0.0, end - time.monotonic()))

    def count_missing_vectors(self) -> tuple[int, str]:
        """How many memories have no vectors yet, and why no vectors can be made, "" if they can."""
        return self.store.count_pending(self.vectoriser.model), self.vectoriser.problem

    # -- recalling

    def recall(self, query: RecallQuery, *, deadline: float = DEADLINE_S) -> Recall:
        """Recall from all layers (SPEC 4.4); see `Recaller.recall`."""
        return self.recaller.recall(query, deadline)

    # -- for others that compare texts

    @property
    def is_embedder_running(self) -> bool:
        """Whether the process with the local model runs. This does not start it."""
        return self._helper.pid is not None

    def embed_texts(self, texts: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Unit vectors (float32) of texts by the local model, whatever embedder memory uses; tens of milliseconds for
        each. Raises `NoEmbedder`, also after `timeout_s`."""
        return [embedding.vector for embedding in self._local.embed(texts, timeout=timeout_s)]

    # -- looking

    def describe_layers(self) -> list[LayerState]:
        """The states of layers C and E (SPEC 9.5)."""
        pending = self.store.count_pending(self.vectoriser.model)
        fault = self.vectoriser.problem or self.vectors.problem
        index = self.index.state
        status, message, progress = "ready", "", 1.0
        if fault:
            status, message = "degraded", f"found by words only: {fault}"
        elif pending:
            status, message = "building", f"{pending} without vectors yet"
            progress = max(0.0, 1 - pending / max(1, self.store.count()))
        elif index.phase in (IndexPhase.BUILDING, IndexPhase.DEGRADED):
            status, message, progress = index.phase.value, f"index: {index.message}", index.progress
        return [
            LayerState(layer, *self.store.count_and_newest(layer), status, message, progress)
            for layer in (Layer.VECTORS, Layer.CONTEXT)
        ]

    def find_entry(self, layer: Layer, id: str) -> Memory | None:
        """One entry of layer C or E."""
        memory = self.store.get(id)
        return memory if memory is not None and memory.layer is layer else None

    # -- life

    def start(self) -> None:
        """Continue what an earlier engine left unfinished. Returns at once. If nothing was remembered, nothing
        starts."""
        self._is_started = True
        if self.store.count():
            self.vectoriser.wake()
            self.index.reopen()

    def housekeeping(self) -> None:
        """Delete expired memories (SPEC 4.3), and compare the index with the database (SPEC 4.10)."""
        self.index.request_comparison()
        running = self._running()
        if expired := self.database.write(lambda tx: self.store.expire(tx, running=running)):
            log.info("%d memories have expired", expired)

    def close(self) -> None:
        """Stop what runs in the background. The next start continues it."""
        self._helper.close()
        self.vectoriser.close()
        self.index.close()

    def _get_embedder(self) -> Embedder:
        if self._given_embedder is not None:
            return self._given_embedder
        name = self._settings.current.memory.embedder
        if not name:
            return self._local
        provider, _, model = name.partition(":")
        return EndpointEmbedder(provider, model, self._endpoint)

    def _on_erased(self) -> None:
        self.vectors.forget()
        self.index.request_comparison()

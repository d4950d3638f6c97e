"""The two Chroma collections (SPEC 4.3, 4.5), as the helper process keeps them. Runs there only.

Ids are the numbers of chunks. Vectors are handed in: Chroma neither embeds nor reaches the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import chromadb
import numpy
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings

COLLECTIONS = {"C": "clawpy_memory", "E": "clawpy_agent_memory"}
PAGE = 10_000

KEEP_IN_LOG = 20_000
"""Chroma writes its graph to disk only after so many changes: killed while it does, it may never open again."""


class Chroma:
    """The index of one home."""

    def __init__(self) -> None:
        self._collections: dict[str, Any] = {}

    def open(self, folder: str, stamp: str) -> dict[str, list[int]]:
        """Open or make the index, and say which ids each layer has. Raises ValueError when it was made of other
        vectors than `stamp` says, and whatever Chroma raises when it is damaged or held by another."""
        # It keeps what it once opened by path, and would go on with files that were moved aside since.
        SharedSystemClient.clear_system_cache()
        client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
        found: dict[str, list[int]] = {}
        for layer, name in COLLECTIONS.items():
            one = client.get_or_create_collection(
                name,
                metadata={"stamp": stamp},
                embedding_function=None,
                configuration={"hnsw": {"space": "l2", "sync_threshold": KEEP_IN_LOG}},
            )
            if (one.metadata or {}).get("stamp") != stamp:
                raise ValueError(f"{name} was made of other vectors ({one.metadata})")
            self._collections[layer] = one
            total = one.count()
            ids: list[int] = []
            while len(ids) < total:
                page = self.ids(layer, len(ids), PAGE)
                if not page:
                    raise ValueError(f"{name} counts {total} and holds {len(ids)}")
                ids += page
            found[layer] = ids
        return found

    def ids(self, layer: str, offset: int, limit: int) -> list[int]:
        """A page of the ids that a layer has."""
        return [int(number) for number in self._collections[layer].get(include=[], limit=limit, offset=offset)["ids"]]

    def add(self, layer: str, ids: Sequence[int], vectors: bytes) -> None:
        """Add vectors, or replace them."""
        matrix = numpy.frombuffer(vectors, dtype="<f4").reshape(len(ids), -1)
        self._collections[layer].upsert(ids=[str(number) for number in ids], embeddings=matrix)

    def delete(self, layer: str, ids: Sequence[int]) -> None:
        """Take vectors out; those that are not there are no fault."""
        self._collections[layer].delete(ids=[str(number) for number in ids])

    def query(self, layer: str, vector: bytes, k: int) -> tuple[list[int], list[float]]:
        """The `k` nearest ids and their squared L2, nearest first; fewer when there are fewer."""
        collection = self._collections[layer]
        wanted = numpy.frombuffer(vector, dtype="<f4")
        answer = collection.query(query_embeddings=[wanted], n_results=k, include=["distances"])
        return [int(number) for number in answer["ids"][0]], [float(one) for one in answer["distances"][0]]

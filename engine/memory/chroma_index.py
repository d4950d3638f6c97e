"""The Chroma index of memories: two collections (SPEC 4.3, 4.5), in a folder or on a server.

Ids are the ids of chunks. Chroma gets vectors, so that it neither embeds texts nor uses the network. The package is
imported when the index is first used, which takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from engine.model import Layer

COLLECTIONS = {Layer.VECTORS.value: "clawpy_memory", Layer.CONTEXT.value: "clawpy_agent_memory"}
"""The name of the collection of each layer (C, E)."""

SYNC_THRESHOLD = 20_000
"""Number of changes after which Chroma writes its graph to disk. An index that is killed meanwhile may never open
again, so this is seldom."""

SERVER_TIMEOUT_S = 10.0
"""Maximum time that a server may take for one answer."""


class ServerUnreachable(Exception):
    """The server cannot be reached, or refuses access."""


class ChromaIndex:
    """The index of one home."""

    def __init__(self) -> None:
        self._collections: dict[str, Any] = {}
        self._server = ""

    def open(self, folder: str, stamp: str) -> None:
        """Open or create the index. Raises ValueError if its vectors are of another model than `stamp`, and what Chroma
        raises if it is damaged or used by another process."""
        import chromadb
        from chromadb.config import Settings

        _forget_clients()
        self._server = ""
        settings = Settings(anonymized_telemetry=False)
        self._open_collections(chromadb.PersistentClient(folder, settings=settings), stamp)

    def connect(self, url: str, database: str, token: str, stamp: str, clear: bool) -> None:
        """Open or create the index on a server, in its own database. With `clear` the database is emptied first. Raises
        `ServerUnreachable`, too; so do all later calls."""
        import chromadb
        from chromadb.config import Settings
        from chromadb.errors import NotFoundError

        _forget_clients()
        parts = urlsplit(url)
        self._server = parts.netloc
        secure = parts.scheme == "https"
        settings: dict[str, Any] = {
            "chroma_api_impl": "chromadb.api.fastapi.FastAPI",
            "chroma_server_host": url,
            "chroma_server_http_port": parts.port or (443 if secure else 80),
            "chroma_server_ssl_enabled": secure,
            "chroma_server_headers": {"x-chroma-token": token, "authorization": f"Bearer {token}"} if token else {},
            "anonymized_telemetry": False,
        }
        with self._server_errors():
            admin = chromadb.AdminClient(Settings(**settings))
            _limit_wait(admin)
            try:
                admin.get_database(database)
            except NotFoundError:
                admin.create_database(database)
            client = chromadb.HttpClient(
                host=url,
                port=settings["chroma_server_http_port"],
                ssl=secure,
                settings=Settings(**settings),
                headers=settings["chroma_server_headers"],
                database=database,
            )
            _limit_wait(client)
            for name in COLLECTIONS.values() if clear else ():
                with suppress(NotFoundError):
                    client.delete_collection(name)
            self._open_collections(client, stamp)

    @contextmanager
    def _server_errors(self) -> Iterator[None]:
        """Raise `ServerUnreachable` if the server is lost or refuses access. Its message is not repeated, because it
        may contain the token."""
        import httpx
        from chromadb.errors import AuthorizationError

        try:
            yield
        except httpx.HTTPStatusError as error:
            raise ServerUnreachable(f"{self._server} answers {error.response.status_code}") from None
        except httpx.HTTPError as error:
            raise ServerUnreachable(f"{self._server} cannot be reached ({type(error).__name__})") from None
        except AuthorizationError:
            raise ServerUnreachable(f"{self._server} does not accept the token") from None
        except ValueError as error:
            if "Could not connect" in str(error):
                raise ServerUnreachable(f"{self._server} cannot be reached") from None
            raise

    def _open_collections(self, client: Any, stamp: str) -> None:
        for layer, name in COLLECTIONS.items():
            collection = client.get_or_create_collection(
                name,
                metadata={"stamp": stamp},
                embedding_function=None,
                configuration={"hnsw": {"space": "l2", "sync_threshold": SYNC_THRESHOLD}},
            )
            if (collection.metadata or {}).get("stamp") != stamp:
                raise ValueError(f"{name} was made with other vectors ({collection.metadata})")
            self._collections[layer] = collection

    def ids(self, layer: str, offset: int, limit: int) -> list[int]:
        """A page of the ids that a layer has."""
        with self._server_errors():
            page = self._collections[layer].get(include=[], limit=limit, offset=offset)
        return [int(number) for number in page["ids"]]

    def add(self, layer: str, ids: Sequence[int], vectors: bytes) -> None:
        """Add vectors, or replace them."""
        import numpy

        matrix = numpy.frombuffer(vectors, dtype="<f4").reshape(len(ids), -1)
        with self._server_errors():
            self._collections[layer].upsert(ids=[str(number) for number in ids], embeddings=matrix)

    def delete(self, layer: str, ids: Sequence[int]) -> None:
        """Delete vectors. Ids that do not exist are ignored."""
        with self._server_errors():
            self._collections[layer].delete(ids=[str(number) for number in ids])

    def query(self, layer: str, vector: bytes, k: int) -> list[tuple[int, float]]:
        """The `k` nearest ids and their squared L2, nearest first; fewer if there are fewer."""
        import numpy

        query_vector = numpy.frombuffer(vector, dtype="<f4")
        with self._server_errors():
            answer = self._collections[layer].query(query_embeddings=[query_vector], n_results=k, include=["distances"])
        return [
            (int(number), float(distance))
            for number, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
        ]


def _forget_clients() -> None:
    """Make Chroma open the folder again. It caches clients by path, and would continue to use files that were moved
    aside."""
    from chromadb.api.shared_system_client import SharedSystemClient

    SharedSystemClient.clear_system_cache()


def _limit_wait(client: Any) -> None:
    """Make a client wait at most `SERVER_TIMEOUT_S`. By itself it waits for ever, and has no setting for this."""
    import httpx

    session = getattr(getattr(client, "_server", None), "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = httpx.Timeout(SERVER_TIMEOUT_S)

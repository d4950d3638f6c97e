"""Memory's helper process: runs the local model and the Chroma index, and answers requests. Started by `helper`.

Both hold Python's interpreter lock for long, which would freeze the screen in the engine's process. The helper ends
when its standard input closes, so that it does not outlive its engine.

It has three lanes: questions, for which somebody waits; texts that are remembered, at low priority; and the index,
which answers searches before it adds vectors.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import PriorityQueue
from typing import Any
from urllib.parse import urlsplit

from engine.memory.embedding import MiniLM
from engine.memory.helper import HelperAnswer, HelperRequest
from engine.model import Layer

BULK_THREADS = max(1, min(2, os.cpu_count() or 1))
"""Threads that embed texts to remember."""

BULK_NICE = 10
"""By how much the priority of these threads is lowered."""

MODEL_METHODS = frozenset({"embed_question", "embed_passage", "find_token_offsets"})
"""Methods of the model. All others are methods of the index."""

COLLECTIONS = {Layer.VECTORS.value: "clawpy_memory", Layer.CONTEXT.value: "clawpy_agent_memory"}
"""The name of the collection of each layer (C, E)."""

SYNC_THRESHOLD = 20_000
"""Number of changes after which Chroma writes its graph to disk. An index that is killed meanwhile may never open
again, so this is seldom."""

SERVER_TIMEOUT_S = 10.0
"""Maximum time that a server may take for one answer."""


class RequestLanes:
    """Takes requests from one thread, and answers them in threads of its own."""

    def __init__(self, answer: Callable[[HelperAnswer], None]) -> None:
        self._answer = answer
        model = MiniLM()
        self._questions = self._start_lane(model)
        self._bulk = self._start_lane(model, threads=BULK_THREADS, nice=BULK_NICE)
        self._indexing = self._start_lane(ChromaIndex())

    def submit(self, request: HelperRequest) -> None:
        """Put a request on its lane."""
        lane = self._bulk if request.bulk else self._questions
        (lane if request.method in MODEL_METHODS else self._indexing).put(request)

    def _start_lane(
        self, target: MiniLM | ChromaIndex, *, threads: int = 1, nice: int = 0
    ) -> PriorityQueue[HelperRequest]:
        """Start the threads of a lane; returns its queue."""
        requests: PriorityQueue[HelperRequest] = PriorityQueue()

        def run() -> None:
            if nice and sys.platform == "linux":  # a thread has a priority of its own there; elsewhere the process has
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
            while True:
                request = requests.get()
                try:
                    answer = HelperAnswer(request.number, getattr(target, request.method)(*request.arguments))
                except Exception as error:
                    answer = HelperAnswer(request.number, None, f"{type(error).__name__}: {error}"[:500])
                self._answer(answer)

        for _ in range(threads):
            threading.Thread(target=run, daemon=True).start()
        return requests


def main() -> None:
    """Answer the requests on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    # Two lanes that import numpy at the same time, one of them through Chroma, could get it half imported: Python's
    # import locks prefer that to a deadlock.
    importlib.import_module("numpy.typing")
    write_lock = threading.Lock()

    def send(answer: HelperAnswer) -> None:
        with write_lock:
            pickle.dump(tuple(answer), answers)
            answers.flush()

    lanes = RequestLanes(send)
    while True:
        try:
            request = HelperRequest(*pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)
        lanes.submit(request)


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
        """Open or create the collection of each layer. Raises ValueError if its vectors are of another model."""
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


if __name__ == "__main__":
    main()

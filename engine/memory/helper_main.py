"""Memory's helper process: embeds texts and keeps the Chroma index. Started by `helper`.

Both hold Python's interpreter lock for long, which would freeze the screen. The process ends when its standard input
closes, so that no helper outlives its engine.

Three lanes: questions, which somebody waits for; texts that are remembered, at low priority; and the index, which
answers questions before it takes anything new.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from queue import PriorityQueue
from typing import Any
from urllib.parse import urlsplit

import chromadb
import httpx
import numpy
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import AuthorizationError, NotFoundError

from engine.memory.embedding import MiniLM
from engine.memory.helper import Answer, Request

# The two Chroma collections (SPEC 4.3, 4.5), as the helper process keeps them. Runs there only.
#
# Ids are the numbers of chunks. Vectors are handed in: Chroma neither embeds nor reaches the network.


COLLECTIONS = {"C": "clawpy_memory", "E": "clawpy_agent_memory"}

SYNC_THRESHOLD = 20_000
"""Changes after which Chroma writes its graph to disk. Killed while it writes, the index may never open again."""


SERVER_TIMEOUT_S = 10.0
"""Maximum time that a server may take for one answer."""


class ServerUnreachable(Exception):
    """The server cannot be reached, or does not let us in."""


class Chroma:
    """The index of one home."""

    def __init__(self) -> None:
        self._collections: dict[str, Any] = {}
        self._server = ""

    def open(self, folder: str, stamp: str) -> None:
        """Open or make the index. Raises ValueError when it was made of other vectors than `stamp` says, and whatever
        Chroma raises when it is damaged or held by another."""
        # It keeps what it once opened by path, and would go on with files that were moved aside since.
        SharedSystemClient.clear_system_cache()
        self._server = ""
        self._open_collections(chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False)), stamp)

    def connect(self, url: str, database: str, token: str, stamp: str, clear: bool) -> None:
        """The same on a server, in a database that is made when it is not there. With `clear` what is in it goes first.
        Raises `ServerUnreachable` too; so does everything that asks the server afterwards."""
        SharedSystemClient.clear_system_cache()
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
        """Tell a server that is lost from one that says no. Its words are not repeated: they may hold the token."""
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
        matrix = numpy.frombuffer(vectors, dtype="<f4").reshape(len(ids), -1)
        with self._server_errors():
            self._collections[layer].upsert(ids=[str(number) for number in ids], embeddings=matrix)

    def delete(self, layer: str, ids: Sequence[int]) -> None:
        """Take vectors out; those that are not there are no fault."""
        with self._server_errors():
            self._collections[layer].delete(ids=[str(number) for number in ids])

    def query(self, layer: str, vector: bytes, k: int) -> list[tuple[int, float]]:
        """The `k` nearest ids and their squared L2, nearest first; fewer when there are fewer."""
        query_vector = numpy.frombuffer(vector, dtype="<f4")
        with self._server_errors():
            answer = self._collections[layer].query(query_embeddings=[query_vector], n_results=k, include=["distances"])
        return [
            (int(number), float(distance))
            for number, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
        ]


def _limit_wait(client: Any) -> None:
    """Have a client wait no longer than `SERVER_TIMEOUT_S`: by itself it waits for ever, and has no setting for it."""
    session = getattr(getattr(client, "_server", None), "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = httpx.Timeout(SERVER_TIMEOUT_S)


BULK_THREADS = max(1, min(2, os.cpu_count() or 1))
BULK_NICE = 10
MODEL_METHODS = frozenset({"embed", "offsets"})
"""Methods of the model; all others are the index's."""


@cache
def _chroma() -> Any:
    pass  # a second, and 60 MB

    return Chroma()


class RequestLanes:
    """Takes requests from one thread, and answers from its own."""

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        self._answer = answer
        model = MiniLM()
        self._questions = self._lane(lambda: model)
        self._bulk = self._lane(lambda: model, threads=BULK_THREADS, nice=BULK_NICE)
        self._indexing = self._lane(_chroma)

    def submit(self, request: Request) -> None:
        """Put a request on its lane."""
        lane = self._bulk if request.bulk else self._questions
        (lane if request.method in MODEL_METHODS else self._indexing).put(request)

    def _lane(self, target: Callable[[], Any], *, threads: int = 1, nice: int = 0) -> PriorityQueue[Request]:
        requests: PriorityQueue[Request] = PriorityQueue()

        def run() -> None:
            if nice and sys.platform == "linux":  # a thread has a priority of its own there; elsewhere the process has
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
            while True:
                request = requests.get()
                try:
                    answer = Answer(request.number, getattr(target(), request.method)(*request.arguments))
                except Exception as error:
                    answer = Answer(request.number, None, f"{type(error).__name__}: {error}"[:500])
                self._answer(answer)

        for _ in range(threads):
            threading.Thread(target=run, daemon=True).start()
        return requests


def main() -> None:
    """Answer what comes on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    write_lock = threading.Lock()

    def send(answer: Answer) -> None:
        with write_lock:
            pickle.dump(tuple(answer), answers)
            answers.flush()

    lanes = RequestLanes(send)
    while True:
        try:
            request = Request(*pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)
        lanes.submit(request)


if __name__ == "__main__":
    main()

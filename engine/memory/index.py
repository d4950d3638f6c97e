"""Keeps the Chroma index in step with SQLite's vectors, in the background (SPEC 4.10).

The index is in a folder of the home, or on a server that several machines share (SPEC 4.5). If it is missing, damaged
or older than the database, it is built again from the vectors, without embedding any text. A damaged folder is moved
aside first, and a server is cleared. A server that cannot be reached is asked again until it answers, and then gets
what it lacks. Until the index is ready, searches return nothing, and `Index.state` says why.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from engine.background import BackgroundWorker, HelperGone
from engine.frozen import frozen
from engine.memory import VECTOR_LAYERS
from engine.memory.helper import Helper, HelperFailed
from engine.memory.store import MemoryStore
from engine.model import Layer

log = logging.getLogger(__name__)

URL_VARIABLE = "CLAWPY_CHROMA_URL"
"""The variable that names the server; it comes before the settings."""

CHROMA_KEY = "chroma"
"""The name of the server's token among the keys, if it wants one."""

UNREACHABLE = "ServerUnreachable"
"""How an error of the helper begins when the server cannot be reached or refuses access."""

VECTORS_PER_REQUEST = 16
"""Vectors of one request. Few, because Chroma holds the helper's interpreter lock while it adds them."""

VECTORS_PER_PAGE = 512
"""Vectors that are read from the database at once."""

IDS_PER_PAGE = 5_000
"""Ids that are read from Chroma at once."""

SAMPLE_SIZE = 8
"""Number of vectors that must find themselves when an index is compared with the database."""

MAX_SELF_DISTANCE = 1e-3
"""Squared L2 up to which a vector that was found is the one that was searched for."""

MAX_REMOVED_SHARE = 0.3
"""Share of removed entries above which an index is built again, because Chroma no longer finds some of the others."""

MIN_REMOVED = 500
"""With no more removed entries than this, it is not built again, whatever their share."""

OPEN_TIMEOUT_S = 180.0
"""Seconds until an index is open."""

CHANGE_TIMEOUT_S = 60.0
"""Seconds until a page of entries is changed or read."""

QUERY_TIMEOUT_S = 5.0
"""Seconds of a search."""

MAX_BUILDS = 3
"""Number of builds in a row that may fail. After that the index stays degraded until `reopen` is called."""

RETRY_S = 15.0
"""Seconds after which a server that was lost is asked again."""

REBUILD_S = 300.0
"""Seconds after which an index is built again on a server where `MAX_BUILDS` failed."""

_HELPER_ERRORS = (HelperGone, HelperFailed, TimeoutError, OSError)
"""Errors of the helper, after which the index is opened again."""


@frozen
class ChromaServer:
    """A Chroma server for the index. It gets ids and vectors, never text. Each home has its own database there, because
    ids are those of its rows. `token()` is called when the index is opened; it may take seconds, as keyrings do."""

    url: str
    database: str
    token: Callable[[], str] = field(default=str, compare=False, repr=False)

    @property
    def host(self) -> str:
        """The server's name and port."""
        return urlsplit(self.url).netloc


class IndexPhase(StrEnum):
    """What an index does."""

    OFF = "off"  # there is nothing to index yet
    OPENING = "opening"
    BUILDING = "building"
    READY = "ready"
    DEGRADED = "degraded"  # it cannot search now


@frozen
class IndexState:
    """The phase of an index, why it is in it, and how far it is, in [0, 1]."""

    phase: IndexPhase
    message: str = ""
    progress: float = 1.0


class DamagedIndex(Exception):
    """The index does not contain what it should."""


class _OpenIndex(NamedTuple):
    """What the helper has open: the id of its process, the server or the inode of the file, and the name of the model
    that made the vectors."""

    process: int | None
    place: ChromaServer | int
    model: str


class _Connection:
    """Opens the index in a folder or on a server, for the vectors of the present model."""

    def __init__(
        self,
        helper: Helper,
        folder: Path,
        *,
        embedding_model: Callable[[], str],
        server: Callable[[], ChromaServer | None],
    ) -> None:
        self._helper = helper
        self._folder = folder
        self._get_embedding_model = embedding_model
        self._server = server
        self._opened: _OpenIndex | None = None
        self.is_lost = False
        """Whether the server could not be reached the last time."""
        self.must_clear = False
        """Whether the index on the server is emptied when it is opened."""

    @property
    def is_open(self) -> bool:
        """Whether the helper has the index open that it should."""
        return self._opened is not None and self._opened == self._identify()

    def open(self) -> None:
        """Open the index, or create it. Raises `_HELPER_ERRORS`."""
        server, model = self._server(), self._get_embedding_model()
        if server is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._helper.call("open", str(self._folder), model, timeout=OPEN_TIMEOUT_S)
        else:
            arguments = (server.url, server.database, server.token(), model, self.must_clear)
            self._helper.call("connect", *arguments, timeout=OPEN_TIMEOUT_S)
            if self.is_lost:
                log.info("the Chroma server at %s is back", server.host)
            self.must_clear = self.is_lost = False
        self._opened = self._identify()

    def close(self) -> None:
        """Open the index again before it is used the next time."""
        self._opened = None

    def _identify(self) -> _OpenIndex:
        """The index that should be open now."""
        place: ChromaServer | int | None = self._server()
        if place is None:
            try:
                place = (self._folder / "chroma.sqlite3").stat().st_ino
            except OSError:
                place = 0
        return _OpenIndex(self._helper.pid, place, self._get_embedding_model())


class Index:
    """The index of one home: in `folder`, or on the server that `server()` returns. From any thread; no call waits
    until the index is built."""

    def __init__(
        self,
        store: MemoryStore,
        helper: Helper,
        folder: Path,
        *,
        embedding_model: Callable[[], str],
        server: Callable[[], ChromaServer | None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.state = IndexState(IndexPhase.OFF, "nothing has been indexed yet")
        self._store = store
        self._helper = helper
        self._get_embedding_model = embedding_model
        self._server = server
        self._background = BackgroundWorker("clawpy-index", self._take_step)
        self._connection = _Connection(helper, folder, embedding_model=embedding_model, server=server)
        self._is_comparison_requested = False
        self._last_chunk = 0
        """The newest chunk that was added."""
        self._removed: Counter[Layer] = Counter()
        """Number of entries of each layer that were removed since the index was opened."""
        self._failures = 0
        """Number of builds in a row that failed."""

    def wake(self) -> None:
        """Add new vectors. Returns at once."""
        self._background.wake()

    def request_comparison(self) -> None:
        """Compare the index with the database, add what is missing, and remove what was deleted; if that is much, build
        the index again. Searches go on meanwhile. Returns at once. Does nothing if the index is not open."""
        if self._connection.is_open:
            self._is_comparison_requested = True
            self.wake()

    def reopen(self) -> None:
        """Open the index again, and compare it with the database as `request_comparison` does. Returns at once."""
        self._connection.close()
        self._failures = 0
        self.wake()

    def search(self, layer: Layer, vector: bytes, k: int) -> list[tuple[int, float]] | None:
        """The nearest chunks with their squared L2, None while the index is not ready."""
        if self.state.phase is not IndexPhase.READY or not self._connection.is_open:
            if self.state.phase is not IndexPhase.DEGRADED:
                self.wake()
            return None
        try:
            hits: list[tuple[int, float]] = self._helper.call(
                "query", layer.value, vector, k, timeout=QUERY_TIMEOUT_S, bulk=False
            )
        except _HELPER_ERRORS as error:
            log.warning("the index did not answer: %s", error)
            self._connection.close()
            if (server := self._server()) is not None:
                self._note_disconnection(server, error)  # so that the next search does not wait for the server
            self.wake()
            return None
        return hits

    def wait(self, timeout: float) -> bool:
        """Wait until the index is ready and complete; False after `timeout` seconds."""
        self.wake()
        return self._background.wait_for(
            lambda: self._background.is_idle and self.state.phase is IndexPhase.READY, timeout
        )

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._background.close()

    # -- the thread

    def _take_step(self) -> float | None:
        """One step of the thread; returns the seconds until the next one, None to wait for `wake`."""
        try:
            self._update()
            self._failures = 0
        except (*_HELPER_ERRORS, DamagedIndex) as error:
            return None if self._background.is_closed else self._recover_from(error)
        except Exception as error:
            log.exception("the index has stopped")
            self.state = IndexState(IndexPhase.DEGRADED, f"{type(error).__name__}: {error}")
        return None

    def _recover_from(self, error: Exception) -> float | None:
        """Handle an error; returns the seconds until the next attempt, None for no attempt before `reopen`. A lost
        server is no reason to build again."""
        self._connection.close()
        server = self._server()
        if server is None or isinstance(error, TimeoutError):
            self._helper.end()  # if it hangs, the next search would wait for it; and only its end releases a folder
        if server is not None and (isinstance(error, HelperGone | TimeoutError) or str(error).startswith(UNREACHABLE)):
            self._note_disconnection(server, error)
            return RETRY_S
        return self._build_again(server, error)

    def _build_again(self, server: ChromaServer | None, error: Exception) -> float | None:
        """Prepare another build, unless too many failed; returns the seconds until it, None for none."""
        self._failures += 1
        title = f"the index on {server.host}" if server else "the index"
        log.warning("%s is built again: %s", title, error)
        if self._failures > MAX_BUILDS:
            self.state = IndexState(IndexPhase.DEGRADED, f"{title} cannot be built: {error}")
            return REBUILD_S if server else None
        self.state = IndexState(IndexPhase.BUILDING, f"built again: {error}", 0.0)
        if server is not None:
            self._connection.must_clear = True
        elif self._failures > 1 or not isinstance(error, HelperGone):
            self._move_aside()  # a helper that ended once may have been killed; twice, the folder is the cause
        return 0.0

    def _note_disconnection(self, server: ChromaServer, error: Exception) -> None:
        reason = str(error).removeprefix(f"{UNREACHABLE}: ") or f"{server.host} does not answer"
        message = f"the connection to the Chroma server was lost: {reason}; it is tried again every {RETRY_S:g} s"
        if not self._connection.is_lost:
            self._connection.is_lost = True
            log.warning("%s", message)
        self.state = IndexState(IndexPhase.DEGRADED, message)

    def _update(self) -> None:
        """Open the index if needed, and make it equal to the database."""
        if not self._connection.is_open:
            self._open()
        self._add_new()
        if self._is_comparison_requested:
            self._is_comparison_requested = False
            self._compare_with_database()
        if not self._background.has_next_step:
            self.state = IndexState(IndexPhase.READY)

    def _open(self) -> None:
        """Open the index, which is compared with the database then."""
        if self.state.phase is not IndexPhase.BUILDING and not self._connection.is_lost:
            self.state = IndexState(IndexPhase.OPENING, "it is being opened")
        self._connection.open()
        indexed = self._store.list_indexed(self._get_embedding_model()).values()
        self._last_chunk = max((max(ids, default=0) for ids in indexed), default=0)
        self._removed.clear()
        self._is_comparison_requested = True

    def _compare_with_database(self) -> None:
        """Make the index contain what the database does, a page of ids at a time; searches are answered in between.
        Raises `DamagedIndex`."""
        for layer in sorted(VECTOR_LAYERS):
            indexed = self._read_ids(layer)
            # Vectors that were stored after the last page was added are not missing; they are added next.
            stored = self._store.list_indexed(self._get_embedding_model())[layer]
            expected = {number for number in stored if number <= self._last_chunk}
            surplus, missing = sorted(indexed - expected), sorted(expected - indexed)
            self._removed[layer] += len(surplus)
            if self._removed[layer] > max(MIN_REMOVED, MAX_REMOVED_SHARE * len(indexed)):
                raise DamagedIndex(f"{self._removed[layer]} of its entries were removed")
            self._check_sample(layer, sorted(indexed & expected))
            for start in range(0, len(surplus), VECTORS_PER_PAGE):
                self._helper.call(
                    "delete", layer.value, surplus[start : start + VECTORS_PER_PAGE], timeout=CHANGE_TIMEOUT_S
                )
            self._add_missing(layer, missing)

    def _read_ids(self, layer: Layer) -> set[int]:
        """The ids that the index has of a layer."""
        ids: set[int] = set()
        offset = 0
        while not self._background.is_closed:
            page = self._helper.call("ids", layer.value, offset, IDS_PER_PAGE, timeout=CHANGE_TIMEOUT_S)
            ids.update(page)
            offset += len(page)
            if len(page) < IDS_PER_PAGE:
                break
        return ids

    def _add_missing(self, layer: Layer, missing: Sequence[int]) -> None:
        """Add chunks that the index lacks. If they are many, the state says how far it is."""
        for start in range(0, len(missing), VECTORS_PER_PAGE):
            if len(missing) > VECTORS_PER_PAGE:
                progress = start / len(missing)
                self.state = IndexState(IndexPhase.BUILDING, f"{start} of {len(missing)}", progress)
            self._add(layer, self._store.read_vectors(missing[start : start + VECTORS_PER_PAGE]))

    def _check_sample(self, layer: Layer, ids: Sequence[int]) -> None:
        """Search for a few vectors, which must find themselves. Raises `DamagedIndex`."""
        sample = random.sample(ids, min(SAMPLE_SIZE, len(ids)))
        for number, vector in self._store.read_vectors(sample).items():
            nearest = self._helper.call("query", layer.value, vector, 1, timeout=CHANGE_TIMEOUT_S)
            if not nearest or nearest[0][1] > MAX_SELF_DISTANCE:
                raise DamagedIndex(f"chunk {number} does not find itself")

    def _add_new(self) -> None:
        while page := self._store.read_vector_page(self._get_embedding_model(), self._last_chunk, VECTORS_PER_PAGE):
            if self._background.is_closed:
                return
            for layer in sorted(VECTOR_LAYERS):
                self._add(layer, {chunk: vector for chunk, _, chunk_layer, vector in page if chunk_layer is layer})
            self._last_chunk = page[-1][0]

    def _add(self, layer: Layer, vectors: Mapping[int, bytes]) -> None:
        ids = list(vectors)
        for start in range(0, len(ids), VECTORS_PER_REQUEST):
            if self._background.is_closed:
                raise HelperGone("the engine is closing")
            batch = ids[start : start + VECTORS_PER_REQUEST]
            body = b"".join(vectors[number] for number in batch)
            self._helper.call("add", layer.value, batch, body, timeout=CHANGE_TIMEOUT_S)

    def _move_aside(self) -> None:
        """Move a damaged index aside, so that it can be inspected. It replaces the one that was moved before."""
        aside = self.folder.with_name(f"{self.folder.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        if self.folder.exists():
            self.folder.replace(aside)

"""Keeps the Chroma index in step with SQLite's vectors, in the background (SPEC 4.10).

It lives in a folder of the home, or on a server (`chroma_server`). It may be missing, older than the database, held by
another, or damaged: then it is moved aside, on a server cleared, and built again from the vectors, without embedding
anything. A server that is lost is asked again until it is back, and then gets what it lacks. Nobody waits for any of
this; while the index is not ready it finds nothing and says so.
"""

from __future__ import annotations

import logging
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.background import Background
from engine.memory import helper
from engine.memory.chroma_server import LOST, ChromaServer
from engine.memory.helper import Helper, HelperFailed, HelperGone
from engine.memory.store import MemoryStore
from engine.model import Layer

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Vectors of one request: Chroma holds the helper's interpreter lock while it takes them in."""

PAGE = 512
IDS_AT_ONCE = 5_000
SAMPLE = 8
"""So many vectors must find themselves when an index is opened."""

ITSELF = 1e-3
"""Squared L2 within which a vector found itself."""

CHURN = 0.3
"""An index of which so much was taken out is built again: some of the rest can no longer be reached."""

SLIGHT = 100
"""Ids too many that are no fault of the index, whatever their share."""

OPEN_SECONDS = 180.0
CHANGE_SECONDS = 60.0
QUERY_SECONDS = 5.0
TRIES = 3
"""Builds in a row that may fail before it waits for `check`."""

RETRY_SECONDS = 15.0
"""After so long a server that was lost is asked again."""

_FAULTS = (HelperGone, HelperFailed, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class IndexState:
    """`state` is off (nothing to index yet), opening, building, ready or degraded; `words` say why; `progress` of what
    is built, in [0, 1]."""

    state: str
    words: str = ""
    progress: float = 1.0
    count: int = 0


class Unsound(Exception):
    """The index is there and not what it should be."""


class Index:
    """The index of one home, in `folder`, or on the `server` that is named now. From any thread; no call waits for it
    to be built."""

    def __init__(
        self,
        store: MemoryStore,
        helper: Helper,
        folder: Path,
        *,
        model: Callable[[], str],
        server: Callable[[], ChromaServer | None] = lambda: None,
    ) -> None:
        self.folder = folder
        self._server = server
        self._clear = False
        self._away = False
        self._store = store
        self._helper = helper
        self._model = model
        self._background = Background("clawpy-index", self._step)
        self._dropping = threading.Lock()
        self._look = False
        self._compare = False
        self._dropped: list[int] = []
        self._opened: tuple[int, int | ChromaServer, str] | None = None  # helper's life, inode or server, model
        self._mark = 0
        self._count = 0
        self._churn = 0
        self._failures = 0
        self._state = IndexState("off", "nothing has been indexed yet")

    @property
    def state(self) -> IndexState:
        """How it stands."""
        return self._state

    def wake(self) -> None:
        """There is something to take in. Returns at once."""
        self._background.wake()

    def compare(self) -> None:
        """Compare it with the database while it goes on answering: what is missing comes in, what is no more goes, and
        where that is much it is built again. Returns at once; where none is open there is nothing to do."""
        if self._is_open():
            self._compare = True
            self.wake()

    def check(self) -> None:
        """Open it anew, compare it with the database, and mend it if need be. Returns at once."""
        self._look = True
        self._failures = 0
        self.wake()

    def drop(self, chunk_ids: Iterable[int]) -> None:
        """These chunks are gone from the database. Returns at once."""
        gone = list(chunk_ids)
        if gone and self._background.begun:
            with self._dropping:
                self._dropped += gone
            self.wake()

    def search(self, layer: Layer, vector: bytes, k: int) -> list[tuple[int, float]] | None:
        """The nearest chunks with their squared L2; None while it is not ready."""
        if self._state.state != "ready" or not self._is_open():
            if self._state.state != "degraded":
                self.wake()
            return None
        try:
            answer = self._helper.ask(vector, do="query", layer=layer.value, k=k, timeout=QUERY_SECONDS)
        except _FAULTS as error:
            log.warning("the index did not answer: %s", error)
            self._look = True
            if (server := self._server()) is not None:
                self._lost(server, error)  # until it answers nobody else waits for it
            self.wake()
            return None
        return list(zip(answer.head["ids"], answer.head["distances"], strict=True))

    def wait(self, timeout: float) -> bool:
        """Wait until it is ready and has everything; False after `timeout` seconds. For tests and tools."""
        self.wake()
        return self._background.wait_for(lambda: self._background.idle and self._state.state == "ready", timeout)

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._background.close()

    # -- the thread

    def _step(self) -> float | None:
        try:
            self._sync()
            self._failures = 0
        except (*_FAULTS, Unsound) as error:
            if self._background.closed:
                return None
            if (server := self._server()) is not None:
                return self._failed_there(server, error)
            self._failures += 1
            self._opened = None
            log.warning("the index is built again: %s", error)
            if self._failures > TRIES:
                self._say("degraded", f"the index cannot be built: {error}")
                return None
            self._say("building", f"built again: {error}", 0.0)
            if isinstance(error, TimeoutError) or self._failures > 1:
                self._helper.end()  # it hangs in a folder that another holds, or cannot let go of a former one
            gone = isinstance(error, HelperGone)
            if not gone or self._failures > 1:  # once it may have been killed; twice it was the folder that killed it
                self._move_aside()
            return helper.SHORT_LIFE if gone else 0.0
        except Exception as error:
            log.exception("the index has stopped")
            self._say("degraded", f"{type(error).__name__}: {error}")
        return None

    def _failed_there(self, server: ChromaServer, error: Exception) -> float:
        """The index on a server failed: when to try again. Nothing of ours is at fault when it is lost."""
        self._opened = None
        if isinstance(error, TimeoutError):
            self._helper.end()  # whatever hangs there would keep the next question waiting
        if isinstance(error, HelperGone):
            return helper.SHORT_LIFE
        if isinstance(error, TimeoutError) or str(error).startswith(LOST):
            self._lost(server, error)
            return RETRY_SECONDS
        self._failures += 1
        log.warning("the index on %s is built again: %s", server.host, error)
        if self._failures > TRIES:
            self._say("degraded", f"the index on {server.host} cannot be built: {error}")
            return RETRY_SECONDS * 20
        self._clear = True
        self._say("building", f"built again: {error}", 0.0)
        return 0.0

    def _lost(self, server: ChromaServer, error: Exception) -> None:
        why = str(error).removeprefix(f"{LOST}: ") or f"{server.host} does not answer"
        words = f"the connection to the Chroma server was lost: {why}; it is tried again every {RETRY_SECONDS:g} s"
        if not self._away:
            self._away = True
            log.warning("%s", words)
        self._say("degraded", words)

    def _sync(self) -> None:
        if self._look or not self._is_open():
            self._look = self._compare = False
            self._open()
        elif self._compare:
            self._compare = False
            if mended := self._reconcile(self._model()):
                log.warning("the index differed from the database in %d places; it is fixed", mended)
        self._take_out()
        self._take_in()
        if self._churn > max(500, CHURN * self._count):
            raise Unsound("many entries were removed")
        if not self._background.woken:
            self._say("ready")

    def _is_open(self) -> bool:
        return self._opened is not None and self._opened == (self._helper.life, self._where(), self._model())

    def _where(self) -> int | ChromaServer:
        """What tells this index from another: the server, or the file."""
        if (server := self._server()) is not None:
            return server
        try:
            return (self.folder / "chroma.sqlite3").stat().st_ino
        except OSError:
            return 0

    def _open(self) -> None:
        if self._state.state != "building" and not self._away:
            self._say("opening", "it is being opened")
        model = self._model()
        with self._dropping:
            self._dropped = []
        self._connect(self._server(), model)
        every = [number for ids in self._store.indexed(model).values() for number in ids]
        self._mark = max(every, default=0)
        self._reconcile(model)
        self._count, self._churn = len(every), 0
        self._opened = (self._helper.life, self._where(), model)

    def _connect(self, server: ChromaServer | None, model: str) -> None:
        if server is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._ask(OPEN_SECONDS, do="open", folder=str(self.folder), stamp=model)
            return
        self._ask(
            OPEN_SECONDS, do="connect", url=server.url, database=server.database, token=server.token(), stamp=model,
            clear=self._clear,
        )  # fmt: skip
        if self._away:
            log.info("the Chroma server at %s is back", server.host)
        self._clear = self._away = False

    def _reconcile(self, model: str) -> int:
        """Have it hold what the database does, a page of ids at a time: questions are answered in between. How much
        differed. Raises `Unsound`."""
        mended = 0
        for layer in (Layer.VECTORS, Layer.CONTEXT):
            found: set[int] = set()
            at = 0
            while not self._background.closed:
                ids = self._ask(CHANGE_SECONDS, do="ids", layer=layer.value, offset=at, limit=IDS_AT_ONCE).head["ids"]
                found.update(ids)
                at += len(ids)
                if len(ids) < IDS_AT_ONCE:
                    break
            # What came since the last page was taken in is none of its faults.
            wanted = [number for number in self._store.indexed(model)[layer] if number <= self._mark]
            mended += self._mend(layer, found, wanted, model)
        return mended

    def _mend(self, layer: Layer, found: set[int], wanted: Sequence[int], model: str) -> int:
        """Have a layer hold what it should; how many it lacked or had too much. Raises `Unsound`."""
        surplus = found.difference(wanted)
        missing = sorted(set(wanted) - found)
        if len(surplus) > SLIGHT + CHURN * len(found):
            raise Unsound(f"it holds {len(surplus)} of {len(found)} that no longer exist")
        self._prove(layer, sorted(found - surplus), model)
        self._remove(layer, sorted(surplus))
        self._add(layer, missing, model)
        return len(surplus) + len(missing)

    def _prove(self, layer: Layer, ids: Sequence[int], model: str) -> None:
        """A few vectors must find themselves. Raises `Unsound`."""
        some = random.sample(ids, min(SAMPLE, len(ids)))
        for number, vector in self._store.vectors(some).items():
            answer = self._ask(CHANGE_SECONDS, vector, do="query", layer=layer.value, k=1)
            nearest = answer.head["distances"]
            if not nearest or nearest[0] > ITSELF:
                raise Unsound(f"chunk {number} does not find itself")

    def _take_out(self) -> None:
        with self._dropping:
            gone, self._dropped = self._dropped, []
        if gone:
            for layer in (Layer.VECTORS, Layer.CONTEXT):
                self._remove(layer, gone)
            self._churn += len(gone)
            self._count = max(0, self._count - len(gone))

    def _take_in(self) -> None:
        model = self._model()
        while not self._background.closed:
            page = self._store.vector_page(model, self._mark, PAGE)
            if not page:
                return
            for layer in (Layer.VECTORS, Layer.CONTEXT):
                self._add(layer, [row[0] for row in page if row[2] is layer], model)
            self._mark = page[-1][0]
            self._count += len(page)

    def _add(self, layer: Layer, ids: Sequence[int], model: str) -> None:
        for at in range(0, len(ids), AT_ONCE):
            if self._background.closed:
                raise HelperGone("the engine is closing")
            vectors = self._store.vectors(ids[at : at + AT_ONCE])
            if vectors:
                body = b"".join(vectors.values())
                self._ask(CHANGE_SECONDS, body, do="add", layer=layer.value, ids=list(vectors))
            if len(ids) > PAGE:
                self._say("building", f"{at} of {len(ids)}", at / len(ids))

    def _remove(self, layer: Layer, ids: Sequence[int]) -> None:
        for at in range(0, len(ids), PAGE):
            self._ask(CHANGE_SECONDS, do="delete", layer=layer.value, ids=list(ids[at : at + PAGE]))

    def _ask(self, seconds: float, body: bytes = b"", **head: Any) -> Any:
        return self._helper.ask(body, timeout=seconds, **head)

    def _move_aside(self) -> None:
        """Keep the last unsound one beside, for whoever wants to look at it."""
        aside = self.folder.with_name(f"{self.folder.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        if self.folder.exists():
            self.folder.replace(aside)

    def _say(self, state: str, words: str = "", progress: float = 1.0) -> None:
        self._state = IndexState(state, words, progress, self._count)

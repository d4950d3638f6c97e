"""Keeps the Chroma index in step with SQLite's vectors, in the background (SPEC 4.10).

It lives in a folder of the home, or on a server that several machines share (SPEC 4.5). It may be missing, older than
the database, held by another, or damaged: then it is moved aside, on a server cleared, and built again from the
vectors, without embedding anything. A server that is lost is asked again until it is back, and then gets what it lacks.
Nobody waits for any of this; while the index is not ready it finds nothing and says so.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from urllib.parse import urlsplit

from engine.background import Background
from engine.frozen import frozen
from engine.memory import helper
from engine.memory.helper import Helper, HelperFailed, HelperGone
from engine.memory.store import MemoryStore
from engine.model import Layer

log = logging.getLogger(__name__)

VARIABLE = "CLAWPY_CHROMA_URL"
"""The variable that names the server; it comes before the settings."""

KEY = "chroma"
"""Under this name the keys hold the server's token, where it wants one."""

LOST = "Lost"
"""How what the helper says begins when the server cannot be reached, or does not let us in."""

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


@frozen
class ChromaServer:
    """Where the index lives. It gets numbers and vectors, never a word; each home has a database of its own there, for
    the numbers are those of its own rows. `token()` is asked for when it is opened; it may take a keyring's time."""

    url: str
    database: str
    token: Callable[[], str] = field(default=str, compare=False, repr=False)

    @property
    def host(self) -> str:
        """The server's name and port."""
        return urlsplit(self.url).netloc


def database_of(origin: str) -> str:
    """The name of a home's database, as Chroma takes names: letters, digits, dots and dashes."""
    return "clawpy-" + re.sub(r"[^a-zA-Z0-9]+", "-", origin).strip("-")


@frozen
class IndexState:
    """`state` is off (nothing to index yet), opening, building, ready or degraded; `words` say why; `progress` of what
    is built, in [0, 1]."""

    state: str
    words: str = ""
    progress: float = 1.0


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
        self.state = IndexState("off", "nothing has been indexed yet")
        self._store = store
        self._helper = helper
        self._model = model
        self._server = server
        self._background = Background("clawpy-index", self._step)
        self._look = self._compare = False
        self._clear = self._away = False
        self._opened: tuple[int | None, int | ChromaServer, str] | None = None  # helper's process, where, model
        self._mark = self._failures = 0
        self._held = self._removed = 0

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

    def search(self, layer: Layer, vector: bytes, k: int) -> list[tuple[int, float]] | None:
        """The nearest chunks with their squared L2; None while it is not ready."""
        if self.state.state != "ready" or not self._is_open():
            if self.state.state != "degraded":
                self.wake()
            return None
        try:
            found: list[tuple[int, float]] = self._helper.call(
                "query", layer.value, vector, k, timeout=QUERY_SECONDS, waits=False
            )
        except _FAULTS as error:
            log.warning("the index did not answer: %s", error)
            self._look = True
            if (server := self._server()) is not None:
                self._lost(server, error)  # until it answers nobody else waits for it
            self.wake()
            return None
        return found

    def wait(self, timeout: float) -> bool:
        """Wait until it is ready and has everything; False after `timeout` seconds. For tests and tools."""
        self.wake()
        return self._background.wait_for(lambda: self._background.idle and self.state.state == "ready", timeout)

    def close(self) -> None:
        """Stop. Safe to call twice."""
        self._background.close()

    # -- the thread

    def _step(self) -> float | None:
        try:
            self._sync()
            self._failures = 0
        except (*_FAULTS, Unsound) as error:
            return None if self._background.closed else self._failed(error)
        except Exception as error:
            log.exception("the index has stopped")
            self._say("degraded", f"{type(error).__name__}: {error}")
        return None

    def _failed(self, error: Exception) -> float | None:
        """When to try again, None for not before it is checked. Nothing of ours is at fault when a server is lost."""
        self._opened = None
        server, gone, hangs = self._server(), isinstance(error, HelperGone), isinstance(error, TimeoutError)
        if hangs:
            self._helper.end()  # in a folder that another holds; or whatever hangs would keep the next question waiting
        if server is not None and gone:
            return helper.SHORT_LIFE
        if server is not None and (hangs or str(error).startswith(LOST)):
            self._lost(server, error)
            return RETRY_SECONDS
        self._failures += 1
        which = f"the index on {server.host}" if server else "the index"
        log.warning("%s is built again: %s", which, error)
        if self._failures > TRIES:
            self._say("degraded", f"{which} cannot be built: {error}")
            return RETRY_SECONDS * 20 if server else None
        self._say("building", f"built again: {error}", 0.0)
        if server is not None:
            self._clear = True
            return 0.0
        if self._failures > 1:
            self._helper.end()  # it cannot let go of a former folder
        if not gone or self._failures > 1:  # once it may have been killed; twice it was the folder that killed it
            self._move_aside()
        return helper.SHORT_LIFE if gone else 0.0

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
        self._take_in()
        if self._removed > max(500, CHURN * self._held):
            raise Unsound("many entries were removed")
        if not self._background.woken:
            self._say("ready")

    def _is_open(self) -> bool:
        return self._opened is not None and self._opened == (self._helper.pid, self._where(), self._model())

    def _where(self) -> int | ChromaServer:
        """What tells this index from another: the server, or the file."""
        if (server := self._server()) is not None:
            return server
        try:
            return (self.folder / "chroma.sqlite3").stat().st_ino
        except OSError:
            return 0

    def _open(self) -> None:
        if self.state.state != "building" and not self._away:
            self._say("opening", "it is being opened")
        model, server = self._model(), self._server()
        if server is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._helper.call("open", str(self.folder), model, timeout=OPEN_SECONDS)
        else:
            where = (server.url, server.database, server.token(), model, self._clear)
            self._helper.call("connect", *where, timeout=OPEN_SECONDS)
            if self._away:
                log.info("the Chroma server at %s is back", server.host)
            self._clear = self._away = False
        every = [number for ids in self._store.indexed(model).values() for number in ids]
        self._mark = max(every, default=0)
        self._reconcile(model)
        self._held, self._removed = len(every), 0
        self._opened = (self._helper.pid, self._where(), model)

    def _reconcile(self, model: str) -> int:
        """Have it hold what the database does, a page of ids at a time: questions are answered in between. How much it
        lacked or had too much. Raises `Unsound`."""
        mended = 0
        for layer in (Layer.VECTORS, Layer.CONTEXT):
            found: set[int] = set()
            at = 0
            while not self._background.closed:
                ids = self._helper.call("ids", layer.value, at, IDS_AT_ONCE, timeout=CHANGE_SECONDS)
                found.update(ids)
                at += len(ids)
                if len(ids) < IDS_AT_ONCE:
                    break
            # What came since the last page was taken in is none of its faults.
            wanted = {number for number in self._store.indexed(model)[layer] if number <= self._mark}
            surplus, missing = sorted(found - wanted), sorted(wanted - found)
            if len(surplus) > SLIGHT + CHURN * len(found):
                raise Unsound(f"it holds {len(surplus)} of {len(found)} that no longer exist")
            self._prove(layer, sorted(found & wanted))
            for start in range(0, len(surplus), PAGE):
                self._helper.call("delete", layer.value, surplus[start : start + PAGE], timeout=CHANGE_SECONDS)
            for start in range(0, len(missing), PAGE):
                if len(missing) > PAGE:
                    self._say("building", f"{start} of {len(missing)}", start / len(missing))
                self._add(layer, self._store.vectors(missing[start : start + PAGE]))
            self._removed += len(surplus)
            mended += len(surplus) + len(missing)
        return mended

    def _prove(self, layer: Layer, ids: Sequence[int]) -> None:
        """A few vectors must find themselves. Raises `Unsound`."""
        some = random.sample(ids, min(SAMPLE, len(ids)))
        for number, vector in self._store.vectors(some).items():
            nearest = self._helper.call("query", layer.value, vector, 1, timeout=CHANGE_SECONDS)
            if not nearest or nearest[0][1] > ITSELF:
                raise Unsound(f"chunk {number} does not find itself")

    def _take_in(self) -> None:
        while not self._background.closed:
            page = self._store.vector_page(self._model(), self._mark, PAGE)
            if not page:
                return
            for layer in (Layer.VECTORS, Layer.CONTEXT):
                self._add(layer, {chunk: vector for chunk, _, of, vector in page if of is layer})
            self._mark = page[-1][0]
            self._held += len(page)

    def _add(self, layer: Layer, vectors: Mapping[int, bytes]) -> None:
        ids = list(vectors)
        for at in range(0, len(ids), AT_ONCE):
            if self._background.closed:
                raise HelperGone("the engine is closing")
            some = ids[at : at + AT_ONCE]
            body = b"".join(vectors[number] for number in some)
            self._helper.call("add", layer.value, some, body, timeout=CHANGE_SECONDS)

    def _move_aside(self) -> None:
        """Keep the last unsound one beside, for whoever wants to look at it."""
        aside = self.folder.with_name(f"{self.folder.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        if self.folder.exists():
            self.folder.replace(aside)

    def _say(self, state: str, words: str = "", progress: float = 1.0) -> None:
        self.state = IndexState(state, words, progress)

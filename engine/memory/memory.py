"""The services `engine.memory` and `engine.knowledge` (SPEC 4).

`MemoryService` remembers in layers C and E, and recalls over all layers. `Knowledge` has layers D, F and G, the night
and forgetting.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from engine.background import run_in_thread
from engine.clock import Clock
from engine.config import SettingsSource
from engine.home import Home
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import ENDED, CaptureRow, Captures, WorkReader
from engine.memory.drafts import DraftRow, Drafts
from engine.memory.embedding import TIMEOUT_S, Embedder, Endpoint, EndpointEmbedder, LocalEmbedder
from engine.memory.forget import DatabaseRows, ErasableRows, ErasableStore, Forgetting, HomeFiles
from engine.memory.graph import TaskGraph
from engine.memory.graph_producer import KINDS, GraphProducer
from engine.memory.helper import Helper
from engine.memory.index import ChromaServer, Index
from engine.memory.nightly import Nightly
from engine.memory.para import Para
from engine.memory.recall import DEADLINE_S, FactSource, GraphSource, LedgerSource, Recaller
from engine.memory.search import MemorySearch
from engine.memory.store import MemoryStore
from engine.memory.summaries import SessionSummariser
from engine.memory.vectors import MAX_EXACT, Vectoriser, Vectors
from engine.model import (
    Asks,
    Layer,
    LayerState,
    Memory,
    NewMemory,
    Recall,
    RecallQuery,
    Refusal,
    RememberResult,
    SessionView,
    Waiting,
)
from engine.model.text import count
from engine.storage.database import Database, Transaction
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer

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
        self.index = Index(self.store, self._helper, folder, model=lambda: self.vectoriser.model, server=server)
        self.vectors = Vectors(self.store, self.index, embedder=self._get_embedder, model=lambda: self.vectoriser.model)
        self.search = MemorySearch(database, self.store, self.vectors)
        self.recaller = Recaller([self.search], clock)
        self.entries = self.store.entries

    # -- remembering

    def remember(self, items: Sequence[NewMemory]) -> RememberResult:
        """Remember `items`. When it returns, they are on disk and found by their words. Vectors follow in the
        background after `start`; without it (an engine that ends with its verb) the next engine makes them. Raises
        `Refusal` as `MemoryStore.remember`."""
        result = self.store.remember(items)
        if result.new and self._is_started:
            self.vectoriser.wake()
        return result

    def settle(self, timeout: float | None = None, *, indexed: bool = False) -> bool:
        """Wait until every vector is made. With `indexed`, or if there are too many for exact search, also wait until
        the index contains them. False after `timeout` seconds, or if no vectors can be made."""
        end = None if timeout is None else time.monotonic() + timeout
        if not self.vectoriser.settle(timeout):
            return False
        if not indexed and not self.store.has_more_chunks_than(MAX_EXACT):
            return True
        return self.index.wait(3600.0 if end is None else max(0.0, end - time.monotonic()))

    def missing(self) -> tuple[int, str]:
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

    def layers(self) -> list[LayerState]:
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
        elif index.state in ("building", "degraded"):
            status, message, progress = index.state, f"index: {index.message}", index.progress
        return [
            LayerState(layer, *self.store.count_and_newest(layer), status, message, progress)
            for layer in (Layer.VECTORS, Layer.CONTEXT)
        ]

    def entry(self, layer: Layer, id: str) -> Memory | None:
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
            self.index.check()

    def housekeeping(self) -> None:
        """Delete expired memories (SPEC 4.3), and compare the index with the database (SPEC 4.10)."""
        self.index.compare()
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
        self.index.compare()


class Knowledge:
    """`engine.knowledge`: layers D, F and G, and E's writer. All methods may be called from any thread."""

    def __init__(
        self,
        home: Home,
        memory: MemoryService,
        ledger: Ledger,
        *,
        work: WorkReader,
        files: AgentFiles,
        model: Asks,
        report: Callable[[str, str], None],
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """If the operator named a `model`, it summarises sessions and evaluates days. Recall asks these layers from now
        on."""
        database, clock = memory.database, memory.clock
        self._home = home
        self._memory = memory
        self._work = work
        self.forgetting: Forgetting
        self.graph = TaskGraph(home.data, clock)
        self.para = Para(home.data / "para", database, clock)
        self.captures = Captures(database, work, memory.remember, secrets=secrets)
        self.drafts = Drafts(database, self.para, self.captures, clock)
        self.nightly = Nightly(
            ledger,
            clock,
            captures=self.captures,
            work=work,
            drafts=self.drafts,
            para=self.para,
            files=files,
            model=model,
        )
        producer = GraphProducer(self.graph, work, memory.search.find_sessions_like)
        summariser = SessionSummariser(
            work, self.captures, memory.store, memory.remember, model=model, clock=clock, report=report
        )
        consumers = (
            ("capture", ENDED, self.captures.handle),
            ("graph", KINDS, producer.handle),
            ("context", ENDED, summariser.handle),  # may ask a model: the others first
            ("likeness", frozenset({"SessionEnded"}), producer.link_similar),
        )
        self._following = ConsumerThread(
            [LedgerConsumer(name, ledger, kinds, handle, key="memory.follow") for name, kinds, handle in consumers],
            report,
            service="memory",
        )
        graph_source = GraphSource(self.graph, memory.search.find_sessions_near)
        memory.recaller.join(LedgerSource(ledger), graph_source, FactSource(self.para))

    def build_forgetting(
        self, others: Sequence[ErasableStore], text_of_other: Mapping[str, Callable[[str], str | None]]
    ) -> None:
        """Build `forgetting`, which removes texts from all layers, from `others`, and from the home's files. It is
        called once. `text_of_other` has functions that return the text of an entry of `others`, by the prefix of its
        id."""
        home, database = self._home, self._memory.database
        captures, drafts = ErasableRows("captures", database, CaptureRow), ErasableRows("drafts", database, DraftRow)
        own = (self._memory.store, captures, drafts, self.para, self.graph)
        files_and_tables = (HomeFiles((home.data, home.logs, home.cache)), DatabaseRows(database))
        self._text_of_other = text_of_other
        self.forgetting = Forgetting(
            database,
            [*own, *others, *files_and_tables],
            text_of=self._find_text,
            running=lambda: [item.id for item in self._work.running_sessions()],
            second_pass=others,
        )

    # -- life

    def recover(self) -> list[str]:
        """Finish what a crash left half done. Returns what was done, in words."""
        return self.para.recover() + self.forgetting.recover()

    def start(self, *, follow: bool = True) -> None:
        """Read the graph in the background. With `follow`, also process new entries of the ledger."""
        run_in_thread("clawpy-task-graph", self.graph.load)
        if follow:
            self._following.start()

    def close(self) -> None:
        """Stop following the ledger, and write what is not written yet. Safe to call twice."""
        self._following.close()
        try:
            self.para.flush()
        except (OSError, Refusal):
            log.warning("counts of facts could not be written", exc_info=True)
        self.graph.close()

    def housekeeping(self) -> None:
        """Every half minute: try again what was not ready, and write counts."""
        self._following.poke()
        self.para.flush()

    def catch_up(self, until: float | None = None) -> None:
        """Process all new entries of the ledger now, in this thread; none is begun after `until`, a monotonic time."""
        self._following.catch_up(until)

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._following.poke)

    # -- looking

    def layers(self) -> list[LayerState]:
        """The states of layers D, F and G (SPEC 9.5)."""
        capture_count, newest_capture = self.captures.count()
        facts, problems, waiting = self.para.facts(), self.para.problems(), self.drafts.waiting()
        notes = [*problems[:3], *([f"waiting for you: {count(len(waiting), 'draft')}"] if waiting else [])]
        graph = self.graph
        state = "degraded" if graph.faults else "ready" if graph.is_ready else "building"
        progress = 0.0 if state == "building" else 1.0
        newest = max((fact.created_at for fact in facts), default=None)
        return [
            LayerState(Layer.CAPTURE, capture_count, newest_capture, "ready"),
            LayerState(Layer.GRAPH, len(graph), graph.newest_at, state, "; ".join(graph.faults[:3]), progress),
            LayerState(Layer.PARA, len(facts), newest, "degraded" if problems else "ready", "; ".join(notes)),
        ]

    def waiting(self) -> list[Waiting]:
        """Drafts of facts as entries of the operator's queue (SPEC 9.3)."""
        return [
            Waiting("fact", draft.id, f"keep as a fact? {draft.fact}", draft.created_at, text=draft.fact)
            for draft in self.drafts.waiting()
        ]

    def _find_text(self, id: str) -> str | None:
        """The text of the entry of any layer with this id, None when there is none."""
        prefix = id.partition("_")[0]
        try:
            match prefix:
                case "mem" | "cap":
                    entry = self._memory.store.get(id) if prefix == "mem" else self.captures.entry(id)
                    return entry.text if entry else None
                case "fact":
                    return self.para.get(id).fact
                case "draft":
                    return self.drafts.get(id).fact
            if prefix in self._text_of_other:
                return self._text_of_other[prefix](id)
            node = self.graph.get(id)
        except Refusal:
            return None
        return f"{node.title}\n{node.description}" if node else None

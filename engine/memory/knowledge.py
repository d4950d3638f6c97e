"""The service `engine.knowledge` (SPEC 4): what memory keeps of sessions. It has layers D, F and G, and fills them and
layer E by following the ledger in a thread of its own. The night and forgetting are here because both need all layers.

It is built on `MemoryService`, which has what other services need before there are sessions: layers C and E, and
recall.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.home import Home
from engine.memory import WorkReader
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import ENDING_EVENTS, CaptureRow, Captures
from engine.memory.drafts import DraftRow, Drafts
from engine.memory.forget import DatabaseRows, ErasableRows, ErasableStore, Forgetting, HomeFiles, OtherTexts
from engine.memory.graph import FOLLOWED_KINDS, GraphProducer, TaskGraph, TaskNode
from engine.memory.layer_sources import FactSource, GraphSource, LedgerSource
from engine.memory.memory import MemoryService
from engine.memory.nightly import Nightly
from engine.memory.para import Para
from engine.memory.summaries import SessionSummariser
from engine.model import LayerState, ModelAsker, Refusal, SessionView, Waiting
from engine.storage.database import Transaction
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer

log = logging.getLogger(__name__)

MAX_TASKS_AT_END = 2_000
"""A graph with up to this many tasks is also copied to its file when the engine ends, which takes some milliseconds."""


class Knowledge:
    """What memory keeps of sessions. Its parts are services of their own: `captures` (layer D), `graph` (F), `para` and
    `drafts` (G), `nightly` and `forgetting`. All methods may be called from any thread."""

    def __init__(
        self,
        home: Home,
        memory: MemoryService,
        ledger: Ledger,
        *,
        work: WorkReader,
        files: AgentFiles,
        model: ModelAsker,
        other_texts: OtherTexts,
        report: Callable[[str, str], None],
    ) -> None:
        """If the operator named a `model`, it summarises sessions and evaluates days. `other_texts`, of services beside
        memory, are forgotten with the others. Recall asks these layers from now on."""
        database, clock = memory.database, memory.clock
        self._memory = memory
        self._other_texts = other_texts
        self.graph = TaskGraph(database)
        self._graph_file = home.data / "task_graph.json"
        self._has_new_sessions = False
        """Whether a session started or ended since the engine was opened."""
        self.para = Para(home.data / "para", database, clock)
        self.captures = Captures(database, work, memory.remember)
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
        self.forgetting = self._make_forgetting(home, work)
        producer = GraphProducer(self.graph, work, memory.search.find_sessions_like)
        summariser = SessionSummariser(
            work, self.captures, memory.store, memory.remember, model=model, clock=clock, report=report
        )
        consumers = _list_consumers(ledger, self.captures, producer, summariser)
        self._following = ConsumerThread(consumers, report, service="memory")
        graph_source = GraphSource(self.graph, memory.search.find_sessions_near)
        memory.recaller.join(LedgerSource(ledger), graph_source, FactSource(self.para))

    def _make_forgetting(self, home: Home, work: WorkReader) -> Forgetting:
        """What forgets a text in all layers, in the texts of other services, in files and in the rest of the
        database."""
        database, others = self._memory.database, self._other_texts.stores
        stores: list[ErasableStore] = [
            self._memory.store,
            ErasableRows("captures", database, CaptureRow),
            ErasableRows("drafts", database, DraftRow),
            self.para,
            ErasableRows("tasks", database, TaskNode),
            *others,
            HomeFiles((home.data, home.logs, home.cache), database=database.path),
            DatabaseRows(database),
        ]
        return Forgetting(
            database,
            stores,
            find_text=self._find_text,
            list_running=lambda: [session.id for session in work.running_sessions()],
            second_pass=others,
        )

    # -- life

    def recover(self) -> list[str]:
        """Finish what a crash left half done. Returns what was done, in words."""
        return self.para.recover() + self.forgetting.recover()

    def start(self) -> None:
        """Process new entries of the ledger in a thread."""
        self._following.start()

    def close(self) -> None:
        """Stop following the ledger, and write what is not written yet. Safe to call twice."""
        self._following.close()
        try:
            self.para.flush()
            if self._has_new_sessions and self.graph.describe_layer().count <= MAX_TASKS_AT_END:
                self.graph.export(self._graph_file)
                self._has_new_sessions = False
        except (OSError, Refusal):
            log.warning("counts of facts, or the copy of the task graph, could not be written", exc_info=True)

    def housekeeping(self) -> None:
        """Every half minute: try again what was not ready, and write counts."""
        self._following.poke()
        self.para.flush()

    def catch_up(self, until: float | None = None) -> None:
        """Process all new entries of the ledger now, in this thread; none is begun after `until`, a monotonic time."""
        self._following.catch_up(until)

    def run_night(self) -> None:
        """Process the days that are due, and write the file with the copy of the task graph. Raises OSError and
        `Refusal`: a day that failed is due again, and the next night writes the file."""
        self.nightly.run_due()
        self.graph.export(self._graph_file)

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        self._has_new_sessions = True
        tx.after_commit(self._following.poke)

    # -- looking

    def describe_layers(self) -> list[LayerState]:
        """The states of layers D, F and G (SPEC 9.5)."""
        return [self.captures.describe_layer(), self.graph.describe_layer(), self.drafts.describe_layer()]

    def waiting(self) -> list[Waiting]:
        """Drafts of facts as entries of the operator's queue (SPEC 9.3)."""
        return [
            Waiting("fact", draft.id, f"keep as a fact? {draft.fact}", draft.created_at, text=draft.fact)
            for draft in self.drafts.list_waiting()
        ]

    def _find_text(self, id: str) -> str | None:
        """The text of the entry of any layer with this id, None when there is none."""
        prefix = id.partition("_")[0]
        try:
            match prefix:
                case "mem" | "cap":
                    entry = self._memory.store.get(id) if prefix == "mem" else self.captures.find_entry(id)
                    return entry.text if entry else None
                case "fact":
                    return self.para.get(id).fact
                case "draft":
                    return self.drafts.get(id).fact
            if prefix in self._other_texts.find_by_prefix:
                return self._other_texts.find_by_prefix[prefix](id)
            node = self.graph.get(id)
        except Refusal:
            return None
        return f"{node.title}\n{node.description}" if node else None


def _list_consumers(
    ledger: Ledger, captures: Captures, producer: GraphProducer, summariser: SessionSummariser
) -> list[LedgerConsumer]:
    """What follows the ledger, in the order in which an entry is handled."""
    consumers = (
        ("capture", ENDING_EVENTS, captures.handle),
        ("graph", FOLLOWED_KINDS, producer.handle),
        ("context", ENDING_EVENTS, summariser.handle),  # may ask a model: the others first
        ("likeness", frozenset({"SessionEnded"}), producer.link_similar),
    )
    return [LedgerConsumer(name, ledger, kinds, handle, key="memory.follow") for name, kinds, handle in consumers]

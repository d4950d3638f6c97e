"""Layers D to G: what sessions said, the task graph, canonical facts, the night, forgetting (SPEC 4.4-4.10).

Builds, recovers, starts and closes the services of these layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.background import run_in_thread
from engine.home import Home
from engine.memory.agent_files import AgentFiles
from engine.memory.captures import ENDED, CaptureRow, Captures, Work
from engine.memory.drafts import DraftRow, Drafts
from engine.memory.forget import DatabaseRows, ErasableRows, ErasableStore, Forgetting, HomeFiles
from engine.memory.graph import TaskGraph
from engine.memory.graph_tasks import KINDS, GraphProducer
from engine.memory.memory import MemoryService
from engine.memory.nightly import Nightly
from engine.memory.para import Para
from engine.memory.recall import FactSource, GraphSource, LedgerSource
from engine.memory.summaries import SessionSummariser
from engine.model import Asks, Layer, LayerState, Refusal, SessionView, Waiting
from engine.model.text import count
from engine.storage.database import Transaction
from engine.storage.ledger import ConsumerThread, Ledger, LedgerConsumer

log = logging.getLogger(__name__)


class Knowledge:
    """Layers D, F and G, and E's writer. All methods may be called from any thread."""

    def __init__(
        self,
        home: Home,
        memory: MemoryService,
        ledger: Ledger,
        *,
        work: Work,
        files: AgentFiles,
        model: Asks,
        report: Callable[[str, str], None],
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`model` sums sessions up and evaluates days where the operator named one."""
        database, clock = memory.database, memory.clock
        self._home = home
        self._memory = memory
        self._work = work
        self.graph = TaskGraph(home.data, clock)
        self.para = Para(home.data / "para", database, clock)
        self.captures = Captures(database, work, memory.remember, secrets=secrets)
        self.drafts = Drafts(database, self.para, self.captures, clock)
        context = SessionSummariser(
            work, self.captures, memory.store, memory.remember, model=model, clock=clock, report=report
        )
        self.nightly = Nightly(
            database,
            clock,
            ledger=ledger,
            captures=self.captures,
            work=work,
            drafts=self.drafts,
            para=self.para,
            files=files,
            model=model,
        )
        producer = GraphProducer(self.graph, work, memory.search.sessions_like)
        self._following = ConsumerThread(
            [
                LedgerConsumer("capture", ledger, ENDED, self.captures.handle),
                LedgerConsumer("graph", ledger, KINDS, producer.handle),
                LedgerConsumer("context", ledger, ENDED, context.handle),  # may ask a model: the others first
                LedgerConsumer("likeness", ledger, frozenset({"SessionEnded"}), producer.link_similar),
            ],
            report,
        )
        # What a recall asks besides layers C and E.
        graph_source = GraphSource(self.graph, memory.search.sessions_near)
        memory.recaller.join(LedgerSource(ledger), graph_source, FactSource(self.para))

    def build_forgetting(
        self, others: Sequence[ErasableStore], text_of_other: Mapping[str, Callable[[str], str | None]]
    ) -> None:
        """Have `forgetting` take words out of all layers, of `others`, and of the home's files. The composition root
        calls it once; `text_of_other` says what entries of `others` say, by what their ids begin with."""
        home, database = self._home, self._memory.database
        captures, drafts = ErasableRows("captures", database, CaptureRow), ErasableRows("drafts", database, DraftRow)
        own = (self._memory.store, captures, drafts, self.para, self.graph)
        rest = (HomeFiles((home.data, home.logs, home.cache)), DatabaseRows(database))
        self._text_of_other = text_of_other
        self.forgetting = Forgetting(
            database,
            [*own, *others, *rest],
            text_of=self._text_of,
            running=lambda: [item.id for item in self._work.running()],
            second_pass=others,
        )

    # -- life

    def recover(self) -> list[str]:
        """Finish what a crash left half done; in words."""
        return self.para.recover() + self.forgetting.recover()

    def start(self, *, follow: bool = True) -> None:
        """Read the graph in the background, and with `follow` take in what happened since."""
        run_in_thread("clawpy-task-graph", self.graph.load)
        if follow:
            self._following.start()

    def close(self) -> None:
        """Stop following, write what is left. Safe to call twice."""
        self._following.close()
        try:
            self.para.flush()
        except (OSError, Refusal):
            log.warning("counts of facts could not be written", exc_info=True)
        self.graph.close()

    def housekeeping(self) -> None:
        """Called every half minute: what was not ready is tried again, counts are written."""
        self._following.poke()
        self.para.flush()

    def catch_up(self, until: float | None = None) -> None:
        """Take in everything that happened, now, in this thread; nothing is begun after `until`, a monotonic time."""
        self._following.catch_up(until)

    def session_changed(self, tx: Transaction, view: SessionView) -> None:
        """Observer of sessions that start or end."""
        tx.after_commit(self._following.poke)

    # -- looking

    def layers(self) -> list[LayerState]:
        """How layers D, F and G stand (SPEC 9.5)."""
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

    def _text_of(self, id: str) -> str | None:
        """What an entry of any layer says, None when `id` is none."""
        prefix = id.partition("_")[0]
        try:
            if prefix == "mem":
                memory = self._memory.store.get(id)
                return memory.text if memory else None
            if prefix == "cap":
                capture = self.captures.entry(id)
                return capture.text if capture else None
            if prefix in ("fact", "draft"):
                return self.para.get(id).fact if prefix == "fact" else self.drafts.get(id).fact
            if prefix in self._text_of_other:
                return self._text_of_other[prefix](id)
            node = self.graph.get(id)
            return "\n".join((node.title, node.description)) if node else None
        except Refusal:
            return None

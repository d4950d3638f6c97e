"""Layers D to G: what sessions said, the task graph, canonical facts, the night, forgetting (SPEC 4.4-4.10).

Nothing is decided here: services are built, recovered, started and closed, and their verbs put side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.clock import Clock
from engine.home import Home
from engine.memory.capture import ENDED, Captures
from engine.memory.context import ChangeBook, ContextEngine
from engine.memory.drafts import Drafts
from engine.memory.forget import CaptureStubs, Facts, Files, Forget, GraphTasks, Memories, Rows, Store
from engine.memory.forget_files import HomeFiles
from engine.memory.graph import TaskGraph
from engine.memory.graph_tasks import KINDS, LINKED, Linker, TaskProducer
from engine.memory.importing import Importer, ImportReport
from engine.memory.knowing import FactSource, GraphSource, LedgerSource
from engine.memory.ledger import Ledger
from engine.memory.memory import MemoryPort
from engine.memory.models import ModelEvaluator, ModelSummariser
from engine.memory.nightly import Diaries, Nightly, NightReport
from engine.memory.para import Para
from engine.memory.validation_runs import ValidationRuns
from engine.storage.database import Database, Transaction
from engine.storage.following import Follower, Following
from engine.values import (
    Asks,
    ForgetPreview,
    ForgetReport,
    Layer,
    LayerState,
    NobodyAsks,
    Refusal,
    SessionView,
    Task,
    TranscriptLine,
    Waiting,
)
from engine.values.text import count

log = logging.getLogger(__name__)

TOLD = 3
"""So many faults of an import are told; the others are counted."""


class WorkBook(Protocol):
    """Sessions, tasks, and how they hang together; see `capture.SessionBook` and `graph_tasks.Work`."""

    def get(self, session_id: str, /) -> SessionView: ...
    def session(self, session_id: str, /) -> SessionView: ...
    def transcript(self, session_id: str, /, *, after: int = 0, limit: int = 2_000) -> Sequence[TranscriptLine]: ...
    def task(self, task_id: str, /) -> Task: ...
    def continues(self, session_id: str, /) -> str: ...
    def needing(self, task_id: str, /) -> Sequence[Task]: ...
    def running(self) -> Sequence[str]: ...


class Knowledge:
    """Layers D, F and G, and E's writer. All methods may be called from any thread."""

    def __init__(
        self,
        home: Home,
        database: Database,
        clock: Clock,
        *,
        memory: MemoryPort,
        ledger: Ledger,
        work: WorkBook,
        changes: ChangeBook,
        runs: ValidationRuns,
        diaries: Diaries,
        report: Callable[[str, str], None],
        secrets: Callable[[], Iterable[str]] = tuple,
        transcripts: Callable[[], Sequence[str]] = tuple,
        workspace_of: Callable[[str], str] = lambda folder: folder,
        ours: Callable[[str], bool] = lambda folder: False,
        model: Asks | None = None,
        others: Sequence[Store] = (),
        made: Sequence[Store] = (),
        named: Mapping[str, Callable[[str], str | None]] | None = None,
    ) -> None:
        """`model` sums sessions up and evaluates days where the operator named one; `others` are stores beside memory's
        own in which somebody's words can be, `made` those of them whose entries are made of transcripts and records at
        any time; `named` says what their entries say, by what their ids begin with."""
        self._named = named or {}
        asks = model or NobodyAsks()
        self._memory = memory
        self.graph = TaskGraph(home.data, clock)
        self.para = Para(home.data / "para", database, clock)
        self.captures = Captures(database, work, memory.remember, secrets=secrets)
        self.drafts = Drafts(database, self.para, clock, approve=self.captures.approve)
        self.context = ContextEngine(
            work,
            self.captures,
            changes,
            memory.remember,
            known=lambda ref: memory.store.get(ref) is not None,
            summariser=ModelSummariser(asks, clock, report),
        )
        self.nightly = Nightly(
            database,
            clock,
            ledger=ledger,
            captures=self.captures,
            session=work.get,
            para=self.para,
            drafts=self.drafts,
            diaries=diaries,
            runs=runs,
            evaluator=ModelEvaluator(asks),
        )
        likeness = _Summaries(memory)
        producer, linker = TaskProducer(self.graph, work), Linker(self.graph, likeness)
        self._following = Following(
            [
                Follower("capture", database, ledger, ENDED, self.captures.handle),
                Follower("graph", database, ledger, KINDS, producer.handle),
                Follower("context", database, ledger, ENDED, self.context.handle),  # may ask a model: the others first
                Follower("likeness", database, ledger, LINKED, linker.handle),
            ],
            report,
        )
        self._report = report
        self._said: tuple[str, ...] = ()
        self._importer = Importer(
            database, memory.remember, transcripts, workspace_of=workspace_of, ours=ours, secrets=secrets
        )
        self._forget = Forget(
            database,
            [
                Memories(database, memory.store, memory.gone),
                CaptureStubs(database),
                Facts(self.para),
                GraphTasks(self.graph),
                *others,
                Files(HomeFiles(_folders(home))),
                Rows(database),
            ],
            text_of=self._text_of,
            running=work.running,
            again=made,
        )
        self.sources = (
            LedgerSource(ledger),
            GraphSource(self.graph, likeness.near_words),
            FactSource(self.para),
        )
        """What recall asks besides layers C and E."""

    # -- life

    def recover(self) -> list[str]:
        """Finish what a crash left half done; in words."""
        words = self.para.recover()
        if self._forget.unfinished():
            self.graph.load()
            words += self._forget.recover()
        return words

    def start(self, *, follow: bool = True) -> None:
        """Read the graph in the background, and with `follow` take in what happened since."""
        if not self.graph.begun:
            self.graph.start()
        if follow:
            self._following.start()

    def close(self) -> None:
        """Stop following, write what is left. Safe to call twice."""
        self._following.close()
        try:
            self.para.flush()
        except Refusal:
            log.warning("counts of facts could not be written", exc_info=True)
        self.graph.close()

    def poke(self) -> None:
        """Something happened. Quick."""
        self._following.poke()

    def housekeeping(self) -> None:
        """Called every half minute: what was not ready is tried again, counts are written."""
        self._following.poke()
        self.para.flush()

    def catch_up(self) -> None:
        """Take in everything that happened, now, in this thread."""
        self._following.catch_up()

    def session_started(self, tx: Transaction, view: SessionView, /) -> None:
        """Observer of sessions."""
        tx.after_commit(self.poke)

    def session_ended(self, tx: Transaction, view: SessionView, result: object, /) -> None:
        """Observer of sessions."""
        tx.after_commit(self.poke)

    # -- looking

    def layers(self) -> list[LayerState]:
        """How layers D, F and G stand (SPEC 9.5)."""
        said, said_at = self.captures.count()
        facts = self.para.facts()
        problems, waiting = self.para.problems(), self.drafts.waiting()
        graph = self.graph
        state = "ready" if graph.ready else "degraded" if graph.faults else "building"
        return [
            LayerState(Layer.CAPTURE, said, said_at, "ready"),
            LayerState(
                Layer.GRAPH,
                len(graph),
                graph.freshest,
                "degraded" if graph.faults else state,
                "; ".join(graph.faults[:3]),
                graph.progress,
            ),
            LayerState(
                Layer.PARA,
                len(facts),
                max((fact.created_at for fact in facts), default=None),
                "degraded" if problems else "ready",
                "; ".join([*problems[:3], *([f"waiting for you: {count(len(waiting), 'draft')}"] if waiting else [])]),
            ),
        ]

    # -- the operator's word

    def waiting(self) -> list[Waiting]:
        """The same as entries of his queue (SPEC 9.3)."""
        return [
            Waiting("fact", one.id, f"keep as a fact? {one.fact}", one.created_at, text=one.fact)
            for one in self.drafts.waiting()
        ]

    def forget_preview(self, what: str) -> ForgetPreview:
        """What forgetting an id or words touches; see `Forget.preview`. Takes seconds on a large home."""
        return self._forget.preview(what)

    def forget(self, what: str | Sequence[str]) -> ForgetReport:
        """Forget an id or words, or the `wanted` of a preview; see `Forget.forget`. Takes seconds on a large home."""
        return self._forget.forget(what)

    def night(self) -> list[NightReport]:
        """Work through the days that are due; the schedule calls it."""
        return self.nightly.run_due()

    def import_transcripts(self) -> ImportReport:
        """Read transcripts of other agents, those folders that `[memory] transcripts` names. What could not be read is
        told; the same again is not."""
        report = self._importer.run()
        if report.said and report.said != self._said:
            more = len(report.said) - TOLD
            self._report("transcripts", "; ".join(report.said[:TOLD]) + (f"; and {more} more" if more > 0 else ""))
        self._said = report.said
        return report

    def _text_of(self, id: str) -> str | None:
        """What an entry of any layer says, None when `id` is none."""
        prefix = id.partition("_")[0]
        found: str | None = None
        if prefix == "mem":
            memory = self._memory.store.get(id)
            found = memory.text if memory else None
        elif prefix == "cap":
            capture = self.captures.entry(id)
            found = capture.text if capture else None
        elif prefix in ("fact", "draft"):
            try:
                found = self.para.get(id).fact if prefix == "fact" else self.drafts.get(id).fact
            except Refusal:
                found = None
        elif prefix in self._named:
            found = self._named[prefix](id)
        elif self.graph.ready and " " not in id:
            node = self.graph.get(id)
            found = "\n".join((node.title, node.description)) if node else None
        return found or None


class _Summaries:
    """The summaries of layer E, by meaning."""

    def __init__(self, memory: MemoryPort) -> None:
        self._memory = memory

    def near(self, session_id: str, k: int, /) -> Sequence[tuple[str, float]] | None:
        """See `graph_tasks.Likeness`."""
        import numpy

        store = self._memory.store
        summary = store.get(f"summary:{session_id}")
        if summary is None or summary.forgotten:
            return ()
        chunks = store.chunks_of([summary.seq]).get(summary.seq, [])
        vectors = store.vectors(chunks[:1])
        if not vectors:
            return None
        vector = numpy.frombuffer(next(iter(vectors.values())), dtype="<f4").reshape(1, -1)
        return self._sessions(vector, k)

    def near_words(self, text: str, k: int, /) -> Sequence[tuple[str, float]]:
        """See `knowing.Near`."""
        vector = self._memory.vectors.embed([text])
        return () if vector is None else self._sessions(vector, k)

    def _sessions(self, vector: Any, k: int) -> list[tuple[str, float]]:
        hits = self._memory.vectors.search(vector[0], k, layers=frozenset({Layer.CONTEXT})).hits
        rows = self._memory.store.by_seq([hit.seq for hit in hits])
        return [
            (rows[hit.seq].session, 2.0 * (1.0 - hit.similarity))
            for hit in hits
            if hit.seq in rows and not rows[hit.seq].forgotten
        ]


def _folders(home: Home) -> list[Path]:
    """The folders of a home in which words of people are, none within another."""
    return [home.data, home.logs, home.cache]

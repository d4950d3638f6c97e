"""Forgetting (SPEC 4.10): what somebody said is taken out of every store, and an empty, invalidated stub stays, so that
graphs and chains are whole. First a preview; then, behind an intent, one store after the other, so that a crash in the
middle is finished at the next start.

The intent has to hold the words while they are erased. It loses them before the database is rebuilt, so that in the end
they are in no file of the home.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from sqlmodel import Session, col, select

from engine.events import MemoryForgotten
from engine.memory.capture import CaptureRow
from engine.memory.drafts import DraftRow
from engine.memory.forgetting import Wanted, pieces
from engine.memory.graph import TaskGraph
from engine.memory.para import Para
from engine.memory.store import MemoryStore
from engine.memory.tables import MemoryRow
from engine.model import Affected, ForgetPreview, ForgetReport, Refusal, sanitise
from engine.storage import erasing, intents
from engine.storage.database import Database, Transaction
from engine.storage.intents import Intent
from engine.storage.quick import driver_of

log = logging.getLogger(__name__)

INTENT = "forget"
SHOWN = 20
"""Places of each store in a preview."""

EXCERPT = 120

LEFT = (
    "worktrees, repositories and anything else outside of this home",
    "the settings",
    "names of folders and workspaces",
    "earlier wordings and names of leaders' patterns, on machines that share a database with this one",
)
"""What forgetting does not touch."""

_ROWS_ELSEWHERE = frozenset(
    {"memories", "memory_chunks", "memory_vectors", "captures", "fact_drafts", "wisdom_entries"}
)


class Store(Protocol):
    """One place that holds words of people."""

    name: str

    def find(self, wanted: Wanted, /) -> Iterator[tuple[str, str]]:
        """The entries that hold it: id and text."""

    def erase(self, wanted: Wanted, /) -> int:
        """Take it out; how many entries. Again finds nothing."""


class Forget:
    """Forgets. All methods may be called from any thread; one at a time. They read everything: seconds, not for a
    screen's own thread."""

    def __init__(
        self,
        database: Database,
        stores: Sequence[Store],
        *,
        text_of: Callable[[str], str | None],
        running: Callable[[], Iterable[str]] = tuple,
        again: Sequence[Store] = (),
    ) -> None:
        """`text_of(id)`: what an entry of any layer says; `running`: sessions whose transcripts are being written;
        `again`: those of the stores into which something may have been written from others that came after them."""
        self._again = tuple(again)
        self._database = database
        self._stores = tuple(stores)
        self._text_of = text_of
        self._running = running
        self._lock = threading.Lock()

    def preview(self, what: str) -> ForgetPreview:
        """What forgetting `what`, an id or words, touches. Raises `Refusal` `too_short`."""
        wanted = self._wanted(what)
        places: list[Affected] = []
        counts = []
        for store in self._stores:
            count = 0
            for id, text in store.find(wanted):
                count += 1
                if count <= SHOWN:
                    places.append(Affected(store.name, id, " ".join(sanitise(text).split())[:EXCERPT]))
            if count:
                counts.append((store.name, count))
        return ForgetPreview(wanted.texts, tuple(places), tuple(counts), LEFT)

    def forget(self, what: str | Sequence[str]) -> ForgetReport:
        """Forget an entry by its id, with all its copies, or everything that holds these words; or the texts that a
        preview named.

        Raises `Refusal`: `too_short`, `session_running` (somebody is being talked to at this moment), and what the
        stores raise; what was begun is then finished at the next start.
        """
        with self._lock:
            wanted = self._wanted(what) if isinstance(what, str) else Wanted(what)
            self._not_running(wanted)
            intent = self._database.write(
                lambda tx: intents.begin(tx, INTENT, "", {"phase": "erase", "wanted": list(wanted.texts)})
            )
            return self._finish(intent, wanted)

    def unfinished(self) -> bool:
        """Whether a crash left something half forgotten."""
        return bool(intents.unfinished(self._database, INTENT))

    def recover(self) -> list[str]:
        """Finish what a crash left half done."""
        said = []
        with self._lock:
            for intent in intents.unfinished(self._database, INTENT):
                texts = intent.payload.get("wanted")
                self._finish(intent.id or 0, Wanted(texts) if texts else None)
                said.append("the deletion that was interrupted when the engine stopped is complete")
        return said

    def _finish(self, intent: int, wanted: Wanted | None) -> ForgetReport:
        counts = []
        if wanted is not None:
            for store in (*self._stores, *self._again):
                number = store.erase(wanted)
                if number:
                    counts.append((store.name, number))
            places = sum(number for _, number in counts)

            def without_words(tx: Transaction) -> None:
                row = tx.session.get(Intent, intent)
                if row is not None:
                    row.payload = {"phase": "scrub"}
                    tx.session.add(row)
                tx.record(MemoryForgotten(places=places))

            self._database.write(without_words)
        if not self._database.scrub():
            log.warning("a reader kept the database's log from being emptied; it is with the next checkpoint")
        self._database.write(lambda tx: intents.finish(tx, intent))
        return ForgetReport(tuple(counts), LEFT)

    def _wanted(self, what: str) -> Wanted:
        text = self._text_of(what.strip())
        return Wanted(pieces(text)) if text else Wanted([what, *pieces(what)[1:]])

    def _not_running(self, wanted: Wanted) -> None:
        running = set(self._running())
        if not running:
            return
        for store in self._stores:
            if store.name == "files":
                for id, _ in store.find(wanted):
                    session = Path(id).name.split(".")[0]
                    if session in running:
                        raise Refusal(
                            "session_running",
                            f"{session} contains it and is running",
                            "wait until it finishes, or stop it",
                        )


class Memories:
    """Layers C and E: text, full text, chunks, vectors."""

    name = "memories"

    def __init__(self, database: Database, store: MemoryStore, gone: Callable[[], None]) -> None:
        self._database = database
        self._store = store
        self._gone = gone

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        columns = (col(MemoryRow.id), col(MemoryRow.text), col(MemoryRow.speaker), col(MemoryRow.tags))
        with self._database.read() as session:
            query = sa.select(*columns).where(~col(MemoryRow.forgotten)).order_by(col(MemoryRow.seq))
            rows = session.connection().execution_options(yield_per=500).execute(query)
            for id, text, speaker, tags in rows:
                if wanted.holds(text) or wanted.holds(speaker) or any(wanted.holds(tag) for tag in tags):
                    yield id, text

    def erase(self, wanted: Wanted) -> int:
        ids = [id for id, _ in self.find(wanted)]
        for start in range(0, len(ids), 200):
            some = ids[start : start + 200]

            def work(tx: Transaction, some: list[str] = some) -> None:
                self._store.erase(tx, some)
                tx.after_commit(self._gone)

            self._database.write(work)
        return len(ids)


class CaptureStubs:
    """Layer D, and drafts of facts."""

    name = "captures"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        with self._database.read() as session:
            for capture in self._captures(session, wanted):
                yield capture.id, capture.text
            for draft in self._drafts(session, wanted):
                yield draft.id, draft.fact

    def erase(self, wanted: Wanted) -> int:
        def work(tx: Transaction) -> int:
            captures, drafts = self._captures(tx.session, wanted), self._drafts(tx.session, wanted)
            for capture in captures:
                capture.text, capture.tags, capture.forgotten = "", [], True
                tx.session.add(capture)
            for draft in drafts:
                draft.fact, draft.reason, draft.source = "", "", ""
                draft.state = "rejected" if draft.state == "waiting" else draft.state
                tx.session.add(draft)
            return len(captures) + len(drafts)

        return self._database.write(work)

    def _captures(self, session: Session, wanted: Wanted) -> list[CaptureRow]:
        rows = session.exec(select(CaptureRow).where(~col(CaptureRow.forgotten)))
        return [row for row in rows if wanted.holds(row.text) or any(wanted.holds(tag) for tag in row.tags)]

    def _drafts(self, session: Session, wanted: Wanted) -> list[DraftRow]:
        return [row for row in session.exec(select(DraftRow)) if wanted.holds(row.fact) or wanted.holds(row.reason)]


class Facts:
    """Layer G."""

    name = "facts"

    def __init__(self, para: Para) -> None:
        self._para = para

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        yield from ((fact.id, fact.fact) for fact in self._para.holding(wanted.holds))

    def erase(self, wanted: Wanted) -> int:
        return len(self._para.blank(wanted.holds))


class GraphTasks:
    """Layer F."""

    name = "tasks"

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        yield from ((node.task_id, node.title or node.description) for node in self._graph.holding(wanted.holds))

    def erase(self, wanted: Wanted) -> int:
        number = len(self._graph.blank(wanted.holds))
        self._graph.compact()  # always: what a crash left blank in the journal is in the snapshot still
        return number


class Rows:
    """Everything else in the database, prompts and the ledger with it."""

    name = "records"

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        with self._database.read() as session:
            for one in erasing.find(driver_of(session.connection()), wanted, _ROWS_ELSEWHERE):
                yield f"{one.table}.{one.column}:{one.rowid}", erasing.words_in(one.value)

    def erase(self, wanted: Wanted) -> int:
        return self._database.write(lambda tx: erasing.erase(tx.driver, wanted, _ROWS_ELSEWHERE))

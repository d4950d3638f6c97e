"""Machines share the summaries of common projects, and what was forgotten of them (SPEC 4.5)."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.store import MemoryStore
from engine.memory.summaries import SummarySharing
from engine.model import Layer, NewMemory
from engine.storage.database import Database
from engine.storage.shared import SharedRow
from tests.support import MONDAY_MORNING
from tests.support.shared_database import LocalSharedDatabase


@dataclass
class Machine:
    """A home with layer E that shares it."""

    name: str
    store: MemoryStore
    database: Database
    sharing: SummarySharing
    projects: dict[str, str]

    def summarise(self, number: int, *, workspace: str = "") -> str:
        """Remember the summary of a session; returns the id of the memory."""
        session = f"sess_{self.name}_{number}"
        summary = NewMemory(
            f"Task: cart {number} was rounded on {self.name}.", layer=Layer.CONTEXT, kind="summary",
            speaker="backend_builder", agent="backend_builder", session=session,
            workspace=workspace or f"/home/{self.name}/shop", source=session, tags=("summary", "succeeded"),
            ref=f"summary:{session}",
        )  # fmt: skip
        return self.store.remember([summary]).ids[0]

    def forget(self, id: str):
        self.database.write(lambda tx: self.store.empty_memories(tx, [id]))

    def read_texts(self) -> set[str]:
        return {entry.text for entry in self.store.read_entries(Layer.CONTEXT) if not entry.forgotten}


@pytest.fixture
def shared_database() -> LocalSharedDatabase:
    return LocalSharedDatabase()


@pytest.fixture
def machines(tmp_path: Path, shared_database: LocalSharedDatabase) -> Iterator[tuple[Machine, Machine]]:
    with ExitStack() as stack:

        def make(name: str, minutes: int) -> Machine:
            clock = FakeClock(MONDAY_MORNING + timedelta(minutes=minutes))
            database = Database(tmp_path / f"{name}.db", clock=clock, bus=EventBus(), durable=False)
            stack.enter_context(closing(database))
            store, projects = MemoryStore(database), {f"/home/{name}/shop": "f00d"}
            sharing = SummarySharing(
                database,
                store,
                shared_database,
                origin=f"home_{name}",
                projects=lambda: projects,
                remember=store.remember,
            )
            return Machine(name, store, database, sharing, projects)

        yield make("first", 0), make("second", 1)


def exchange(*machines: Machine):
    """Exchange until all have everything."""
    for machine in (*machines, *machines):
        assert machine.sharing.exchange() == ""


def test_other_projects_and_other_layers_stay_here(
    machines: tuple[Machine, Machine], shared_database: LocalSharedDatabase
):
    first, second = machines
    first.summarise(1, workspace="/home/first/private")
    first.store.remember([NewMemory("a note", layer=Layer.CONTEXT, kind="note"), NewMemory("said", kind="summary")])
    second.projects["/home/second/other"] = "beef"
    second.summarise(2, workspace="/home/second/other")
    exchange(first, second)
    assert [document["session"] for document in shared_database.documents()] == ["sess_second_2"]
    assert first.read_texts() == {"Task: cart 1 was rounded on first.", "a note"}


def test_what_is_forgotten_here_is_forgotten_there_for_good(
    machines: tuple[Machine, Machine], shared_database: LocalSharedDatabase
):
    first, second = machines
    ids = first.summarise(1), second.summarise(2)
    exchange(first, second)
    assert first.read_texts() == second.read_texts()
    for id in ids:
        first.forget(id)
    exchange(first, second)
    first.summarise(1)
    exchange(first, second)
    assert first.read_texts() == second.read_texts() == set()
    assert shared_database.documents() == [{}, {}]
    assert all(memory is not None and memory.forgotten for memory in map(second.store.get, ids))


def test_a_shared_summary_whose_id_is_not_its_own_is_left_out(
    machines: tuple[Machine, Machine], shared_database: LocalSharedDatabase
):
    first, second = machines
    first.summarise(1)
    exchange(first)
    (document,) = shared_database.documents()
    shared_database.push("summaries/f00d", [SharedRow("mem_b", document | {"text": "obey"}, 2)])
    exchange(second)
    assert second.read_texts() == {"Task: cart 1 was rounded on first."}

"""Summaries that machines share: sent, fetched, recalled, forgotten everywhere, whatever is cut (SPEC 4.5, 4.10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.store import MemoryStore
from engine.memory.summaries import SharedSummary, SummarySharing, from_others
from engine.model import Layer, NewMemory
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.conftest import MONDAY_MORNING

PROJECT = "f00d"


@dataclass
class Shared:
    """A store in memory whose connection can be cut before or after it took something."""

    name: str = "shared"
    rows: dict[str, tuple[int, SharedSummary]] = field(default_factory=dict)
    cuts: list[str] = field(default_factory=list)
    seq: int = 0

    def _cut(self, where: str) -> None:
        if self.cuts and self.cuts[0] == where:
            self.cuts.pop(0)
            raise ConnectionError(f"cut {where}")

    def push(self, summaries: Sequence[SharedSummary], gone: Sequence[str]) -> None:
        self._cut("before push")
        for summary in summaries:
            if summary.id not in self.rows:
                self.seq += 1
                self.rows[summary.id] = (self.seq, summary)
        for id in gone:
            if id in self.rows and not self.rows[id][1].gone:
                self.seq += 1
                self.rows[id] = (self.seq, replace(self.rows[id][1], text="", gone=True))
        self._cut("after push")

    def fetch(self, project: str, cursor: int) -> tuple[Sequence[SharedSummary], int]:
        self._cut("fetch")
        found = sorted((at, one) for at, one in self.rows.values() if at > cursor and one.project == project)
        return [one for _, one in found], max((at for at, _ in found), default=cursor)


@dataclass
class Machine:
    """A home with layer E and what it shares."""

    name: str
    store: MemoryStore
    database: Database
    sharing: SummarySharing
    projects: dict[str, str]
    gone: list[int]

    def did(self, number: int | str, *, workspace: str = "") -> str:
        text = f"Task: cart {number} was rounded on {self.name}."
        place = workspace or next(iter(self.projects))
        one = NewMemory(
            text, layer=Layer.CONTEXT, kind="summary", speaker="backend_builder", agent="backend_builder",
            session=f"sess_{self.name}_{number}", workspace=place, source=f"sess_{self.name}_{number}",
            tags=("summary", "succeeded"), ref=f"summary:sess_{self.name}_{number}",
        )  # fmt: skip
        return self.store.remember([one]).ids[0]

    def forget(self, id: str) -> None:
        self.database.write(lambda tx: self.store.empty(tx, [id]))

    def texts(self) -> set[str]:
        return {entry.text for entry in self.store.entries(Layer.CONTEXT) if not entry.forgotten}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Shared, Machine, Machine]]:
    shared, made = Shared(), []
    for name in ("one", "two"):
        clock = FakeClock(MONDAY_MORNING + timedelta(minutes=len(made)))
        base = Database(tmp_path / f"{name}.db", clock=clock, bus=EventBus(), durable=False)
        store, projects, gone = MemoryStore(base), {f"/home/{name}/shop": PROJECT}, []  # type: ignore[var-annotated]
        sharing = SummarySharing(
            base, store, shared, origin=f"home_{name}",
            projects=lambda projects=projects: projects, remember=store.remember,  # type: ignore[misc]
        )  # fmt: skip
        made.append(Machine(name, store, base, sharing, projects, gone))
    yield shared, made[0], made[1]
    for one in made:
        one.database.close()


def settle(*machines: Machine) -> None:
    for _ in range(2):
        for machine in machines:
            assert machine.sharing.exchange() == ""


def test_what_one_machine_did_the_other_remembers(machines: tuple[Shared, Machine, Machine]) -> None:
    shared, one, two = machines
    id = one.did(1)
    settle(one, two)
    found = two.store.get(id)
    assert found is not None
    assert (found.id, found.workspace, found.source) == (id, "/home/two/shop", "shared:home_one")
    assert (found.agent, found.session, found.tags) == ("backend_builder", "sess_one_1", ("summary", "succeeded"))
    settle(one, two)
    assert len(shared.rows) == 1  # what came from others is not sent again
    assert len(two.store.entries(Layer.CONTEXT)) == 1


def test_other_projects_and_other_layers_stay_here(machines: tuple[Shared, Machine, Machine]) -> None:
    shared, one, two = machines
    one.did(1, workspace="/home/one/private")
    one.store.remember([NewMemory("a note", layer=Layer.CONTEXT, kind="note"), NewMemory("said", kind="summary")])
    two.projects["/home/two/other"] = "beef"
    two.did(2, workspace="/home/two/other")
    settle(one, two)
    assert [row.project for _, row in shared.rows.values()] == ["beef"]
    assert one.texts() == {"Task: cart 1 was rounded on one.", "a note"}


def test_forgotten_here_is_forgotten_there(machines: tuple[Shared, Machine, Machine]) -> None:
    shared, one, two = machines
    mine, theirs = one.did(1), two.did(2)
    settle(one, two)
    assert one.texts() == two.texts()
    one.forget(mine)
    one.forget(theirs)  # whoever said it
    settle(one, two)
    assert one.texts() == two.texts() == set()
    assert [row.text for _, row in shared.rows.values()] == ["", ""]
    assert all(found is not None and found.forgotten for found in map(two.store.get, (mine, theirs)))
    one.did(1)  # told again it does not come back
    settle(one, two)
    assert two.texts() == set()


def test_cuts_lose_and_double_nothing_and_are_told_once(machines: tuple[Shared, Machine, Machine]) -> None:
    shared, one, two = machines
    shared.cuts = ["before push", "before push", "after push", "fetch"]
    one.did(1)
    assert one.sharing.exchange() == "cut before push"
    assert one.texts() == {"Task: cart 1 was rounded on one."}  # local first
    one.did(2)
    while shared.cuts:
        one.sharing.exchange()
    settle(one, two)
    assert two.texts() == one.texts()
    assert len(two.texts()) == 2
    [failure] = Ledger(one.database).latest(kinds=("CloudSyncFailed",))
    assert (failure.subject, failure.payload["unsent"]) == ("summaries", 1)
    shared.cuts = ["fetch"]
    one.sharing.exchange()
    assert len(Ledger(one.database).latest(kinds=("CloudSyncFailed",))) == 2  # a new outage is told anew


def test_rows_that_are_not_what_they_say_are_left_out(machines: tuple[Shared, Machine, Machine]) -> None:
    shared, one, two = machines
    id = one.did(1)
    settle(one)
    at, row = shared.rows[id]
    shared.rows = {
        "a": (at, replace(row, text="something else")),
        "b": (at + 1, replace(row, id="mem_b", text=" ")),
        "c": (at + 2, replace(row, id="mem_c", text="x" * (1024 * 1024 + 1))),
    }
    assert two.sharing.exchange() == ""
    assert two.texts() == set()


def test_what_a_prompt_was_served_of_others() -> None:
    told = [
        {"id": "mem_a", "layer": "E", "source": "shared:home_one", "score": 1},
        {"id": "mem_b", "layer": "E", "source": "sess_1", "score": 1},
        {"id": "mem_c", "layer": "E", "source": "shared:home_one", "score": 1},
    ]
    assert from_others(told) == (("mem_a", "mem_c"), ("home_one",))
    assert from_others([]) == ((), ())

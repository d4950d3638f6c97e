"""Leadership that homes share: nothing is lost or doubled whatever is cut, and all come to the same (SPEC 1.9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.hierarchy.profile_items import PatternUse, ProfileEntry
from engine.hierarchy.profiles import ProfileTexts
from engine.hierarchy.sharing import Fetched
from engine.model import BubbleState
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.conftest import MONDAY_MORNING
from tests.hierarchy.guidance_world import World, edit_profile, learning, make_world


@dataclass
class Shared:
    """A shared leadership in memory whose connection can be cut before or after it took something."""

    name: str = "shared"
    rows: dict[str, tuple[int, ProfileEntry]] = field(default_factory=dict)
    counts: dict[tuple[str, str, str], tuple[int, PatternUse]] = field(default_factory=dict)
    cuts: list[str] = field(default_factory=list)
    seq: int = 0

    def _cut(self, where: str) -> None:
        if self.cuts and self.cuts[0] == where:
            self.cuts.pop(0)
            raise ConnectionError(f"cut {where}")

    def push(self, entries: Sequence[ProfileEntry], uses: Sequence[PatternUse]) -> None:
        self._cut("before push")
        for entry in entries:
            if entry.version not in self.rows or (not entry.body and self.rows[entry.version][1].body):
                self.seq += 1
                self.rows[entry.version] = (self.seq, entry)
        for use in uses:
            key = (use.leader, use.key, use.origin)
            if key not in self.counts or self.counts[key][1].uses < use.uses:
                self.seq += 1
                self.counts[key] = (self.seq, use)
        self._cut("after push")

    def fetch(self, cursor: int) -> Fetched:
        self._cut("before fetch")
        entries = [one for at, one in self.rows.values() if at > cursor]
        uses = [use for at, use in self.counts.values() if at > cursor]
        self._cut("after fetch")
        return Fetched(entries, uses, self.seq)


def test_only_leaders_are_shared(tmp_path: Path, database: Database, clock: FakeClock) -> None:
    shared = Shared()
    world = make_world(tmp_path, database, clock, store=shared)
    for name in ("ceo", "lead", "worker", "junior"):
        edit_profile(world.profiles, name, "patterns", key="p", value=f"said by {name}")
    assert world.bubbles.flush().failed == ""
    assert sorted(one.leader for _, one in shared.rows.values()) == ["ceo", "lead"]
    world.agents.assign_tier("worker", 3)  # who comes to lead is shared from then on
    world.bubbles.flush()
    assert sorted(one.leader for _, one in shared.rows.values()) == ["ceo", "lead", "worker"]


CUTS = st.sampled_from(["before push", "after push", "before fetch", "after fetch"])
ACTIONS = st.tuples(st.sampled_from([0, 1]), st.sampled_from(["offer", "flush", "edit", "use"]), st.integers(0, 6))
"""Of which home, what, and on which finding or pattern."""


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ACTIONS, min_size=5, max_size=25), st.lists(CUTS, max_size=8))
def test_two_homes_converge_whatever_is_cut(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[int, str, int]], cuts: list[str]
) -> None:
    shared, clock = Shared(cuts=list(cuts)), FakeClock(MONDAY_MORNING)
    worlds: list[World] = []
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("home")
        database = Database(folder / "c.db", clock=clock, bus=EventBus(), durable=False)
        worlds.append(make_world(folder, database, clock, store=shared, seed=seed))
    queued: set[str] = set()
    try:
        for home, action, number in actions:
            world = worlds[home]
            if action == "offer":
                bubble = world.bubbles.offer(learning(number))
                if bubble.state is BubbleState.QUEUED:
                    queued.add(bubble.learning.text)
            elif action == "edit":
                edit_profile(world.profiles, "lead", "patterns", key=f"p{number}", value=f"edited {home} {number}")
            elif action == "use":
                world.call("worker", f"ses_{number}")
            else:
                world.bubbles.flush()
        shared.cuts.clear()
        for _ in range(12):
            for world in worlds:
                world.bubbles.flush()
        first, second = (
            {
                (pattern.key, pattern.text, pattern.uses, frozenset(pattern.sources))
                for pattern in world.profiles.get("lead").patterns
            }
            for world in worlds
        )
        assert first == second
        assert queued <= {text for _, text, _, _ in first}
        assert not any(world.bubbles.list(state=BubbleState.QUEUED) for world in worlds)
    finally:
        for world in worlds:
            world.database.close()


@pytest.fixture
def homes(tmp_path: Path, clock: FakeClock) -> Iterator[tuple[Shared, World, World]]:
    """Two homes and the leadership that they share."""
    shared, worlds = Shared(), []
    for seed in (1, 2):
        folder = tmp_path / f"home{seed}"
        folder.mkdir()
        database = Database(folder / "c.db", clock=clock, bus=EventBus(), durable=False)
        worlds.append(make_world(folder, database, clock, store=shared, seed=seed))
    yield shared, worlds[0], worlds[1]
    for world in worlds:
        world.database.close()


def exchange(*worlds: World) -> None:
    for world in (*worlds, *worlds):
        assert world.bubbles.flush().failed == ""


def uses(world: World) -> int:
    return next(pattern.uses for pattern in world.profiles.get("lead").patterns if pattern.key == "lead_first")


def test_what_homes_used_adds_up_also_where_a_use_comes_while_others_are_sent(
    homes: tuple[Shared, World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, first, second = homes
    push, late = shared.push, ["ses_late"]

    def slow_push(entries: Sequence[ProfileEntry], counts: Sequence[PatternUse]) -> None:
        push(entries, counts)
        if late:
            first.call("worker", late.pop())

    monkeypatch.setattr(shared, "push", slow_push)
    first.call("worker")
    second.call("worker")
    exchange(first, second)
    assert (uses(first), uses(second)) == (3, 3)
    first.call("worker", "ses_next")
    exchange(first, second)
    assert (uses(first), uses(second)) == (4, 4)


def test_what_is_forgotten_in_one_home_leaves_the_other_and_what_they_share(homes: tuple[Shared, World, World]) -> None:
    shared, first, second = homes
    edit_profile(first.profiles, "lead", "patterns", key="staging", value="the staging password is hunter2")
    edit_profile(first.profiles, "lead", "patterns", key="staging", value="ask for the staging password")
    exchange(first, second)
    ProfileTexts(first.database, first.profiles).erase(SearchTerms(["hunter2"]))
    exchange(first, second)
    for world in (first, second):
        assert [version.text for version in world.profiles.history("lead", "staging")] == [
            "ask for the staging password",
            "",
        ]
    assert "hunter2" not in str(shared.rows)


def test_another_shared_leadership_is_sent_everything(
    homes: tuple[Shared, World, World], tmp_path: Path, clock: FakeClock
) -> None:
    _, first, second = homes
    edit_profile(first.profiles, "lead", "patterns", key="p", value="Write the test first.")
    exchange(first, second)
    other = Shared("other")
    moved = make_world(tmp_path / "home1", first.database, clock, store=other)
    exchange(moved)
    assert [entry.body["text"] for _, entry in other.rows.values()] == ["Write the test first."]

"""Homes that share profiles get the same profiles; no row is lost or doubled if the connection fails (SPEC 1.9)."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import BubbleState
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.conftest import MONDAY_MORNING
from tests.hierarchy.guidance_world import Organisation, edit_profile, make_learning, make_world, read_versions
from tests.support.shared_database import LocalSharedDatabase


@pytest.fixture
def shared_database() -> LocalSharedDatabase:
    return LocalSharedDatabase()


@contextmanager
def open_homes(
    folder: Path, clock: FakeClock, shared: LocalSharedDatabase
) -> Iterator[tuple[Organisation, Organisation]]:
    """Two homes that share one database."""
    with ExitStack() as stack:

        def make_home(seed: int) -> Organisation:
            home = folder / f"home{seed}"
            home.mkdir()
            database = Database(home / "c.db", clock=clock, bus=EventBus(), durable=False)
            stack.enter_context(closing(database))
            return make_world(home, database, clock, shared=shared, seed=seed)

        yield make_home(1), make_home(2)


@pytest.fixture
def homes(
    tmp_path: Path, clock: FakeClock, shared_database: LocalSharedDatabase
) -> Iterator[tuple[Organisation, Organisation]]:
    with open_homes(tmp_path, clock, shared_database) as worlds:
        yield worlds


def exchange(*worlds: Organisation):
    """Exchange until all have everything."""
    for world in (*worlds, *worlds):
        assert world.bubbles.flush().failed == ""


def read_shared_texts(shared: LocalSharedDatabase) -> dict[str, str]:
    """The wordings of the pattern `p` in the shared database, by leader."""
    return {row["leader"]: row["texts"][0] for row in shared.documents() if row["key"] == "p"}


def test_only_leaders_are_shared(
    tmp_path: Path, database: Database, clock: FakeClock, shared_database: LocalSharedDatabase
):
    world = make_world(tmp_path, database, clock, shared=shared_database)
    for name in ("ceo", "lead", "worker", "junior"):
        edit_profile(world.profiles, name, "patterns", key="p", value=f"said by {name}")
    exchange(world)
    assert sorted(read_shared_texts(shared_database)) == ["ceo", "lead"]
    world.agents.assign_tier("worker", 3)
    exchange(world)
    assert sorted(read_shared_texts(shared_database)) == ["ceo", "lead", "worker"], (
        "an agent that comes to lead is shared"
    )


ACTIONS = st.tuples(st.sampled_from([0, 1]), st.sampled_from(["offer", "flush", "edit", "use"]), st.integers(0, 6))
"""(home, what is done there, the number of a finding or pattern)."""


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(ACTIONS, min_size=5, max_size=25), st.lists(st.sampled_from(["", "before", "after"]), max_size=16))
def test_two_homes_converge_whatever_is_cut(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[int, str, int]], cuts: list[str]
):
    shared = LocalSharedDatabase(cuts=cuts)
    queued = set()
    with open_homes(tmp_path_factory.mktemp("homes"), FakeClock(MONDAY_MORNING), shared) as worlds:
        for home, action, number in actions:
            world = worlds[home]
            if action == "offer":
                bubble = world.bubbles.offer(make_learning(number))
                if bubble.state is BubbleState.QUEUED:
                    queued.add(bubble.learning.text)
            elif action == "edit":
                edit_profile(world.profiles, "lead", "patterns", key=f"p{number}", value=f"edited {home} {number}")
            elif action == "use":
                world.call("worker", f"ses_{number}")
            else:
                world.bubbles.flush()
        shared.cuts.clear()
        exchange(*worlds * 6)  # often enough for what was cut to be sent again
        first, second = (
            {
                (pattern.key, pattern.text, pattern.uses, frozenset(pattern.sources))
                for pattern in world.profiles.read("lead").patterns
            }
            for world in worlds
        )
        assert first == second
        assert queued <= {text for _, text, _, _ in first}
        assert not any(world.bubbles.list(state=BubbleState.QUEUED) for world in worlds)


def test_what_is_forgotten_in_one_home_leaves_the_other_and_the_shared_database(
    homes: tuple[Organisation, Organisation], shared_database: LocalSharedDatabase
):
    first, second = homes
    for text in ("the staging password is hunter2", "ask for the staging password"):
        edit_profile(first.profiles, "lead", "patterns", key="staging", value=text)
    exchange(first, second)
    first.profiles.erase(SearchTerms(["hunter2"]))
    exchange(first, second)
    for world in (first, second):
        assert read_versions(world.database, "lead", "staging") == ["ask for the staging password", ""]
    assert "hunter2" not in str(shared_database.documents())


def test_what_is_forgotten_does_not_return_with_an_older_copy_of_another_home(
    homes: tuple[Organisation, Organisation], clock: FakeClock
):
    first, second = homes
    edit_profile(first.profiles, "lead", "patterns", key="staging", value="the password is hunter2")
    exchange(first, second)
    clock.advance(timedelta(minutes=1))
    edit_profile(second.profiles, "lead", "patterns", key="staging", value="it is hunter2 now")
    clock.advance(timedelta(minutes=1))
    first.profiles.erase(SearchTerms(["hunter2"]))
    exchange(first, second)
    for world in (first, second):
        assert world.profiles.read("lead").find_text("patterns", "staging") == ""
        assert "hunter2" not in world.cascade.guidance("worker").block

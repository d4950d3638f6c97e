"""Homes that share profiles (SPEC 1.9): only those of leaders, and what one forgets leaves them all. `test_postgres.py`
cuts the connection."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from engine.storage.shared import SharedDatabase
from tests.hierarchy.guidance_world import Organisation, edit_profile, make_world, read_versions
from tests.support.checks import refused
from tests.support.shared_database import LocalSharedDatabase


@pytest.fixture
def shared_database() -> LocalSharedDatabase:
    return LocalSharedDatabase()


@pytest.fixture
def homes(
    tmp_path: Path, clock: FakeClock, shared_database: LocalSharedDatabase
) -> Iterator[tuple[Organisation, Organisation]]:
    """Two homes that share one database."""
    with ExitStack() as stack:

        def make_home(seed: int) -> Organisation:
            home = tmp_path / f"home{seed}"
            home.mkdir()
            database = Database(home / "c.db", clock=clock, bus=EventBus(), durable=False)
            stack.enter_context(closing(database))
            return make_world(home, database, clock, shared=shared_database, seed=seed)

        yield make_home(1), make_home(2)


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
    homes: tuple[Organisation, Organisation], clock: FakeClock, shared_database: LocalSharedDatabase
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
        assert not any(read_versions(world.database, "lead", "staging"))
    assert "hunter2" not in str(shared_database.documents())


@pytest.mark.parametrize("url", ["u:hunter2@h/db", "postgresql://u:hun%zzter2@h", "postgresql://u:hun ter2@h/db"])
def test_an_invalid_url_is_refused_without_being_quoted(url: str):
    pytest.importorskip("psycopg")
    refusal = refused("bad_shared_url", lambda: SharedDatabase(url).connect())
    assert "hun" not in str(refusal)
    assert refusal.__cause__ is None

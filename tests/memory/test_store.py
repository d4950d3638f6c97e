"""Layers C and E in SQLite (SPEC 4.3, 4.5): what is kept once, for how long, and without secrets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.memory import search
from engine.memory.memory import MemoryService
from engine.memory.store import MAX_MEMORY_BYTES
from engine.model import Layer, NewMemory, RecallQuery, Retention
from engine.storage.database import Database
from tests.memory.memory_services import MakeMemory, WordVectors, make_turns
from tests.support.checks import refused


def read_texts(memory: MemoryService, words: str = "") -> list[str]:
    """The texts in layer C with all these words."""
    return [entry.text for entry in memory.read_entries(Layer.VECTORS, words=words)]


def test_a_secret_is_cut_out_before_it_is_stored(memory: MemoryService):
    memory.remember(make_turns("deploy with sk-abcdefghijklmnopqrstuvwxyz to the box"))
    assert read_texts(memory, "deploy box") == ["deploy with [secret cut] to the box"]


def test_the_same_twice_is_one_memory_and_another_speaker_or_session_makes_another(memory: MemoryService):
    once = memory.remember([*make_turns("a", "b"), *make_turns("a")])
    again = memory.remember([replace(turn, at=datetime(2026, 1, 5, tzinfo=UTC)) for turn in make_turns("b", "a")])
    assert once.new == 2
    assert again.new == 0
    assert once.ids[0] == once.ids[2] == again.ids[1]
    assert memory.remember([*make_turns("a", speaker="Bob"), *make_turns("a", session="s2")]).new == 2
    assert memory.store.count() == 4


def test_memories_expire_after_a_month_or_a_day_after_their_session(make_memory: MakeMemory, clock: FakeClock):
    memory = make_memory(embedder=WordVectors(), running=frozenset({"running"}))
    memory.remember(
        [
            NewMemory("month", retention=Retention.MONTH),
            NewMemory("for ever", kind="decision"),
            NewMemory("over", retention=Retention.SESSION, session="over"),
            NewMemory("still running", retention=Retention.SESSION, session="running"),
        ]
    )
    memory.settle(10)

    def find_remaining(span: timedelta) -> set[str]:
        clock.advance(span)
        memory.housekeeping()
        return set(read_texts(memory))

    second = timedelta(seconds=1)
    assert find_remaining(timedelta(days=1) - second) == {"month", "for ever", "over", "still running"}
    assert find_remaining(second) == {"month", "for ever", "still running"}
    assert find_remaining(timedelta(days=29) - second) == {"month", "for ever", "still running"}
    assert find_remaining(second) == {"for ever", "still running"}
    assert read_texts(memory, "month") == []
    assert [memory.store.has_more_chunks_than(number) for number in (1, 2)] == [True, False], "one for each memory"


@pytest.mark.parametrize(
    "new_memory, code",
    [
        (NewMemory("  \n"), "empty_memory"),
        (NewMemory("ä" * (MAX_MEMORY_BYTES // 2 + 1)), "memory_too_long"),
        (NewMemory("x", layer=Layer.PARA), "bad_memory"),
        (NewMemory("x", at=datetime(2026, 1, 1)), "bad_memory"),  # noqa: DTZ001
    ],
)
def test_an_invalid_memory_is_refused_with_its_whole_batch(memory: MemoryService, new_memory: NewMemory, code: str):
    refused(code, lambda: memory.remember([NewMemory("good"), new_memory]))
    assert memory.store.count() == 0


def test_words_that_are_everywhere_do_not_make_a_large_store_slow(
    memory: MemoryService, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The rarest words choose the memories that are compared; of a word that is everywhere the newest are compared."""
    monkeypatch.setattr(search, "MAX_SCORED", 10)
    memory.remember(make_turns(*(f"common line {number}" + " rare" * (number < 3) for number in range(40))))
    newest = memory.read_entries(Layer.VECTORS, limit=1)[0].seq
    with search.open_reader(database, RecallQuery("")) as reader:
        assert len(reader.find_by_words(["common", "rare"], 300)) == 3
        everywhere = reader.find_by_words(["common"], 300)
        assert sorted(everywhere) == list(range(newest - 10, newest + 1))  # and the one after which the search begins
        assert reader.find_by_words(['"', "nowhere"], 300) == {}

"""The search for words in a large store of memories (SPEC 4.4)."""

import pytest

from engine.memory import search
from engine.memory.memory import MemoryService
from engine.model import Layer, RecallQuery
from engine.storage.database import Database
from tests.memory.conftest import make_turns


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

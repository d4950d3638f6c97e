"""How an entry of memory is described on the memory screen (SPEC 4, 9.5)."""

import pytest

from clawpy_console.screens.memory_entries import make_entry, make_entry_fields, make_full_text
from engine.model import AgentFile, Layer, Memory, Retention
from tests.console.stand_in_data import NOW

pytestmark = pytest.mark.long


def make_memory(text: str, *, forgotten: bool = False) -> Memory:
    return Memory("mem_1", Layer.VECTORS, text, "turn", NOW, Retention.FOREVER, NOW, forgotten=forgotten)


@pytest.mark.parametrize(
    "value, shown, is_forgotten",
    [
        (make_memory("forgotten"), "forgotten", False),  # it says so, and is not erased
        (make_memory("", forgotten=True), "Forgotten: its text is removed everywhere.", True),
    ],
)
def test_an_erased_memory_keeps_its_place_and_says_so(value: Memory, shown: str, is_forgotten: bool):
    entry = make_entry(value)
    assert (entry.text, entry.is_forgotten, entry.can_be_forgotten) == ("forgotten", is_forgotten, not is_forgotten)
    assert make_full_text(entry).startswith(shown)


def test_an_entry_shows_its_attributes_and_its_problem():
    file = AgentFile("cto", "memory.md", "", "", problem="is not UTF-8")
    texts = [field.text for field in make_entry_fields(make_entry(file), "/agents", NOW)]
    assert {"/agents/cto/memory.md", "✗ is not UTF-8"} <= set(texts)
    fields = {field.name: field.text for field in make_entry_fields(make_entry(make_memory("cents")), "/agents", NOW)}
    assert fields["kept"] == "forever"

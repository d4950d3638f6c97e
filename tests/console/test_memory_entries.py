"""Values of the engine as entries of the memory screen."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console.screens.memory.entries import detail_fields, full_text, to_entry
from engine.model import AgentFile, Layer, Memory, Retention

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def memory(text: str, *, forgotten: bool = False) -> Memory:
    return Memory("mem_1", Layer.VECTORS, text, "turn", NOW, Retention.FOREVER, NOW, forgotten=forgotten)


def test_a_memory_that_says_forgotten_is_not_taken_for_an_erased_one() -> None:
    entry = to_entry(memory("forgotten"))
    assert (entry.is_forgotten, entry.can_be_forgotten, full_text(entry)) == (False, True, "forgotten")


def test_an_erased_memory_keeps_its_place_and_says_so() -> None:
    entry = to_entry(memory("", forgotten=True))
    assert (entry.text, entry.is_forgotten, entry.can_be_forgotten) == ("forgotten", True, False)
    assert full_text(entry).startswith("Forgotten: its text is removed everywhere.")


def test_the_attributes_and_the_problem_of_an_entry_are_shown() -> None:
    file = AgentFile("cto", "memory.md", "", "", problem="is not UTF-8")
    shown = [field.text for field in detail_fields(to_entry(file), "/agents", NOW)]
    assert shown[1] == "/agents/cto/memory.md"
    assert "✗ is not UTF-8" in shown
    named = {field.name: field.text for field in detail_fields(to_entry(memory("cents")), "/agents", NOW)}
    assert named["kept"] == "forever"

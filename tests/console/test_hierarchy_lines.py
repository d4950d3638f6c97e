"""How a leader's guidance and a finding are written, for the screen and for a verb."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console.fields.agent import edited_fields, finding_fields, profile_fields

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SAID = "Round a discount once, at the end"


def test_patterns_say_who_found_them_and_how_often_they_were_used() -> None:
    patterns = [{"text": SAID, "foundBy": 0, "uses": 0}, {"text": f"cents: {SAID}", "foundBy": 2, "uses": 1}]
    text = [
        line.text
        for line in profile_fields({"principles": [], "guardrails": [], "patterns": patterns, "decisions": []})
    ]
    assert text == ["patterns", f"- {SAID}", f"- cents: {SAID}  · found by 2 workers  · in 1 prompt"]


def test_a_finding_that_arrived_is_a_pattern_by_its_name_where_it_has_one() -> None:
    def told(pattern: str) -> str:
        item = {
            "state": "flushed", "text": SAID, "targetAgent": "ui", "leader": "lead", "createdAt": NOW.isoformat(),
            "flushedAt": NOW.isoformat(), "trust": "measured", "pattern": pattern, "confidence": 0.9,
            "importance": 0.8, "reasons": [], "category": "", "evidence": [], "gates": [],
        }  # fmt: skip
        return "\n".join(line.text for line in finding_fields(item, NOW))

    assert "as a pattern of lead," in told("les_0123456789ab")
    assert "as the pattern money_in_cents," in told("money_in_cents")


def test_a_section_that_an_edit_empties_says_that_soul_md_is_used_again() -> None:
    text = [line.text for line in edited_fields({"edits": [{}], "fromSoul": ["principles"], "prompts": []})]
    assert text[0] == "▲ principles is empty: what soul.md says of it is used again."

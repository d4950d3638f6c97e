"""How a leader's profile and findings are written, without a screen."""

from __future__ import annotations

from datetime import UTC, datetime

from clawpy_console.screens.hierarchy.lines import bubble_lines, profile_lines
from engine.values import Bubble, BubbleState, LeaderProfile, Learning, Pattern, Score

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SAID = "Round a discount once, at the end"


def test_patterns_are_told_in_words_with_the_names_that_somebody_gave_them() -> None:
    patterns = (Pattern("les_0123456789ab", SAID), Pattern("les_00000000cafe", SAID), Pattern("cents", "x"))
    text = [line.plain for line in profile_lines(LeaderProfile("cto", patterns=patterns), 80)]
    assert text[-3:] == [f"- {SAID}", f"- {SAID}", "- cents: x"]


def test_a_finding_that_arrived_is_a_pattern_by_its_name_where_it_has_one() -> None:
    def told(pattern: str) -> str:
        found = Learning("l", SAID, "", "ui", "", Score(0.9, ()), Score(0.8, ()), ())
        one = Bubble("b", found, "lead", BubbleState.FLUSHED, (), NOW, flushed_at=NOW, pattern=pattern)
        return "\n".join(line.plain for line in bubble_lines(one, NOW, 80))

    assert "as a pattern of lead," in told("les_0123456789ab")
    assert "as the pattern money_in_cents," in told("money_in_cents")

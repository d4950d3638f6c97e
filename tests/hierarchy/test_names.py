"""What patterns are called, and when a name is worth saying (SPEC 1.9)."""

from __future__ import annotations

import pytest

from engine.hierarchy.names import opaque_key, pattern_key
from engine.values import Pattern

SAID = "Round a discount once, at the end: one test saw a cent go missing"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("money_in_cents", f"money_in_cents: {SAID}"),
        ("round_first", f"round_first: {SAID}"),
        (pattern_key("Measure before tuning"), f"measure_before_tuning_117ac: {SAID}"),  # it was put otherwise since
        (pattern_key(SAID), SAID),
        (opaque_key(SAID), SAID),
    ],
)
def test_a_name_that_was_made_of_the_words_or_of_nothing_is_not_said(key: str, said: str) -> None:
    assert Pattern(key, SAID).said == said

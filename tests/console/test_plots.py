"""Plots as text: they fit their width whatever the figures, and shapes alone tell nothing, none and some apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpy_console.screens.insights import lines as insight_lines
from clawpy_console.screens.insights import plots
from engine.values import ConfidenceBucket, Drift, Group, Shift, Slice

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def slices(*decided: tuple[int, int]) -> list[Slice]:
    days = [FIRST + timedelta(days=number) for number in range(len(decided) + 1)]
    return [Slice(days[number], days[number + 1], *one) for number, one in enumerate(decided)]


def bucket(stated: float, rate: float, decided: int = 20, unstated: int = 0) -> ConfidenceBucket:
    return ConfidenceBucket(0.6, 0.7, decided, rate, stated, max(0.0, rate - 0.1), min(1.0, rate + 0.1), unstated)


def groups(count: int) -> list[Group]:
    return [Group(f"a name of some length {number}", 1000 * number, number, 1, 0.5, 90_000) for number in range(count)]


def test_nothing_decided_none_approved_and_some_look_different() -> None:
    lines = [line.plain for line in plots.bars(slices((0, 0), (0, 3), (1, 1), (3, 0)), 30, 4)]
    columns = ["".join(line[5 + 6 * number : 6 + 6 * number] or " " for line in lines[:4]) for number in range(4)]
    assert columns == ["   ·", "   ▁", "  ██", "████"]
    assert lines[4].split() == ["n", "3", "2", "3"]
    assert lines[5].rstrip().endswith("today")


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (bucket(0.65, 0.75), "✓ as stated"),
        (bucket(0.65, 0.7501), "▲ too low"),
        (bucket(0.65, 0.5499), "▼ too high"),
        (bucket(0.65, 0.65, 4), "few"),
        (bucket(0.4, 0.9, 3, unstated=3), "cold start"),
    ],
)
def test_the_verdict_on_a_range_of_confidence(one: ConfidenceBucket, said: str) -> None:
    assert plots.verdict(one)[0] == said


def test_what_was_stated_and_what_came_stand_on_one_scale() -> None:
    [line, _] = plots.calibration([bucket(0.7, 0.75)], 120)
    places = [line.plain.index(sign) for sign in "├┃●┤"]
    assert places == sorted(places)
    assert "├" not in plots.calibration([bucket(0.65, 0.75)], 120)[0].plain  # what was stated stands there
    assert "◉" in plots.calibration([bucket(0.65, 0.65)], 120)[0].plain


def test_a_table_gives_up_the_bar_first_then_the_cost_then_nothing_of_its_numbers() -> None:
    wide, middling, narrow = ([line.plain for line in plots.table(groups(3), width, what="kind", most=2)]
                              for width in (70, 46, 40))  # fmt: skip
    assert "━" in wide[1]
    assert "$0.09" in wide[1]
    assert "━" not in middling[1]
    assert "$0.09" in middling[1]
    assert "$0.09" not in narrow[1]
    assert "50%" in narrow[1]
    assert narrow[-1] == "and 1 more"


@pytest.mark.long
@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=40),
    st.integers(30, 220),
    st.integers(3, 20),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_every_line_fits(decided: list[tuple[int, int]], width: int, height: int, stated: float, rate: float) -> None:
    shift = Shift("run_tests", 1, 20, 0.8)
    drift = Drift(50, "your taste changed in the last 50 decisions", (shift,))
    lines = [
        *plots.bars(slices(*decided), width, height),
        *plots.table(groups(4), width, what="source", most=3),
        *insight_lines.drift(drift, width),
        *(plots.clock([Group("09", 3, 2, 1, 0.66, None)], width)),
        *(plots.clock([Group("09", 3, 2, 1, 0.66, None)], width, height)),
    ]
    if width >= 48:
        lines += plots.calibration([bucket(stated, rate), bucket(0.5, 0.5, 0)], width)
    assert max(line.cell_length for line in lines) <= width


def test_a_change_of_taste_is_told_by_kind() -> None:
    drift = Drift(50, "your taste changed", (Shift("run_tests", 1, 20, 0.8), Shift("bisect", 19, 20, 0.3)))
    lines = [line.plain for line in insight_lines.drift(drift, 200)]
    assert lines == [
        "▲ your taste changed",
        "  ▼ wanted less: Tests of what changed  approved 1 of 20, before 80%",
        "  ▲ wanted more: Test that broke  approved 19 of 20, before 30%",
    ]


def test_the_hours_stand_in_columns_where_there_is_room() -> None:
    hours = [Group("9", 4, 3, 1, 0.75, None), Group("14", 2, 0, 2, 0.0, None)]
    lines = [line.plain for line in plots.clock(hours, 60, 4)]
    assert ["".join(line.ljust(60)[5 + 2 * hour] for line in lines[:4]) for hour in (8, 9, 14)] == [
        "   ·",
        " ███",
        "   ▁",
    ]
    assert lines[-1].split() == ["0", "3", "6", "9", "12", "15", "18", "21"]
    assert lines[-1].index("9") == 5 + 2 * 9

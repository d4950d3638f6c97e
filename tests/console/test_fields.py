"""The fields of learnings, candidates and agents, which screens and verbs show (SPEC 9.5)."""

import pytest

from clawpy_console.fields import learning as learning_fields
from clawpy_console.fields import make_change_fields
from clawpy_console.widgets.texts import render_fields
from engine import document
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stand_in_learning import StandInAdaptation, StandInLearnings
from tests.support.helpers import assert_contains


@pytest.fixture
def candidates() -> StandInAdaptation:
    return StandInAdaptation(StandIn())


@pytest.fixture
def learnings() -> StandInLearnings:
    return StandInLearnings(StandIn())


@pytest.mark.parametrize("width", [36, 48, 78, 120])
def test_no_line_is_wider_than_its_room(candidates: StandInAdaptation, learnings: StandInLearnings, width: int):
    fields = [
        field
        for id in candidates.all
        for field in learning_fields.make_candidate_fields(document(candidates.view(id)), NOW)
    ]
    fields += [
        field
        for id in learnings.all
        for field in learning_fields.make_learning_fields(document(learnings.view(id)), NOW)
    ]
    assert [line.plain for line in render_fields(fields, width) if line.cell_length > width] == []


def test_a_change_shows_only_the_lines_near_it():
    many = [f"line {number}" for number in range(60)]
    changed = [*many[:10], "other", *many[11:40], "last", *many[41:]]
    lines = [field.text for field in make_change_fields(many, changed)]
    assert lines[0] == "  ⋮"
    assert lines.count("  ⋮") == 2
    assert_contains(lines, "+ other", "- line 40")
    assert "  line 0" not in lines
    assert list(make_change_fields(many, many)) == []
    assert [change.text for change in make_change_fields(["a", "b"], ["c", "b"])] == ["- a", "+ c", "  b"]

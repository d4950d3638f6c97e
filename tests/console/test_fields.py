"""The fields of learnings, candidates and agents, which screens and verbs show (SPEC 9.5)."""

import dataclasses

import pytest

from clawpy_console.fields import learning as learning_fields
from clawpy_console.fields import make_change_fields
from clawpy_console.fields.agent import make_finding_fields, make_profile_fields
from clawpy_console.widgets.texts import render_fields
from engine import document
from engine.model import Bubble, BubbleState, OfferedFinding, Score
from tests.console.driving import format_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stand_in_learning import LIFT, STOCK, YOUNG, StandInAdaptation, StandInLearnings
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


def test_lift_shows_runs_share_difference_and_interval(candidates: StandInAdaptation):
    def describe_lift(value: object) -> str:
        view = dataclasses.replace(candidates.view(STOCK.id), lift=value)
        return format_text(learning_fields.make_lift_fields(document(view)["lift"]))

    assert "31 of 38 runs went well, 82%" in describe_lift(LIFT)
    assert "+32 points, 80 % interval +2 to +58" in describe_lift(LIFT)
    assert "not enough evidence" in describe_lift(YOUNG)
    none = describe_lift(dataclasses.replace(YOUNG, without_runs=0, without_good=0))
    assert "0 of 0 runs" in none
    assert "points" not in none
    assert "Not measured yet" in describe_lift(None)


SAID = "Round a discount once, at the end"


def test_patterns_name_their_finders_and_uses():
    patterns = [{"text": SAID, "foundBy": 0, "uses": 0}, {"text": f"cents: {SAID}", "foundBy": 2, "uses": 1}]
    text = [
        line.text
        for line in make_profile_fields({"principles": [], "guardrails": [], "patterns": patterns, "decisions": []})
    ]
    assert text == ["patterns", f"- {SAID}", f"- cents: {SAID}  · found by 2 workers  · in 1 prompt"]


def test_a_delivered_finding_names_its_pattern():
    def describe_finding(pattern: str) -> str:
        learning = OfferedFinding("learning:1", SAID, "", "ui", "", Score(0.9, ()), Score(0.8, ()))
        finding = Bubble("bub_1", learning, "lead", BubbleState.FLUSHED, (), NOW, NOW, pattern)
        return "\n".join(line.text for line in make_finding_fields(document(finding), NOW))

    assert "as a pattern of lead," in describe_finding("les_0123456789ab")
    assert "as the pattern money_in_cents," in describe_finding("money_in_cents")

"""How candidates and learnings are told, on the screen and by a verb."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest

from clawpy_console.cli.printing.style import field_lines, plain
from clawpy_console.fields import Field, change_fields
from clawpy_console.fields import learning as learning_fields
from clawpy_console.screens.learning_rows import link_rows
from clawpy_console.widgets.reflowing_text import render_fields
from engine import document
from engine.model.adaptation import LearningRecord
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW
from tests.console.stand_in_learning import (
    GLOBAL,
    LIFT,
    PROJECT,
    RECORDS,
    ROUNDING,
    SESSIONS,
    STOCK,
    TEST,
    YOUNG,
    Adaptation,
    Learnings,
)
from tests.support.helpers import assert_contains


@pytest.fixture
def port() -> Adaptation:
    return Adaptation(StandIn())


@pytest.fixture
def learnings() -> Learnings:
    return Learnings(StandIn())


def text(fields: Iterable[Field]) -> str:
    return plain("\n".join(field_lines(fields)))


def recorded(record: LearningRecord, port: Adaptation) -> dict[str, Any]:
    view = dataclasses.replace(port.view(ROUNDING.id), records=(record,))
    return document(view)["records"][0]


@pytest.mark.parametrize("width", [36, 48, 78, 120])
def test_no_line_is_wider_than_its_room(port: Adaptation, learnings: Learnings, width: int) -> None:
    fields = [field for id in port.all for field in learning_fields.candidate_fields(document(port.view(id)), NOW)]
    fields += [
        field for id in learnings.all for field in learning_fields.learning_fields(document(learnings.view(id)), NOW)
    ]
    assert [line.plain for line in render_fields(fields, width) if line.cell_length > width] == []


def test_only_what_is_near_to_a_change_is_shown() -> None:
    many = [f"line {number}" for number in range(60)]
    changed = [*many[:10], "other", *many[11:40], "last", *many[41:]]
    told = [field.text for field in change_fields(many, changed)]
    assert told[0] == "  ⋮"
    assert told.count("  ⋮") == 2
    assert_contains(told, "+ other", "- line 40")
    assert "  line 0" not in told
    assert list(change_fields(many, many)) == []
    assert [change.text for change in change_fields(["a", "b"], ["c", "b"])] == ["- a", "+ c", "  b"]


def test_a_record_says_why_it_has_its_score_and_what_was_recorded(port: Adaptation) -> None:
    said = {"attempts": 3, "failing": ["a", "b"], "gave_up": "", "cost": 120_000}
    item = recorded(dataclasses.replace(RECORDS[0], details=said), port)
    told = text(learning_fields.record_fields(item, NOW))
    assert_contains(
        told,
        f"failed_tdd/{TEST}: 82 of 100",
        "60 + 3 · 8",
        "session sess_000000000002 · attempts 3 · failing a, b · cost $0.12",
    )


def test_lift_says_runs_share_difference_and_interval(port: Adaptation) -> None:
    def lift(value: object) -> str:
        view = dataclasses.replace(port.view(STOCK.id), lift=value)
        return text(learning_fields.lift_fields(document(view)["lift"]))

    assert "31 of 38 runs went well, 82%" in lift(LIFT)
    assert "+32 points, 80 % interval +2 to +58" in lift(LIFT)
    assert "not enough evidence" in lift(YOUNG)
    none = lift(dataclasses.replace(YOUNG, without_runs=0, without_good=0))
    assert "0 of 0 runs" in none
    assert "points" not in none
    assert "Not measured yet" in lift(None)


def test_a_learning_is_linked_both_ways(learnings: Learnings) -> None:
    rows = list(link_rows(document(learnings.view(PROJECT.id)), {SESSIONS[1]: "Round totals"}, NOW))
    headings = [row.text for row in rows if not row.id]
    assert headings == [" CAME FROM  3", " BECAME  1", " SESSIONS  3", " REACHED 12 PROMPTS, THE NEWEST  3"]
    assert f"learning:{GLOBAL.id}" in [row.id for row in rows]
    assert next(row.text for row in rows if row.id == f"session:{SESSIONS[1]}") == "Round totals"
    ids = [row.id for row in rows if row.id]
    assert len(ids) == len(set(ids))

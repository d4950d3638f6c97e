"""What is missing until something runs by itself, and why nothing may start now (SPEC 7.1 to 7.4)."""

import pytest

from engine.autonomy.autonomous_runs import (
    ApprovalRecord,
    AutonomyRequirements,
    find_reason_not_to_start,
    find_requirements,
)
from engine.config.settings import WorkspaceAutonomy
from tests.support import read_table


def make_requirements(
    *records: ApprovalRecord, autonomous: bool = True, phase: int = 1, autonomy: str = "act", decisions: int = 10
) -> AutonomyRequirements:
    return find_requirements(
        autonomous=autonomous,
        autonomies={"/home/me/my shop": WorkspaceAutonomy(autonomy)},
        quiet="",
        decisions=decisions,
        phase=phase,
        records=records,
        threshold=0.8,
    )


def test_no_requirement_is_missing_where_a_kind_has_earned_it():
    earned = make_requirements(
        ApprovalRecord("run_tests", "koji-core", 11, 11, "shop"), ApprovalRecord("status", "koji-core", 1, 4)
    )
    assert (earned.missing, earned.earned) == ((), ("“Tests of what changed” on koji-core in shop",))
    assert earned.words.endswith("on cards with a confidence of 0.80 or more: " + earned.earned[0])


def test_missing_requirements_are_one_line():
    learning = make_requirements(
        ApprovalRecord("status", "docs", 1, 4), ApprovalRecord("run_tests", "koji-core", 8, 8), phase=0
    )
    assert learning.words == (
        "only `run` items of heartbeats may run by themselves yet: the Twin is still learning, "
        "no kind of card has earned it yet "
        "(best: “Tests of what changed” on koji-core, approved 8 of 8, needs 11 of 11)"
    )
    off = make_requirements(autonomous=False, autonomy="cards")
    assert off.missing == (
        "autonomous mode is off (clawpy config set autonomousModeEnabled true)",
        "no workspace is set to `act` (clawpy config set 'workspaces.\"/home/me/my shop\".autonomy' act)",
        "no kind of card has earned it yet",
    )  # fmt: skip


def test_run_items_of_heartbeats_wait_for_the_first_decisions_too():
    first_days = make_requirements(phase=0, decisions=9)
    assert first_days.words.startswith("does not act by itself yet: first days: 9 of 10 decisions made, ")
    assert not first_days.do_orders_run
    assert make_requirements(phase=0).do_orders_run


@pytest.mark.parametrize("facts, reason", read_table(__file__)["stops"])
def test_what_stops_all_workspaces_is_said_before_what_stops_one(facts: dict[str, str | bool], reason: str):
    values = {"stopped": "", "autonomous": True, "autonomy": "act", "quiet": ""} | facts
    values["autonomy"] = WorkspaceAutonomy(values["autonomy"])
    assert find_reason_not_to_start(**values) == reason

"""What is still needed before anything runs by itself, by the gate's own rules (SPEC 2.5, 2.6, 7.4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.autonomy.autonomous_runs import ApprovalRecord, AutonomyRequirements, autonomy_requirements
from engine.statistics import wilson_lower_bound


def told(*records: ApprovalRecord, autonomous: bool = True, phase: int = 1, act: str = "act") -> AutonomyRequirements:
    return autonomy_requirements(autonomous=autonomous, autonomies=[act], quiet=False, phase=phase,
                   records=records, threshold=0.8)  # fmt: skip


def test_nothing_is_missing_where_a_kind_has_earned_it() -> None:
    found = told(ApprovalRecord("run_tests", "koji-core", 11, 11), ApprovalRecord("status", "koji-core", 1, 4))
    assert (found.missing, found.earned) == ((), ("“Tests of what changed” on koji-core",))
    assert found.words.endswith("on cards with a confidence of 0.80 or more: “Tests of what changed” on koji-core")


def test_what_is_missing_is_told_in_one_line() -> None:
    found = told(ApprovalRecord("status", "docs", 1, 4), ApprovalRecord("run_tests", "koji-core", 8, 8), phase=0)
    assert found.words == (
        "does not act by itself yet: the Twin is still learning, no kind of card has earned it yet "
        "(best: “Tests of what changed” on koji-core 8 of 8, needs 11 of 11)"
    )
    off = told(autonomous=False, act="cards")
    assert off.missing == (
        "autonomous mode is off (clawpy config set autonomousModeEnabled true)",
        "no workspace is set to `act` (all are set to `cards`)", "no kind of card has earned it yet",
    )  # fmt: skip


@given(st.integers(1, 60), st.data())
def test_so_many_further_approvals_reach_the_bound_and_one_less_does_not(decided: int, data: st.DataObject) -> None:
    one = ApprovalRecord("kind", "channel", data.draw(st.integers(0, decided)), decided)
    further = one.needs - decided
    assert wilson_lower_bound(one.approved + further, one.needs) >= 0.8
    assert one.earned == (further == 0)
    assert one.earned or wilson_lower_bound(one.approved + further - 1, one.needs - 1) < 0.8

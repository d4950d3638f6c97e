"""How candidates, their lift and learnings are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from clawpy_console.screens.learning import candidate_lines, learning_lines, station_lines
from clawpy_console.screens.learning.lift_lines import AXES, interval, lift_lines, points
from engine.values.adaptation import CandidateStatus, EffectPreview, Lift, Station
from tests.console.stand_in import StandIn
from tests.console.stand_in_adaptation import (
    CHEAP,
    EMOJI,
    LIFT,
    RECORDS,
    ROUNDING,
    STOCK,
    TEST,
    YOUNG,
    Adaptation,
    stations,
)
from tests.console.stand_in_data import NOW
from tests.console.stand_in_learnings import FOUND, GLOBAL, OLD, PROJECT, PROXY, SESSIONS, Learnings

WIDTHS = (36, 48, 78, 120)


def text(lines: Iterable[Content]) -> str:
    return "\n".join(line.plain for line in lines)


@pytest.fixture
def port() -> Adaptation:
    return Adaptation(StandIn())


@pytest.fixture
def learnings() -> Learnings:
    return Learnings(StandIn())


def test_rows_say_type_scope_what_score_evidence_and_lift(port: Adaptation) -> None:
    rows = candidate_lines.candidate_rows(list(port.all.values()), {STOCK.id: LIFT}, 90)
    assert [row.text for row in rows if not row.id and row.text] == [
        " WAITS FOR YOU", " ACTIVE", " NEEDS MORE EVIDENCE", " ROLLED BACK", " REJECTED",
    ]  # fmt: skip
    by_id = {row.id: row for row in rows}
    assert by_id[ROUNDING.id].text.split()[:2] == ["fix", "backend_builder"]
    assert by_id[ROUNDING.id].right.split() == ["75", "5", "–"]
    assert by_id[STOCK.id].right.split() == ["81", "2", "+32"]
    waiting = [row.id for row in rows if row.mark == "▲"]
    assert waiting == [ROUNDING.id, CHEAP.id]  # the best borne out first


def test_rows_of_one_status_only(port: Adaptation) -> None:
    rows = candidate_lines.candidate_rows(list(port.all.values()), {}, 90, only=CandidateStatus.REJECTED)
    assert [row.id for row in rows] == ["", EMOJI.id]


def test_the_scope_has_no_column_in_a_narrow_list(port: Adaptation) -> None:
    narrow = candidate_lines.candidate_rows([ROUNDING], {}, 46)[1].text
    assert "backend_builder" not in narrow
    assert "scope" in candidate_lines.columns(78).plain
    assert "scope" not in candidate_lines.columns(46).plain


def test_a_lift_that_nobody_can_tell_yet_has_no_number(port: Adaptation) -> None:
    [_, row] = candidate_lines.candidate_rows([STOCK], {STOCK.id: YOUNG}, 90)
    assert row.right.split()[-1] == "…"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_its_room(port: Adaptation, learnings: Learnings, width: int) -> None:
    lines: list[Content] = []
    for one in port.all:
        view = port.view(one)
        lines += candidate_lines.heading(view.candidate, NOW, width)
        lines += station_lines.station_lines(view.stations, NOW, width)
        lines += candidate_lines.effect_lines(view.preview, width)
        lines += lift_lines(LIFT, view.overlays, view.candidate.status, NOW, width)
        lines += candidate_lines.record_lines(RECORDS[0], NOW, width, leads="⏎")
        for how in ("approve", "reject", "roll back"):
            lines += candidate_lines.changes_lines(view, how, width)
        lines.append(candidate_lines.section("LIFT", width))
    for name in learnings.all:
        lines += learning_lines.entry_lines(learnings.view(name), NOW, width)
        lines += learning_lines.retract_lines(learnings.view(name), width)
        lines += learning_lines.promote_lines(learnings.view(name), width)
    assert [line.plain for line in lines if line.cell_length > width] == []


def test_stations_stand_below_each_other_or_side_by_side(port: Adaptation) -> None:
    told = stations(ROUNDING)
    narrow = station_lines.station_lines(told, NOW, 78)
    assert [line.plain.split()[1] for line in narrow if line.plain[0] in "✓▲○"] == [
        "detect", "draft", "score", "corroborate", "review", "promote",
    ]  # fmt: skip
    assert "✓ corroborate      06:12  73: 2 other records bear it out" in text(narrow)
    wide = station_lines.station_lines(told, NOW, 120)
    assert all(name in wide[0].plain for name in ("✓ detect ", "▲ review ", "○ promote"))
    assert "failed_tdd 4" in wide[2].plain
    assert "waits for you" in wide[2].plain
    assert len(wide) < len(narrow)


def test_what_does_not_fit_into_a_column_is_said_in_the_list() -> None:
    told = [Station(name, NOW, "one two three four five six " * 6, "done") for name in ("detect", "draft")]
    assert not station_lines.told_whole(told, 60)
    assert text(station_lines.station_lines(told, NOW, 60)).count("…") == 2
    whole = " ".join(text(station_lines.station_list(told, NOW, 60)).split())
    assert whole.count("one two three four five six") == 12
    assert station_lines.told_whole(stations(ROUNDING), 120)


def test_a_rejected_one_says_so_at_its_last_station() -> None:
    last = station_lines.station_line(stations(EMOJI), 100).plain.rpartition("── ")[2]
    assert last == "✗ reject"


@pytest.mark.parametrize(("width", "shown"), [(78, "corroborate ── "), (61, "corroborate ▲"), (55, "corrob… ▲")])
def test_the_line_of_stations_is_whole_in_a_narrow_column(width: int, shown: str) -> None:
    line = station_lines.station_line(stations(ROUNDING), width)
    assert shown in line.plain
    assert line.plain.endswith("promote")
    assert line.cell_length <= width


def test_only_the_review_waits_for_the_operator() -> None:
    at = [Station("corroborate", NOW, "", "now"), Station("review", NOW, "", "now")]
    assert station_lines.station_line(at, 60).plain == "◐ corroborate ── ▲ review"


def test_a_state_nobody_knows_is_no_crash() -> None:
    assert "○ later" in station_lines.station_line([Station("later", None, "", "odd")], 60).plain


def test_an_effect_is_a_diff_with_signs(port: Adaptation) -> None:
    told = text(candidate_lines.effect_lines(port.view(ROUNDING.id).preview, 110)).split("\n")
    assert told[0] == "  playbook of backend_builder in shop"
    assert "- 2. Look at what changed since it was green." in told
    assert "+ 3. Look at what changed since it was green." in told


def test_an_effect_on_nothing_says_so() -> None:
    assert "It would change nothing right now" in text(candidate_lines.effect_lines(EffectPreview(("a",), ("a",)), 80))


def test_only_what_is_near_to_a_change_is_shown() -> None:
    many = tuple(f"line {number}" for number in range(60))
    changed = (*many[:10], "other", *many[11:40], "last", *many[41:])
    told = text(candidate_lines.effect_lines(EffectPreview(many, changed), 80))
    assert "line 0" not in told.split("\n")
    assert "  ⋮" in told
    assert "+ other" in told
    assert "- line 40" in told


def test_records_stand_by_what_they_do_for_it(port: Adaptation) -> None:
    rows = candidate_lines.record_rows(port.view(ROUNDING.id), NOW)
    assert [row.text for row in rows if not row.id and row.text] == [
        " DRAFTED FROM  2", " BEAR IT OUT  2", " SPEAK AGAINST IT  1",
    ]  # fmt: skip
    assert rows[1].text == "failed_tdd: 3 attempts stayed red: 60 + 3 · 8, less 2 for a test that is new"
    assert rows[1].right.split() == ["82", "30h"]
    assert rows[-1].mark == "✗"


def test_a_record_says_how_it_was_reckoned_and_where_it_leads() -> None:
    told = text(candidate_lines.record_lines(RECORDS[0], NOW, 100, leads="⏎"))
    assert "failed_tdd  82 of 100" in told
    assert "60 + 3 · 8" in told
    assert TEST in told
    assert "⏎ goes to its session sess_000000000002" in told
    assert "It did not happen in a session" in text(candidate_lines.record_lines(RECORDS[1], NOW, 100, leads="⏎"))
    assert candidate_lines.record_lines(None, NOW, 100) == []


def test_a_record_says_what_its_fact_said() -> None:
    said = {"test": TEST, "attempts": 3, "failing": ["a", "b"], "gave_up": "", "cost": 120_000}
    one = dataclasses.replace(RECORDS[0], details=said)
    assert f"test {TEST} · attempts 3 · failing a, b · cost $0.12" in text(candidate_lines.record_lines(one, NOW, 140))


def test_what_harms_wants_the_operator() -> None:
    harms = dataclasses.replace(LIFT, verdict="harms", difference=-0.3)
    [_, row] = candidate_lines.candidate_rows([STOCK], {STOCK.id: harms}, 90)
    assert (row.mark, row.mark_style, row.right.split()[-1]) == ("▲", "wants", "-30")


def test_decisions_say_what_they_change(port: Adaptation) -> None:
    view = port.view(ROUNDING.id)
    assert "+ 3. Look at what changed" in text(candidate_lines.changes_lines(view, "approve", 110))
    assert "- 3. Look at what changed" in text(candidate_lines.changes_lines(view, "roll back", 110))
    assert "Nothing changes" in text(candidate_lines.changes_lines(view, "reject", 110))


def lifted(lift: Lift | None, status: CandidateStatus = CandidateStatus.PROMOTED, width: int = 100) -> str:
    return text(lift_lines(lift, (), status, NOW, width))


def test_lift_says_runs_share_difference_and_interval() -> None:
    told = lifted(LIFT)
    assert "✓ helps · 50 runs so far" in told
    assert "31 of  38 went well,  82 %" in told
    assert "6 of  12 went well,  50 %" in told
    assert "+32 points; 80 % interval: +2 to +58" in told


def test_too_few_runs_are_said_as_such() -> None:
    assert "not enough evidence · 5 runs so far" in lifted(YOUNG)
    none = dataclasses.replace(YOUNG, without_runs=0, without_good=0)
    assert "0 of   0" in lifted(none)
    assert "points" not in lifted(none)


def test_what_is_not_measured_is_said_as_such() -> None:
    assert lifted(None) == "Not measured: no run has tried it yet."
    assert lifted(None, CandidateStatus.REVIEW) == "Nothing to measure: it is not active."


def test_points_have_a_sign() -> None:
    assert (points(0.316), points(-0.25), points(0.004), points(-0.004)) == ("+32", "-25", "±0", "±0")


@given(
    st.floats(-1, 1, allow_nan=False), st.floats(-1, 1, allow_nan=False), st.floats(-1, 1, allow_nan=False),
    st.integers(5, 90),
)  # fmt: skip
def test_an_interval_is_on_its_axis_whatever_it_is(one: float, two: float, three: float, cells: int) -> None:
    low, middle, high = sorted((one, two, three))
    axis, scale = interval(Lift("o", 1, 1, 1, 1, middle, low, high, ""), cells)
    assert axis.plain.count("●") == 1
    assert axis.cell_length == scale.cell_length
    drawn = axis.plain.strip()
    assert drawn.rfind("├") <= drawn.index("●")
    assert drawn.index("●") <= max(drawn.find("┤"), drawn.index("●"))
    end = next((edge for edge in AXES if max(-low, high, low, -high) * 100 <= edge), 100)
    assert str(end) in scale.plain


# Learnings


def test_scopes_from_the_widest_with_counts_and_faults(learnings: Learnings) -> None:
    rows = learning_lines.scope_rows(learnings.scopes(), {SESSIONS[0]: "Round cart totals"}, NOW)
    assert [row.text.split()[0] for row in rows] == ["all", "global", "project", *["session"] * 3, "team"]
    named = {row.text: row for row in rows}
    assert named["all of them"].right.split() == ["8"]
    assert named["project  shop"].right.split() == ["2", "12h"]
    assert "session  Round cart totals" in named
    assert named[f"session  {SESSIONS[2]}"].mark == "▲"
    team = dataclasses.replace(learnings.scopes()[-1], path="learnings/projects/p/sessions/sess_9/teams/backend_lead")
    [_, row] = learning_lines.scope_rows([team], {"sess_9": "Round cart totals"}, NOW)
    assert row.text == "team     backend_lead: Round cart totals"
    faulty = next(one for one in learnings.scopes() if one.faults)
    assert "institutional.md:14" in text(learning_lines.scope_lines(faulty, 60))


def test_an_entry_says_how_sure_how_weighty_and_why(learnings: Learnings) -> None:
    told = text(learning_lines.entry_lines(learnings.view(PROJECT.id), NOW, 100))
    assert "● holds  project shop  directive" in told
    assert "confidence ▇▇▇▇▇▇▇▇▇· 0.90" in told
    assert "importance ▇▇▇▇▇▇···· 0.62" in told
    assert "tests confirmed it: 0.90; a failure was avoided: +0.50" in told
    assert "said again by 2 sessions" in told
    assert "it reached 12 prompts" in told


def test_a_retracted_entry_says_why(learnings: Learnings) -> None:
    told = text(learning_lines.entry_lines(learnings.view(OLD.id), NOW, 100))
    assert "✗ retracted" in told
    assert "since 1.2 it is reserved at once" in told
    [row] = learning_lines.entry_rows([OLD], NOW, 60, scoped=True)
    assert (row.mark, row.style) == ("✗", "faint")


def test_provenance_leads_both_ways(learnings: Learnings) -> None:
    found = learning_lines.leads(learnings.view(PROJECT.id), {SESSIONS[1]: "Round totals"}, NOW)
    titles = [one.row.text for one in found if not one.row.id and one.row.text]
    assert titles == [" CAME FROM  3", " OWED TO  3", " WENT TO  1", " REACHED  12"]
    assert [one.entry for one in found if one.entry] == [*(one.id for one in FOUND), GLOBAL.id]
    named = {one.row.text: one.session for one in found}
    assert named[f"session {SESSIONS[0]}"] == SESSIONS[0]
    assert named["session Round totals"] == SESSIONS[1]
    ids = [one.row.id for one in found if one.row.id]
    assert len(ids) == len(set(ids))


def test_retracting_says_what_it_queues(learnings: Learnings) -> None:
    told = text(learning_lines.retract_lines(learnings.view(PROJECT.id), 80))
    assert "1 learning was promoted from it" in told
    assert "▸ global: Money is whole cents" in told
    assert "Nothing valid was promoted from it" in text(learning_lines.retract_lines(learnings.view(GLOBAL.id), 80))


def test_what_is_about_the_operator_says_that_it_stays(learnings: Learnings) -> None:
    assert "never promoted" in text(learning_lines.entry_lines(learnings.view(PROXY.id), NOW, 80))

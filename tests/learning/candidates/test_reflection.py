"""Ledger entries become records once, each kind with its label, scope and score; signatures of errors, and which
repeated commands are sequences (SPEC 5.1)."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.events import (
    BudgetExceeded,
    ChangeSetBranched,
    ChangeSetLanded,
    ChangeSetNarrowed,
    CloudMemoryRecalled,
    CloudSyncFailed,
    Event,
    FactPromoted,
    GuidanceApplied,
    GuidanceFoundNoisy,
    GuidanceFoundStale,
    MemoryBubbleFlushed,
    OverlayFoundHarmful,
    PermissionAnswered,
    PredictionConfirmed,
    TeachingRefreshed,
    WorkOverlapped,
)
from engine.learning.candidates import HealedTests
from engine.learning.candidates.records import MIN_OPPORTUNITY_SCORE
from engine.learning.candidates.reflection import ENTRY_CURSOR, EXEC_PREFIX, MIN_RUNS, find_sequences
from engine.storage import state
from tests.learning.candidates.adaptation_world import (
    AGENT,
    SHOP,
    TOTAL,
    AdaptationWorld,
    make_agent_erred,
    make_budget_exceeded,
    make_correction,
    make_fact,
    make_retry_repeated,
    make_tools_used,
    make_validation_failed,
)

HERE = {"workspace": SHOP}

# Events as their producers record them

FLUSHED = MemoryBubbleFlushed(
    subject="cto", bubbles=("bub_1", "bub_2"), patterns=("p1", "p2"), agents=(AGENT, "other"), confidences=(0.9, 0.75),
    importances=(0.7, 0.6),
)  # fmt: skip
NOISY = GuidanceFoundNoisy(
    subject="cto#patterns/x", leader="cto", agent=AGENT, wording="w", told=12, told_bad=9, untold=12, untold_bad=2,
    harm=0.1,
)  # fmt: skip
STALE = GuidanceFoundStale(subject="cto#patterns/x", leader="cto", wording="w", days=200, most=180, told=4)
HARMFUL = OverlayFoundHarmful(
    subject="over_1", **HERE, candidate_id="cand_1", type="prompt_fragment", agent=AGENT, with_runs=12, with_good=3,
    without_runs=12, without_good=10, difference=-0.58, low=-0.85, high=-0.12,
)  # fmt: skip
RECALLED = CloudMemoryRecalled(
    subject=AGENT, **HERE, session_id="sess_1", call="call_1", memories=("mem_1", "mem_2"), origins=("h1", "h1")
)
LANDED = ChangeSetLanded(subject="chg_1", **HERE, session_id="sess_1", files=2)
APPROVED = PredictionConfirmed(subject="pred_1", **HERE, decided_by="operator")
EDITED = PredictionConfirmed(subject="pred_edited", **HERE, decided_by="operator", edited=True)
UNSHARED = CloudSyncFailed(subject="leadership", message="no route", unsent=10)


def make_overlap(session: str = "sess_1", conflicting: tuple[str, ...] = ("a.py",)) -> Event:
    return WorkOverlapped(
        subject="chg_2", **HERE, session_id=session, agent=AGENT, other="chg_1", other_session_id="sess_0",
        files=("a.py", "b.py"), conflicting=conflicting,
    )  # fmt: skip


def make_guidance_applied(items: int = 3) -> Event:
    return GuidanceApplied(
        subject=AGENT, **HERE, session_id="sess_1", call="call_1", chain=("cto",), sources=("cto",),
        items=tuple(f"cto#patterns/{n}" for n in range(items)), wordings=("w",) * items, tokens=40,
    )  # fmt: skip


def make_fact_promoted(fact: str, by: str = "operator") -> Event:
    return FactPromoted(subject=fact, **HERE, by=by)


def make_permission_answered(answer: str, by: str = "") -> Event:
    return PermissionAnswered(subject="perm_1", **HERE, session_id="sess_1", tool="exec", answer=answer, by=by)


# Records


@pytest.mark.parametrize(
    "event, expected",
    [
        (make_validation_failed("sess_1"), [(f"failed_tdd/{TOTAL}", "workspace", SHOP, 80.0)]),
        (make_retry_repeated("sess_1"), [("repeated_retry", "agent", AGENT, 85.0)]),
        (make_overlap(), [("task_conflict", "agent", AGENT, 66.5)]),
        (make_overlap(conflicting=()), [("task_conflict", "agent", AGENT, 28.0)]),
        (make_budget_exceeded(), [("budget_incident", "agent", AGENT, 80.0)]),
        (APPROVED, [("human_approval/card", "workspace", SHOP, 20.0)]),
        (PredictionConfirmed(subject="pred_1", **HERE, decided_by="autonomy"), []),
        (EDITED, [("human_approval/edited:koji-core:run-tests", "agent", AGENT, 82.9)]),
        (make_permission_answered("allow-once"), [("human_approval/permission:exec", "workspace", SHOP, 25.0)]),
        (make_permission_answered("allow-session"), [("human_approval/permission:exec", "workspace", SHOP, 30.0)]),
        (make_permission_answered("deny-once"), []),
        (make_permission_answered("allow-once", by="perm_0"), []),  # an earlier answer was used again
        (LANDED, [("human_approval/change_set", "workspace", SHOP, 29.0)]),
        (make_fact_promoted("fact_1"), [("human_approval/fact:prices-are-whole-cents", "workspace", SHOP, 65.0)]),
        (make_fact_promoted("fact_1", by="nightly"), []),
        (make_fact_promoted("fact_gone"), []),
        (make_agent_erred("sess_1"), [("agent_error/edit/no_match", "agent", AGENT, 60.0)]),
        (FLUSHED, [("successful_bubble", "agent", AGENT, 80.0), ("successful_bubble", "agent", "other", 67.5)]),
        (make_guidance_applied(), [("guidance_applied", "agent", AGENT, 31.0)]),
        (NOISY, [("guidance_noisy", "agent", AGENT, 68.0)]),
        (HARMFUL, [("guidance_noisy/overlay", "agent", AGENT, 69.6)]),
        (STALE, [("stale_guidance", "leader", "cto", 50.2)]),
        (TeachingRefreshed(taught=3, unchanged=1), [("teaching_refresh", "leader", "", 40.0)]),
        (UNSHARED, [("cloud_sync_failure/leadership", "leader", "", 60.0)]),
        (RECALLED, [(f"cloud_memory_recall_hit/mem_{number}", "agent", AGENT, 45.0) for number in (1, 2)]),
    ],
)  # fmt: skip
def test_each_event_becomes_its_records_once(
    world: AdaptationWorld, event: Event, expected: list[tuple[str, str, str, float]]
):
    world.sources.corrections_by_card["pred_edited"] = make_correction(
        "Fix the total", "Fix the total and run the tests too"
    )
    world.sources.facts["fact_1"] = make_fact("Prices are whole cents.")
    world.record(event)
    assert world.adaptation.catch_up() == len(expected)
    records = world.adaptation.list_records()[::-1]
    assert [(record.source_label, record.scope_type, record.scope_id, record.score) for record in records] == expected
    assert all(record.reason and record.id.startswith("rec_") and record.fact for record in records)
    # The entries are read again, as after a crash before the cursor was stored.
    world.database.write(lambda tx: state.put(tx, ENTRY_CURSOR, 0))
    assert world.reopen().catch_up() == len(expected)
    assert world.adaptation.list_records()[::-1] == records


def test_a_landing_that_fixed_tests_is_a_heal_of_each(world: AdaptationWorld):
    cause = "TypeError: no discount in cart.py"
    world.sources.healed_by_session["sess_1"] = HealedTests({TOTAL: cause, "t.py::other": ""}, "shop", AGENT, 20_000)
    world.record(LANDED)
    world.adaptation.catch_up()
    second, first, _ = world.adaptation.list_records()
    assert [first.source_label, second.source_label] == ["successful_heal/t.py::other", f"successful_heal/{TOTAL}"]
    assert (second.scope_type, second.scope_id, second.agent) == ("workspace", SHOP, AGENT)
    assert second.details["causes"] == [cause]
    assert (second.details["landed"], second.details["project"]) == ("chg_1", "shop")
    assert second.score >= MIN_OPPORTUNITY_SCORE


@pytest.mark.parametrize("end", [
    LANDED,
    ChangeSetNarrowed(subject="chg_1", **HERE, session_id="sess_1", files=2),
    ChangeSetBranched(subject="chg_1", **HERE, session_id="sess_1", branch="clawpy/fix", landed=2),
])  # fmt: skip
def test_changes_that_landed_in_parts_are_approved_and_healed_once(world: AdaptationWorld, end: Event):
    world.sources.healed_by_session["sess_1"] = HealedTests({TOTAL: ""}, "shop", AGENT, 20_000)
    world.record(replace(LANDED, files=1, left=1))
    assert world.adaptation.catch_up() == 0, "the operator has not decided on the rest yet"
    world.record(end, replace(LANDED, files=1, left=1), LANDED)
    world.adaptation.catch_up()
    heal, approval = world.adaptation.list_records()
    assert (approval.source_label, approval.details["files"]) == ("human_approval/change_set", 2)
    assert heal.source_label == f"successful_heal/{TOTAL}"


def test_an_exceeded_budget_is_one_record_a_day(world: AdaptationWorld):
    world.record(
        make_budget_exceeded(spent=1_000_000),
        make_budget_exceeded(),
        BudgetExceeded(subject="other", spent=2, budget=1),
    )
    world.adaptation.catch_up()
    world.clock.advance(timedelta(days=1))
    world.record(make_budget_exceeded())
    world.adaptation.catch_up()
    days = [
        (record.scope_id, record.details["day"]) for record in world.adaptation.list_records("budget_incident")[::-1]
    ]
    assert days == [(AGENT, "2026-01-05"), ("other", "2026-01-05"), (AGENT, "2026-01-06")]


def test_earlier_errors_raise_the_score_also_within_one_reading(world: AdaptationWorld):
    message = "x" * 30
    world.record(*(make_agent_erred(f"sess_{n}", message, "edit") for n in range(3)))
    world.adaptation.catch_up()
    world.record(make_agent_erred("sess_3", message, "edit"))
    world.adaptation.catch_up()
    assert [record.score for record in world.adaptation.list_records()[::-1]] == [50.0, 55.0, 60.0, 65.0]


# Signatures of errors


@pytest.mark.parametrize(
    "tool, message, signature",
    [
        ("edit", "no_match: the old text is not in src/a.py", "no_match"),
        ("grep", "there is no tool 'grep'; there are read, write", "there-tool-there-are-read-write"),
        ("exec", "exec:pytest: exit code 127", "exec-pytest-exit-code"),
        ("model", "HTTP 529: overloaded", "http-overloaded"),
    ],
)
def test_the_signature_of_an_error_has_no_names_and_numbers(
    world: AdaptationWorld, tool: str, message: str, signature: str
):
    world.record(make_agent_erred("sess_1", message, tool))
    world.adaptation.catch_up()
    (record,) = world.adaptation.list_records()
    assert record.source_label == f"agent_error/{tool}/{signature}"


# Sequences

STEPS = ("exec:git status", "exec:git diff", "exec:pytest")


def end_sessions_with_steps(world: AdaptationWorld, sessions: range):
    """Sessions that have the same three steps among others of their own."""
    for number in sessions:
        other = [f"exec:tool{number}", "read", "edit", "read"]
        world.record(make_tools_used(f"sess_{number}", *other[: number % 4], *STEPS, *other[number % 4 :]))


def run_commands(*names: str) -> list[str]:
    """The calls of a run that consist of these commands."""
    return [EXEC_PREFIX + name for name in names]


COMMANDS = run_commands(*(f"tool{number}" for number in range(12)))


def make_random_runs(seed: int, planted: Sequence[str]) -> list[list[str]]:
    """30 sessions of 20 calls, some frequent and some rare. `planted` is somewhere in about 40 % of them."""
    chance = random.Random(seed)
    runs = []
    for _ in range(30):
        run = [COMMANDS[min(int(chance.expovariate(0.25)), 11)] for _ in range(20)]
        if planted and chance.random() < 0.4:
            at = chance.randrange(len(run) + 1)
            run[at:at] = planted
        runs.append(run)
    return runs


def test_repeated_steps_are_a_record_of_each_session_that_has_them(world: AdaptationWorld):
    end_sessions_with_steps(world, range(6))
    world.adaptation.run_round()
    records = world.adaptation.list_records("tool_sequence")
    assert {record.source_label for record in records} == {
        "tool_sequence/exec:git status > exec:git diff > exec:pytest"
    }
    assert {record.session_id for record in records} == {f"sess_{number}" for number in range(6)}
    assert all(record.score >= 60 for record in records)
    end_sessions_with_steps(world, range(6, 7))
    world.adaptation.catch_up()
    world.adaptation.run_round()
    assert len(world.adaptation.list_records("tool_sequence")) == 7


def test_planted_sequences_are_found_and_random_calls_have_none():
    """20 random histories for each length of the planted sequence, and 20 with nothing planted."""
    found_planted = {0: 0, 3: 0, 4: 0, 5: 0}
    found_others = dict.fromkeys(found_planted, 0)
    for length in found_planted:
        for seed in range(20):
            planted = tuple(random.Random(seed).sample(COMMANDS, length))
            calls = [sequence.calls for sequence in find_sequences(make_random_runs(seed, planted))]
            found_planted[length] += planted in calls
            found_others[length] += len(calls) - (planted in calls)
    assert found_planted[3] >= 16
    assert found_planted[4] >= 18
    assert found_planted[5] == 20
    assert found_others[0] <= 1
    assert max(found_others.values()) <= 4


def test_the_longest_sequence_wins_over_its_parts():
    long_runs = [run_commands("p", "a", "b", "c", "d", "e", "q")] * 8
    (sequence,) = find_sequences(long_runs)
    assert sequence.calls == tuple(run_commands("p", "a", "b", "c", "d")), "the first of equally long ones"
    short_runs = []
    for number in range(12):
        others = random.Random(number).sample(["n1", "n2", "n3", "n4", "n5", "n6"], 6)
        short_runs.append(run_commands(*others[:3], "b", "c", "d", *others[3:]))
    runs_by_calls = {sequence.calls: sequence.runs for sequence in find_sequences([*long_runs, *short_runs])}
    part = tuple(run_commands("b", "c", "d"))
    assert runs_by_calls[part] == tuple(range(8, 20)), "only where the longer one does not occur"


def test_a_sequence_must_occur_in_three_sessions():
    own_commands = [[f"{number}{letter}" for letter in "abcdefgh"] for number in range(MIN_RUNS)]
    runs = [run_commands(*own[:4], "x", "y", "z", *own[4:]) for own in own_commands]
    assert find_sequences(runs)
    assert not find_sequences(runs[:-1])
    assert not find_sequences([runs[0] * 20, runs[1]]), "one session that loops proves nothing"


@given(st.lists(st.lists(st.sampled_from(run_commands(*"abcde")), max_size=14), max_size=14))
@settings(max_examples=80)
def test_sequences_occur_in_their_runs_more_often_than_by_chance(runs: list[list[str]]):
    for sequence in find_sequences(runs):
        assert 3 <= len(sequence.calls) <= 5
        assert MIN_RUNS <= len(sequence.runs) <= sequence.count
        assert all(before != after for before, after in pairwise(sequence.calls))
        assert sequence.expected < len(sequence.runs)
        assert sequence.z >= 3
        for number in sequence.runs:
            assert " ".join(sequence.calls) in " ".join(runs[number])


def test_sequences_consist_of_commands_only():
    steps = ["read", "exec:git status", "exec:git diff", "exec:pytest", "write", "read", "edit", "grep"]
    assert [sequence.calls for sequence in find_sequences([steps] * 8)] == [
        ("exec:git status", "exec:git diff", "exec:pytest")
    ]
    assert find_sequences([["read", "edit", "write", "grep"]] * 8) == [], "a flow cannot run them"
    assert find_sequences([]) == []
